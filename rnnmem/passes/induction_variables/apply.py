"""Counts saved whole numbers down in the gradient loop, and takes their lists out.

What never changes is a variable as well, which the next iteration gets as the larger of itself and
itself: TensorFlow's graph optimizer would see a constant, know the shapes that are made with it,
and compute in another order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rnnmem.analysis.loops import Link, LoopPair, loop_pairs
from rnnmem.ir.builders import INT, Encode, awaited_by, integer, made, number, remove_pop
from rnnmem.ir.editor import LoopEditor, NetEditor
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.marks import COUNTS
from rnnmem.ir.op_table import UNWRAP, WRAP
from rnnmem.ir.order import through_identities
from rnnmem.ir.residuals import COUNTED, Residual, rename_map, residuals_of
from rnnmem.passes.decision import Context, planned_op
from rnnmem.passes.induction_variables.decision import InductionVariable
from rnnmem.passes.induction_variables.select import GROWS, OF_LISTS, grows_by


def apply(net: Net, decided: Iterable[InductionVariable], context: Context) -> Net:
    """Applies the decisions of a plan, where the number is in a list still; XLA has its own way.

    Raises:
      NetError: a decision names a loop that the Net does not have.
    """
    if not context.keeps_alive:
        return net
    editor = NetEditor(net)
    by_loop: dict[str, dict[str, InductionVariable]] = {}
    for one in decided:
        by_loop.setdefault(planned_op(editor, one.loop).name, {})[one.blob] = one
    pairs = {pair.path: pair for pair in loop_pairs(net, net, {})}
    for loop, some in by_loop.items():
        if (loop,) in pairs:
            _rewrite(editor, pairs[loop,], some, context.constant)
    return editor.net()


def _rewrite(
    editor: NetEditor, pair: LoopPair, some: dict[str, InductionVariable], constant: Encode
) -> None:
    """Counts the numbers of one pair, and takes out the lists that nobody reads any more."""
    popped: Counter[int] = Counter()
    for gradient in pair.gradients:
        counting = _Counting(editor, pair, gradient.loop.op, constant)
        for link in gradient.links:
            popping = gradient.loop.pops[link.popped_by]
            if link.pushed in some and not awaited_by(counting.body, popping):
                counting.replace(link, popping, some[link.pushed])
                popped[link.accumulator] += 1
        counting.finish()
    _drop_lists(editor, pair, popped)


class _Counting:
    """A gradient loop that has saved numbers by itself, each variable made once."""

    def __init__(self, outer: NetEditor, pair: LoopPair, gradient: Op, constant: Encode):
        self.outer, self.pair, self.constant = outer, pair, constant
        self.loop = LoopEditor(outer, outer.ops[gradient.name])
        self.body = self.loop.body
        self.made: dict[str, str] = {}  # blob of the forward step net -> what stands for it here
        self.marks: list[bytes] = []
        self.gone: set[str] = set()  # arguments that held lists

    def finish(self) -> None:
        """Writes the loop back, if it counts anything."""
        if self.gone:
            marks = _without_lists(self.loop.op, self.gone)
            self.loop.finish(**{COUNTS: tuple(self.marks)}, **marks)

    def replace(self, link: Link, popping: Op, one: InductionVariable) -> None:
        """Whoever read what was popped reads the number, through no optional of the device."""
        if link.pushed not in self.made and one.numbers:
            vector = bool(self.pair.forward.body.blobs[link.pushed].shape)
            held = number(self.outer, one.numbers if vector else one.numbers[0], self.constant)
            self.made[link.pushed] = self._kept(held, link.pushed)
        stands = self._value(link.pushed)
        ops = list(self.body.ops.values())
        wraps = [op for op in ops if op.type == WRAP and op.inputs == (link.popped,)]
        hidden = {op.outputs[0] for op in wraps if not op.controls}
        for op in ops:
            if op.type == UNWRAP and op.inputs[0] in hidden:
                self.body.rename(op.outputs[0], stands)
        self.body.rename(link.popped, stands)
        remove_pop(self.body, popping)
        self.loop.remove_variable(popping.inputs[0])
        self.gone.add(popping.inputs[0])

    def _value(self, blob: str) -> str:
        """What stands in the gradient step net for a blob of the forward step net."""
        if blob not in self.made:
            self.made[blob] = self._make(blob)
        return self.made[blob]

    def _make(self, blob: str) -> str:
        forward = self.pair.forward
        blob = through_identities(forward.body, blob)
        op = forward.body.producer.get(blob)
        if blob in forward.invariants:
            return self._kept(forward.op.inputs[forward.invariants[blob]], blob)
        if op is None:
            return self._counter(blob)
        if op.type in OF_LISTS:
            held = forward.invariants[through_identities(forward.body, op.inputs[0])]
            of_list = _copied(self.outer, forward.body, op, (forward.op.inputs[held],))
            return self._kept(of_list, blob)
        return _copied(self.body, forward.body, op, [self._value(one) for one in op.inputs])

    def _counter(self, argument: str) -> str:
        """A variable that falls as the forward loop's one grew."""
        forward, grown = self.pair.forward, grows_by(self.pair.forward, argument)
        assert grown is not None  # it was selected
        op, added = grown
        undo = "Sub" if GROWS[op.type] > 0 else "AddV2"
        index = forward.invariants.get(added)
        if index is None:
            constant = forward.body.producer[added]
            more = [_copied(net, forward.body, constant, ()) for net in (self.outer, self.body)]
        else:
            around = forward.op.inputs[index]
            more = [around, self.loop.invariant(around)]
        final = forward.op.outputs[forward.body.inputs.index(argument)]
        start = integer(self.outer, undo, final, more[0])
        counted, _ = self.loop.add_variable(start, "counted")
        self.loop.set_next(counted, integer(self.body, undo, counted, more[1]))
        self.marks.append(f"{counted}\n{argument}".encode())
        return counted

    def _kept(self, start: str, blob: str) -> str:
        """A variable that stays as it is, which does not show."""
        kept, _ = self.loop.add_variable(start, "kept")
        shape = self.outer.blobs[start].shape
        same = made(self.body, "Maximum", (kept, kept), INT, shape, "rnnmem/same", T=INT)
        self.loop.set_next(kept, same)
        self.marks.append(f"{kept}\n{blob}".encode())
        return kept


def _copied(net: NetEditor, body: Net, op: Op, inputs: Iterable[str]) -> str:
    """The op of a step net once more, where it gives one number or vector."""
    kind = body.blobs[op.outputs[0]]
    attributes = {key: value for key, value in op.attributes.items() if key != "_class"}
    return net.add(
        op.type,
        inputs,
        ((kind.dtype, kind.shape),),
        attributes,
        name="rnnmem/counted",
        device=op.device,
        source=op.source,
    ).outputs[0]


def _drop_lists(editor: NetEditor, pair: LoopPair, popped: Counter[int]) -> None:
    """Takes the forward loop's lists out that were read by nobody else."""
    forward, gone = LoopEditor(editor, editor.ops[pair.forward.op.name]), set()
    for accumulator, times in popped.items():
        if pair.forward.net.fan_out(pair.forward.op.outputs[accumulator]) == times:
            push = pair.forward.pushes[accumulator]
            forward.body.remove(push.name)
            forward.remove_variable(push.inputs[0])
            gone.add(push.inputs[0])
    if gone:
        forward.finish(**_without_lists(forward.op, gone))


def _without_lists(loop: Op, gone: set[str]) -> dict[str, bytes]:
    """The loop's rename map, in which these lists are no more."""
    return rename_map(
        Residual(one.blob, COUNTED) if {one.pushed, one.popped} & gone else one
        for one in residuals_of(loop)
    )
