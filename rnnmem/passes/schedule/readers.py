"""Who makes little of a large blob reads it before who makes much of it.

    a, g ─► Conv2DBackpropFilter ─► dw ─► completion proxy ┐ control edge
    g ─────────────────────────── delayed input ◄──────────┘
                                       └──► Conv2DBackpropInput ─► da

A filter's gradient lets go of the layer's input that was computed again for it; nothing tells
TensorFlow to make it before the gradient that the layers below wait for, and both are as large.
"""

from __future__ import annotations

from collections.abc import Iterator

from rnnmem.grappler.fusion import HIDING, is_handed_on, may_have_proxy
from rnnmem.grappler.summation_order import merged_sums
from rnnmem.ir.edges import Edge
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net, Op
from rnnmem.ir.op_table import ASKS_SHAPE, UNWRAP
from rnnmem.ir.order import all_waiting_for
from rnnmem.passes.schedule.apply import with_edges

LARGE = 2**20
"""Bytes from which on a blob is worth it."""
LITTLE = 0.5
"""Part of a blob that those make at most who read it first."""


def readers_in_turn(net: Net) -> tuple[Edge, ...]:
    """Edges by which those who make much of a large blob wait for those who make little of it.

    Args:
      net: the whole step, its shapes known.
    """
    found: list[Edge] = []
    ordered = net
    for op in net.ops:
        for blob in op.outputs:
            for edge in _edges(ordered, blob):
                found.append(edge)
                ordered = with_edges(ordered, [edge])
    return tuple(found)


def _edges(net: Net, blob: str) -> Iterator[Edge]:
    op, size = net.producer[blob], net.blobs[blob].bytes or 0
    if size < LARGE or op.type != UNWRAP and op.type not in HIDING:
        return
    readers = [one for one in net.readers.get(blob, ()) if one.type not in ASKS_SHAPE]
    if len(readers) < 2:
        return
    large = [one for one in readers if not one.nets and _made(net, one) > LITTLE * size]
    little = [one for one in readers if _made(net, one) <= LITTLE * size and _awaited(net, one)]
    for late in large:
        behind = all_waiting_for(net, [late.name])
        for early in little:
            if early.name not in behind and late.inputs.count(blob) == 1:
                yield Edge(late.name, late.inputs.index(blob), early.name, by_proxy=True)
                break


def _made(net: Net, op: Op) -> int:
    return sum(net.blobs[one].bytes or 0 for one in op.outputs)


def _awaited(net: Net, op: Op) -> bool:
    """Whether one more reader of what the op makes, a completion proxy, changes nothing."""
    if not op.outputs or op.nets or net.blobs[op.outputs[0]].dtype not in BYTES_PER_ELEMENT:
        return False
    (blob, *_) = op.outputs
    handed_on = is_handed_on(net, blob) and blob not in merged_sums(net).addends
    return handed_on or may_have_proxy(net, blob)
