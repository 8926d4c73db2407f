"""Brings forward blobs to the gradient step net: popped, read again, or recomputed."""

from __future__ import annotations

from collections.abc import Callable

from rnnmem.analysis.branches import ReadInside, reads_of
from rnnmem.analysis.lookups import reads_in_step
from rnnmem.analysis.loop_invariant_casts import is_hoisted
from rnnmem.analysis.loops import Link, LoopPair
from rnnmem.errors import NetError
from rnnmem.grappler.barrier import hidden
from rnnmem.grappler.cse import fan_out
from rnnmem.grappler.keepalive import missed_results, results_read
from rnnmem.grappler.summation_order import sums_of
from rnnmem.ir.editor import LoopEditor
from rnnmem.ir.graph import Blob, DType, Net, Op, Shape
from rnnmem.ir.neutral import other_factor
from rnnmem.ir.op_table import facts
from rnnmem.ir.order import constant_value
from rnnmem.passes.rematerialise.branches import kinds_with_values, with_values
from rnnmem.passes.rematerialise.decision import OVERLAPPING, LoopPlan
from rnnmem.passes.rematerialise.hoisted_reads import InnerRead

AGAIN = "rnnmem/again"
"""Before an op's name: what stands for its result, so that it is sorted among others as before.

TensorFlow's graph optimizer sorts what sums and products read by name. That is the order in which a
sum adds up, and it says which factor a constant is multiplied with first: c (x y) = x (c y).
"""
INLINED = "Func/"
"""Before the name of an inlined function: the arguments of it."""


class Materialiser:
    """Makes, on demand and once each, what stands for a forward blob in one gradient step net."""

    def __init__(
        self,
        pair: LoopPair,
        plan: LoopPlan,
        links: tuple[Link, ...],
        gradient: LoopEditor,
        pop: Callable[[str], str],
        bring: Callable[[str], str],
        read: Callable[[InnerRead], str],
        optional: bool,
    ):
        self.outermost = pair.path[0]
        self.forward = pair.forward
        self.body = pair.forward.body
        self.plan = plan
        self.gradient = gradient
        self.pop = pop
        self.bring = bring
        self.read = read
        self.optional = optional
        self.recomputed = frozenset(plan.recomputed)
        self.hoisted = frozenset(plan.hoisted)
        self.made: dict[str, str] = {}  # forward blob -> blob that clones read
        self.behind_barrier: dict[str, str] = {}  # forward blob -> blob that gradient ops read
        self.clones: dict[str, Op] = {}  # forward op -> its clone
        self.casts: dict[str, str] = {}  # forward op -> the blob of its clone beside the loop
        self._delayed_input: str | None = None

    def value(self, blob: str) -> str:
        """What clones read for a forward blob."""
        if blob not in self.made:
            self.made[blob] = self._make(blob)
        return self.made[blob]

    def guarded(self, blob: str, name: str) -> str:
        """What gradient ops read for a forward blob: the value behind an output barrier.

        Args:
          blob: the forward blob.
          name: of the pop that it stands for.
        """
        if blob not in self.behind_barrier:
            value = self._from_beside(blob) or self.value(blob)
            self.behind_barrier[blob] = self._wrapped(value, blob, None, name, ())
        return self.behind_barrier[blob]

    def lonely_blobs(self) -> list[str]:
        """Clones' blobs with fewer readers, one or none, where that shows."""
        net = self.gradient.body.net()
        reads = reads_of(net)
        found = []
        for name, clone in self.clones.items():
            op = self.body.op_by_name[name]
            read = [place for place, one in enumerate(clone.outputs) if reads[one]]
            missed = missed_results(clone, read, results_read(self.body, op))
            found += [
                copy
                for place, (blob, copy) in enumerate(zip(op.outputs, clone.outputs, strict=True))
                if place in missed or fan_out(net, copy) == 1 < fan_out(self.body, blob)
            ]
        return found

    def held_addends(self) -> list[str]:
        """What clones read for a blob that an accumulator kept a sum from adding up in place."""
        sums = sums_of(self.forward.body)
        pushed = {push.inputs[1] for push in self.forward.pushes.values()}
        return [
            copy
            for blob, copy in self.made.items()
            if blob in sums.addends and any(sums.share(blob, other) for other in pushed)
        ]

    def _make(self, blob: str) -> str:
        producer = self.body.producer.get(blob)
        if blob in self.plan.saved:
            return self._barrier(self.pop(blob), blob, self._delayed_input_controls())
        beside = self._from_beside(blob)
        if beside is not None:
            return self._barrier(beside, blob, self._delayed_input_controls())
        if producer is None and blob in self.forward.invariants:
            return self._invariant(blob)
        if producer is None or (producer.type != "Const" and producer.name not in self.recomputed):
            raise NetError(f"the plan neither saves nor recomputes {blob!r}")
        clone = self._clone(producer)
        return clone.outputs[producer.outputs.index(blob)]

    def _invariant(self, blob: str) -> str:
        """The gradient loop's own variable for an invariant; added where it has none."""
        return self.gradient.invariant(
            self.bring(self.forward.op.inputs[self.forward.invariants[blob]])
        )

    def _from_beside(self, blob: str) -> str | None:
        """The gradient loop's own variable for what is read or cast once beside the loops."""
        producer = self.body.producer.get(blob)
        if blob in self.hoisted:
            return self.gradient.invariant(self._read_beside(blob))
        if (
            producer is not None
            and producer.name in self.recomputed
            and is_hoisted(self.forward, producer, self.hoisted)
        ):
            return self.gradient.invariant(self._cast_beside(producer))
        return None

    def _read_beside(self, blob: str) -> str:
        """The blob around the gradient loop that one read gives."""
        return self.read(InnerRead(self.body.producer[blob], self.body.blobs[blob]))

    def _cast_beside(self, cast: Op) -> str:
        """The blob around the gradient loop that one cast gives; made once."""
        if cast.name not in self.casts:
            (source,) = cast.inputs
            if source in self.hoisted:
                start = self._read_beside(source)
            else:
                start = self.bring(self.forward.op.inputs[self.forward.invariants[source]])
            kind = self.body.blobs[cast.outputs[0]]
            self.casts[cast.name] = self.gradient.outer.add(
                cast.type,
                (start,),
                ((kind.dtype, kind.shape),),
                {key: value for key, value in cast.attributes.items() if key != "_class"},
                name=f"{self.gradient.op.name}/{AGAIN}",
                device=cast.device,
                source=cast.source,
            ).outputs[0]
        return self.casts[cast.name]

    def _clone(self, op: Op) -> Op:
        if op.name not in self.clones:
            op = self._as_folded(op)
            body = self.gradient.body
            reads = reads_in_step(self.forward, op) or {}
            inputs = tuple(
                self._read_for_nets(reads[blob]) if blob in reads else self.value(blob)
                for blob in op.inputs
            )
            kinds = kinds_with_values(op, self.body, reads) if reads else self._kinds(op)
            controls = self._delayed_input_controls() if self._needs_delayed_input(op) else ()
            if reads:
                op = with_values(op, reads)
            clone = body.add(
                op.type,
                inputs,
                [(kind.dtype, kind.shape) for kind in kinds],
                {key: value for key, value in op.attributes.items() if key != "_class"},
                name=f"{AGAIN}/{op.name}",
                controls=controls,
                nets=op.nets,
                device=op.device,
                source=op.source,
            )
            self.clones[op.name] = clone
        return self.clones[op.name]

    def _as_folded(self, op: Op) -> Op:
        """The op, or what TensorFlow makes of a product by one in the forward step net.

        Where others in the gradient read such a one, its product would leave an edge from it behind
        (``constant_folding.cc``), and with an edge nothing is fused.
        """
        factor = other_factor(self.body, op)
        if factor is None:
            return op
        dtype = self.body.blobs[factor].dtype
        if dtype in self.body.once(_dtypes_of_ones_left):
            return op
        return op.replace(type="Identity", inputs=(factor,), attributes={"T": DType(dtype)})

    def _kinds(self, op: Op) -> tuple[Blob, ...]:
        """What the op gives in the forward step net."""
        return tuple(self.body.blobs[blob] for blob in op.outputs)

    def _read_for_nets(self, read: ReadInside) -> str:
        """The gradient loop's own variable for what is read inside an op, once beside the loops."""
        op = read.op.replace(inputs=(read.handle,))
        return self.gradient.invariant(self.read(InnerRead(op, read.blob)))

    def _needs_delayed_input(self, op: Op) -> bool:
        """Whether a clone waits by itself: it starts from invariants, or the op waited for others.

        A clone without inputs is left free, so that constants fold as they do in the forward Net.
        """
        known = facts(op)
        if not op.inputs or (known is not None and known.folds and not op.controls):
            return False
        from_outside = all(
            self.body.producer.get(blob) is None
            and blob not in self.plan.saved
            or (
                self.body.producer.get(blob) is not None
                and self.body.producer[blob].type == "Const"
            )
            for blob in op.inputs
        )
        return bool(op.controls) or from_outside

    def _barrier(self, copy: str, blob: str, controls: tuple[str, ...]) -> str:
        producer = self.body.producer.get(blob)
        name = f"{AGAIN}/{producer.name}" if producer is not None else self._argument(blob)
        return self._wrapped(copy, blob, self.body.blobs[blob].shape, name, controls)

    def _argument(self, blob: str) -> str:
        """A name for what stands for an argument: before those of clones, or behind them.

        As TensorFlow inlines the loop ``name``, arguments are called ``Func/name/...``, with a
        number that counts up, and all else ``name/...``.
        """
        first = self.outermost > INLINED
        return f"rnnmem/{'Func' if first else 'func'}/{self.body.inputs.index(blob):04}"

    def _wrapped(
        self, copy: str, blob: str, shape: Shape, name: str, controls: tuple[str, ...]
    ) -> str:
        """The value behind an optional, with another shape to be seen."""
        return hidden(
            self.gradient.body,
            copy,
            shape,
            name=name,
            stands_for=blob,
            optional=self.optional,
            controls=controls,
            kind=self.body.blobs[blob],
        )

    def _delayed_input_controls(self) -> tuple[str, ...]:
        """The op that runs once the incoming gradient of the iteration is there.

        A loop with few parallel iterations needs none: the executor holds the others back. And
        none is better: one more reader keeps an argument's Identity alive, under whose name
        TensorFlow's graph optimizer then sorts the inputs of a sum, into another order.
        """
        if self.plan.parallel_iterations <= OVERLAPPING:
            return ()
        if self._delayed_input is None:
            self._delayed_input = self._make_delayed_input()
        return (self._delayed_input,) if self._delayed_input else ()

    def _make_delayed_input(self) -> str:
        body = self.gradient.body
        waits = []
        for argument, result in zip(body.inputs, body.outputs, strict=True):
            kind = body.blobs[argument]
            if argument == result or not kind.dtype.startswith(("float", "bfloat", "complex")):
                continue
            identity = body.add(
                "Identity",
                (argument,),
                ((kind.dtype, kind.shape),),
                {"T": DType(kind.dtype)},
                name="rnnmem/incoming",
            )
            waits.append(identity.name)
        if not waits:
            return ""
        return body.add("NoOp", (), (), {}, name="rnnmem/gate", controls=waits).name


def _dtypes_of_ones_left(net: Net) -> frozenset[str]:
    """Dtypes of the constants 1 that somebody in a step net reads who does not multiply by them."""
    return frozenset(
        net.blobs[blob].dtype
        for blob in (op.outputs[0] for op in net.ops if op.type == "Const")
        if constant_value(net, blob) == 1
        and (
            blob in net.outputs
            or not all(_folds(net, op, blob) for op in net.readers.get(blob, ()))
        )
    )


def _folds(net: Net, op: Op, one: str) -> bool:
    """Whether an op multiplies by a one, or hands it on to nobody."""
    if op.type == "IdentityN":
        return not net.fan_out(op.outputs[op.inputs.index(one)])
    return other_factor(net, op) is not None
