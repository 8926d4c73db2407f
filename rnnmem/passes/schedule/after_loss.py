"""Control edges that keep the first ops of the gradient from running beside the loss.

What the loss is reduced from and what its gradient starts from are as large as the sequences. An op
of the gradient that needs nothing but the forward part runs as soon as it may, so that both are
held at once; it is made to wait for the reduction:

    h ─► Square ─► Mean ─► loss
    └──► delayed input ◄─────┘ control edge        Square is gone before Mul and Tile are made
          └─► Mul ─► Mul ─► ... ─► gradient loop
               Tile ──┘

Waits for the reduction alone, where nobody but the caller reads it: no graph optimizer fuses it
then. An op that might be fused waits at a delayed input in front of it, behind data that was only
moved.
"""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.analysis.loops import LoopPair
from rnnmem.ir.edges import Edge
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import FILLERS, MATRIX_PRODUCTS, REDUCES, STACK
from rnnmem.ir.order import all_needed_by, is_constant
from rnnmem.passes.decision import Context, Offer, Site
from rnnmem.passes.schedule.apply import with_edges
from rnnmem.passes.schedule.gradient_start import LARGE


def offer(site: Site) -> Offer:
    """What loops that are rewritten bring along."""
    return Offer(lambda opened, _: after_the_loss(site.net, opened))


def apply(net: Net, edges: Iterable[Edge], context: Context) -> Net:
    """Applies the decisions of a plan."""
    return with_edges(net, edges)


def after_the_loss(net: Net, pairs: Iterable[LoopPair]) -> tuple[Edge, ...]:
    """The edges and delayed inputs for the gradients that start the gradient loops of the pairs.

    Args:
      net: the Net around the loops, with all shapes that are known.
      pairs: the loop pairs that are rewritten.
    """
    loops = [gradient.loop.op for pair in pairs for gradient in pair.gradients]
    feeding = all_needed_by(net, [loop.name for loop in loops])
    scheduling_edges: dict[Edge, None] = {}
    for loss in net.ops:
        if loss.type not in REDUCES or not _is_result(net, loss):
            continue
        forward = all_needed_by(net, [loss.name])
        for op in net.ops:
            if op.name in feeding and op.name not in forward:
                scheduling_edges.update(dict.fromkeys(_edges(net, op, loss, forward)))
    return tuple(scheduling_edges)


def _edges(net: Net, op: Op, loss: Op, forward: set[str]) -> Iterable[Edge]:
    """Where an op of the gradient waits for the loss, if it need not anyway."""
    if not op.outputs or (net.blobs[op.outputs[0]].bytes or 0) < LARGE:
        return
    if op.type in FILLERS and is_constant(net, op):
        yield Edge(op.name, None, loss.name)
        return
    for slot, blob in enumerate(op.inputs):
        source = net.producer.get(blob)
        moved = source is not None and _moves(source, op) and source.name in forward
        if moved and (net.blobs[blob].bytes or 0) >= LARGE:
            also = any(reader.name in forward for reader in net.readers[blob])
            if also and loss.name not in all_needed_by(net, [op.name]):
                yield Edge(op.name, slot, loss.name)


def _moves(source: Op, op: Op) -> bool:
    """Whether the source only moves data, and no graph optimizer fuses the op with it."""
    # A power becomes a square or nothing where its base's shape is seen; a transposition goes into
    # the flags of a matrix product.
    if op.type == "Pow":
        return False
    return source.type == STACK or (source.type == "Transpose" and op.type not in MATRIX_PRODUCTS)


def _is_result(net: Net, op: Op) -> bool:
    """Whether the function hands out what the op writes, and no other op reads it."""
    (blob,) = op.outputs
    readers = net.readers.get(blob, ())
    if any(reader.type != "Identity" for reader in readers):
        return False
    handed = {blob, *(reader.outputs[0] for reader in readers)}
    return not handed.isdisjoint(net.outputs) and not any(
        net.fan_out(reader.outputs[0]) - net.outputs.count(reader.outputs[0]) for reader in readers
    )
