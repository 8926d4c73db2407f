"""Asks for shapes in the forward loop, where the blobs are, and hands them to the gradient loop.

    forward     seen ─► ShapeN ─► Push
    gradient    Pop ─► Slice(gradient, …)

What was pushed is pushed as before: a plan of the loop saves it no longer, where nobody reads it.
"""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.analysis.loops import GradientLoop, LoopPair, own_loop_pairs
from rnnmem.errors import NetError
from rnnmem.ir.builders import Encode
from rnnmem.ir.editor import LoopEditor, NetEditor, edit_step_nets
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.order import through_identities
from rnnmem.passes.accumulators import accumulated, popped
from rnnmem.passes.decision import Context, planned_op
from rnnmem.passes.saved_shapes.decision import SavedShape
from rnnmem.passes.saved_shapes.select import read_for_shape


def apply(net: Net, shapes: Iterable[SavedShape], context: Context) -> Net:
    """The Net with these shapes saved.

    Raises:
      NetError: a decision names a loop or an op that the Net does not have.
    """
    editor = NetEditor(net)
    here = edit_step_nets(editor, shapes, lambda inner, some: apply(inner, some, context))
    pairs = {
        one.loop.op.name: (pair, one)
        for pair in own_loop_pairs(net)
        for one in pair.gradients
        if not pair.closed
    }
    for name in dict.fromkeys(one.gradient for one in here):
        if name not in pairs:
            raise NetError(f"the plan is for another function: no gradient loop {name!r}")
        ops = [one.op for one in here if one.gradient == name]
        _Pair(editor, *pairs[name], context.constant).save(ops)
    return editor.net()


class _Pair:
    def __init__(self, outer: NetEditor, pair: LoopPair, gradient: GradientLoop, constant: Encode):
        self.pair, self.read_by, self.constant = pair, gradient, constant
        self.forward = LoopEditor(outer, outer.ops[pair.forward.op.name])
        self.gradient = LoopEditor(outer, outer.ops[gradient.loop.op.name])
        self.pushed = {link.popped: link.pushed for link in gradient.links}

    def save(self, names: Iterable[str]) -> None:
        for name in names:
            op = planned_op(self.gradient.body, name)
            if not read_for_shape(self.read_by.loop, op, self.pushed):
                raise NetError(f"the plan is for another function: {name!r} reads no shapes")
            self._move(op)
        self.forward.finish()
        self.gradient.finish()

    def _move(self, op: Op) -> None:
        """Has the forward loop run an op, and the gradient loop pop what it makes."""
        body, known = self.gradient.body, self.gradient.body.blobs
        read = (through_identities(self.read_by.loop.body, blob) for blob in op.inputs)
        asked = self.forward.body.add(
            op.type,
            (self.pushed[blob] for blob in read),
            ((known[blob].dtype, known[blob].shape) for blob in op.outputs),
            op.attributes,
            name=f"rnnmem/{op.type.lower()}",
            device=op.device,
            source=op.source,
        )
        for made, shape in zip(op.outputs, asked.outputs, strict=True):
            if self.read_by.loop.body.fan_out(made):
                body.rename(made, self._saved(shape))
        body.remove(op.name)

    def _saved(self, blob: str) -> str:
        """The blob of the gradient step net that pops what the forward step net pushes now."""
        maker, kind = self.pair.list_maker, self.forward.body.blobs[blob]
        _, held = accumulated(self.forward, blob, maker, self.constant)
        return popped(self.gradient, held, kind, self.constant)[1]
