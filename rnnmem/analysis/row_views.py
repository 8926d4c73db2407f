"""Ops on ``[B, T, ...]`` as ops on ``[B*T, 1, ...]``: the same numbers, a row for each token.

Whoever cuts rows cuts the first axis, and a batch has fewer rows than tokens. An op that works on
tokens one by one gives the same whether they are counted along one axis or several:

    op([B, T, V])        is        Reshape([B, T, V])(op(Reshape([B*T, 1, V])))

The rank stays, so that axes and ``batch_dims`` keep their meaning.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Sequence

from rnnmem.analysis.facts import Fact, vector
from rnnmem.analysis.shapes import known_net
from rnnmem.ir.builders import Encode, made, number
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import DType, Net, Op, Shape
from rnnmem.ir.op_table import ADDS, REDUCES, UNWRAP, WRAP, column, slots, types
from rnnmem.ir.order import without_dead_ops

ROWS, SIZES = "rows", "sizes"
"""What becomes of an input: it is viewed, or tells the result's sizes, which are others."""
_SAME_BITS = types("bits")
_SIZED = slots("sized")
_EACH_AXIS = types("reorders") | types("repeats")
"""Types of which a number for each axis says what becomes of it."""
_HOW = {
    **dict.fromkeys((types("pointwise") - types("own_shape")) | ADDS | types("fills"), "each"),
    **dict.fromkeys(types("softmax"), "row"),
    **dict.fromkeys(REDUCES, "axes"),
    **column("tokens"),
}


class _Refused(Exception):
    """The op does not work on tokens one by one, as far as is known."""


def as_rows(
    net: Net,
    lead: tuple[int, ...],
    constant: Encode,
    only: Collection[str] | None = None,
    blobs: Collection[str] = (),
) -> Net:
    """The Net with ops on tokens seen as ops on rows.

    Args:
      net: the Net.
      lead: the sizes that together count tokens, e.g. ``(B, T)``; empty: only Reshapes are seen.
      constant: encodes sizes.
      only: names of the ops to see so; Reshapes of what these make are seen so too. None: all that
        can be, and Reshapes read what was shaped first, so that Nets of the same values are alike.
      blobs: what is seen so besides, if it has such sizes.
    """
    return _Viewer(net, lead, constant, only).net(blobs)


class _Viewer:
    """A Net while its ops on tokens become ops on rows."""

    def __init__(
        self, net: Net, lead: tuple[int, ...], constant: Encode, only: Collection[str] | None
    ):
        self.facts = known_net(net).facts
        self.original, self.editor = net, NetEditor(net)
        self.lead, self.constant, self.only = lead, constant, only
        self.root: dict[str, str] = {}  # blob -> the one that it is a Reshape of
        self.shapes: dict[str, tuple[int, ...]] = {}  # of new blobs
        self.shaped: dict[tuple[str, tuple[int, ...]], str] = {}
        self.gone: set[str] = set()  # blobs of the original that are to be made again
        self.awaited = {name for op in net.ops for name in op.controls} | set(net.control_outputs)

    def net(self, blobs: Collection[str]) -> Net:
        """The Net as it is seen."""
        wanted = self._wanted() | {one for one in blobs if self._begins(self._shape(one))}
        for op in self.original.ops:
            self._take(op)
            for blob in op.outputs:
                if blob in wanted and blob not in self.gone:
                    self._see(blob, op)
        self.editor.outputs = [self._there(blob) for blob in self.editor.outputs]
        seen = self.editor.net()
        return seen if self.only is None else without_dead_ops(seen)

    def _take(self, op: Op) -> None:
        """Sees an op by rows, where it can be."""
        if op.type == "Reshape" and self._reshape(op):
            return
        held = self.original.producer.get(op.inputs[0]) if op.type == UNWRAP else None
        if held is not None and held.type == WRAP and self.only is None:
            self.root[op.outputs[0]] = self.root.get(held.inputs[0], held.inputs[0])
            self.gone.add(op.outputs[0])
        if self._count(op):
            return
        try:
            slots = self._slots(op)
        except _Refused:
            inputs = tuple(self._there(blob, op) for blob in op.inputs)
            self.editor.ops[op.name] = op if inputs == op.inputs else op.replace(inputs=inputs)
        else:
            self._view(op, slots)

    def _count(self, op: Op) -> bool:
        """Whether the op adds what counts tokens along each axis, which becomes one count of rows.

        So TensorFlow finds the places of labels in a flat [B*T*V]: (label + t * V) + b * T * V.
        """
        found = self._counted(op) if self.only is None or op.name in self.only else None
        if found is None:
            return False
        labels, step = found
        dtype, count = self._dtype(labels), math.prod(self.lead)
        rows = self._rows(self._sizes(labels))
        ramp = made(
            self.editor,
            "Range",
            [self._number(one, dtype) for one in (0, count, 1)],
            dtype,
            (count,),
            name="rnnmem/tokens",
            Tidx=dtype,
        )
        read = (ramp, self._number(step, dtype))
        ramp = made(self.editor, "Mul", read, dtype, (count,), name="rnnmem/tokens", T=dtype)
        self.shapes[ramp] = (count,)
        inputs = (self._as(labels, rows, op), self._as(ramp, rows, op))
        blob = self.editor.new_blob(f"{op.outputs[0]}/rows", dtype, rows)
        self.root[op.outputs[0]], self.shapes[blob] = blob, rows
        self.gone.add(op.outputs[0])
        self.editor.ops[op.name] = op.replace(inputs=inputs, outputs=(blob,))
        return True

    def _counted(self, op: Op) -> tuple[str, int] | None:
        """Labels, and how many places a row has, where an op's result is that much for each row."""
        steps, blob = [], op.outputs[0] if op.outputs else ""
        for axis, size in enumerate(self.lead):
            one = self.original.producer.get(blob)
            if one is None or one.type not in ADDS or len(one.inputs) != 2:
                return None
            blob, ramp = one.inputs
            alone = tuple(size if at == axis else 1 for at in range(len(self.lead)))
            shaped = self.original.producer.get(ramp)
            if shaped is None or shaped.type != "Reshape" or self.facts[ramp].shape != alone:
                return None
            value = self.facts[shaped.inputs[0]].value
            if not isinstance(value, tuple) or len(value) < 2 or not isinstance(value[1], int):
                return None
            if value != tuple(at * value[1] for at in range(size)):
                return None
            steps.append(value[1])
        sizes = zip(steps, steps[1:], self.lead[1:], strict=False)
        whole = steps and all(outer == inner * size for outer, inner, size in sizes)
        return (blob, steps[-1]) if whole and self.facts[blob].shape == self.lead else None

    def _wanted(self) -> set[str]:
        """What some ops, where not all are seen so, read by rows."""
        found: set[str] = set()
        for name in self.only or ():
            op = self.original.op_by_name.get(name)
            if op is not None and self._counted(op) is None:
                with contextlib.suppress(_Refused):
                    found.update(
                        op.inputs[at] for at, how in self._slots(op).items() if how == ROWS
                    )
        return found

    def _see(self, blob: str, op: Op) -> None:
        """One view of a blob, which whoever shapes it otherwise reads too."""
        first, producer = blob, self.original.producer
        while (made := producer.get(first)) is not None and made.type == "Reshape":
            if made.controls or None in (self._shape(made.inputs[0]) or (None,)):
                break
            first = made.inputs[0]
        self.root[blob] = self._as(first, self._rows(self._sizes(blob)), op)

    def _view(self, op: Op, slots: dict[int, str]) -> None:
        inputs, outputs = list(op.inputs), []
        for slot, blob in enumerate(op.inputs):
            shape = self._sizes(op.outputs[0] if slots.get(slot) == SIZES else blob)
            if slots.get(slot) == ROWS:
                inputs[slot] = self._as(blob, self._rows(shape), op)
            elif slots.get(slot) == SIZES:
                dtype = self.editor.blobs[blob].dtype
                inputs[slot] = self._number(self._rows(shape), dtype)
            else:
                inputs[slot] = self._there(blob, op)
        for blob in op.outputs:
            shape = self._rows(self._sizes(blob))
            outputs.append(self.editor.new_blob(f"{blob}/rows", self._dtype(blob), shape))
            self.root[blob] = outputs[-1]
            self.shapes[outputs[-1]] = shape
            self.gone.add(blob)
        self.editor.ops[op.name] = op.replace(inputs=tuple(inputs), outputs=tuple(outputs))

    def _reshape(self, op: Op) -> bool:
        """Whether the op becomes one of what was shaped first, as whoever reads it wants that."""
        blob, given = op.outputs[0], op.inputs[0]
        shape = self._shape(blob)
        if shape is None or None in shape or self._shape(given) is None or op.controls:
            return False
        if self.only is not None and given not in self.root:
            return False
        self.root[blob] = self.root.get(given, given)
        self.gone.add(blob)
        if op.name in self.awaited:  # it stays for those who wait for it alone
            kept = op.replace(inputs=tuple(self._there(one, op) for one in op.inputs))
            self.editor.ops[op.name] = kept
        else:
            self.editor.remove(op.name)
        return True

    # --- blobs as they are wanted

    def _shape(self, blob: str) -> Shape:
        return self.shapes.get(blob) or self.facts[blob].shape

    def _dtype(self, blob: str) -> str:
        return self.editor.blobs[blob].dtype

    def _sizes(self, blob: str) -> tuple[int, ...]:
        """The shape of a blob, all of which is known."""
        return tuple(size for size in self._shape(blob) or () if size is not None)

    def _rows(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        count = len(self.lead)
        return (math.prod(self.lead), *[1] * (count - 1), *shape[count:])

    def _there(self, blob: str, op: Op | None = None) -> str:
        """The blob itself, made again of its rows where it is needed."""
        if blob not in self.gone:
            return blob
        return self._as(blob, self._sizes(blob), op)

    def _as(self, blob: str, shape: tuple[int, ...], op: Op | None) -> str:
        """The blob's numbers in a shape."""
        root = self.root.get(blob, blob)
        if self._shape(root) == shape:
            return root
        if (root, shape) not in self.shaped:
            dtype = self._dtype(root)
            added = self.editor.add(
                "Reshape",
                (root, self._number(shape, "int32")),
                ((dtype, shape),),
                {"T": DType(dtype), "Tshape": DType("int32")},
                name="rnnmem/tokens",
                device="" if op is None else op.device,
            )
            self.shaped[root, shape] = added.outputs[0]
            self.shapes[added.outputs[0]] = shape
        return self.shaped[root, shape]

    def _number(self, value: int | tuple[int, ...], dtype: str) -> str:
        held = value if isinstance(value, int) else list(value)
        return number(self.editor, held, self.constant, "rnnmem/sizes", dtype)

    # --- which ops

    def _begins(self, shape: Shape) -> bool:
        if not self.lead or shape is None or None in shape:
            return False
        return shape[: len(self.lead)] == self.lead

    def _slots(self, op: Op) -> dict[int, str]:
        """What becomes of each input; of those that are not named, nothing."""
        facts = [self.facts[blob] for blob in op.inputs]
        shapes = [self.facts[blob].shape for blob in op.outputs]
        known = op.type in _SAME_BITS and op.type != "Reshape"
        self._demand(known and (self.only is None or op.name in self.only))
        self._demand(shapes and all(map(self._begins, shapes)))
        shape = shapes[0] or ()
        how = _HOW.get(op.type)
        if how == "axes":
            self._demand(self._begins(facts[0].shape) and self._acts_behind(op, facts))
            return {0: ROWS}
        if how == "labels":
            both = all(self._begins(one.shape) for one in facts[:2])
            shared = op.attributes.get("batch_dims") or 0
            self._demand(both and shared >= len(self.lead) and self._acts_behind(op, facts))
            return {0: ROWS, 1: ROWS}
        if how == "sizes":
            at = _SIZED[op.type]
            return {**self._aligned(facts[:at], shape), at: SIZES}
        if how == "row":
            plain = op.attributes.get("data_format", b"NHWC") == b"NHWC"
            self._demand(plain and len(shape) > len(self.lead))
            return {0: ROWS}
        self._demand(how == "each")
        return self._aligned(facts, shape)

    def _demand(self, holds: object) -> None:
        if not holds:
            raise _Refused

    def _aligned(self, facts: Sequence[Fact], shape: tuple[int | None, ...]) -> dict[int, str]:
        """Of inputs that are broadcast to a shape: those of tokens are rows; the others have none.

        What has one of several sizes of tokens alone, e.g. [B, 1, V], fits no rows.
        """
        found = {}
        for slot, fact in enumerate(facts):
            held = fact.shape
            if held is None or len(held) > len(shape):
                raise _Refused
            padded = (1,) * (len(shape) - len(held)) + held
            if len(held) == len(shape) and self._begins(held):
                found[slot] = ROWS
            else:
                self._demand(all(size == 1 for size in padded[: len(self.lead)]))
        return found

    def _acts_behind(self, op: Op, facts: Sequence[Fact]) -> bool:
        """Whether the axes along which the op acts stand behind those of tokens."""
        shape, count = facts[0].shape or (), len(self.lead)
        if op.type == "Squeeze":
            axes: Sequence[int | None] | None = op.attributes.get("squeeze_dims") or None
            rank = len(shape)
        elif op.type == "OneHot":
            axis, rank = op.attributes.get("axis", -1), len(shape) + 1
            axes = (axis,)
        elif op.type == "ExpandDims":
            axes, rank = vector(facts[1]), len(shape) + 1
        elif op.type in _EACH_AXIS:
            wanted = vector(facts[1])
            stay = tuple(range(count)) if op.type == "Transpose" else (1,) * count
            return wanted is not None and tuple(wanted[:count]) == stay
        else:
            axes, rank = vector(facts[2 if op.type == "GatherV2" else 1]), len(shape)
        return axes is not None and all(
            isinstance(axis, int) and axis % rank >= count for axis in axes
        )
