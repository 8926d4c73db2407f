"""What the pops of a function hand back: what every iteration saved, what a segment keeps, nothing.

accumulator of a forward loop ─► PopBack      saved for every iteration
list that a segment filled again ─► PopBack   kept for that segment alone
PushBack ─► PopBack                           keep-alive use: one more reader, and no memory
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rnnmem.analysis.loops import LoopPair, inner_pairs, loop_pairs
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.marks import REFILLS, SAVES, SEGMENTS
from rnnmem.ir.op_table import POP, PUSH
from rnnmem.reports.kinds import Place, places

Popped = Mapping[tuple[Place, str], tuple[Place, str]]
"""(Loops around it, pop) -> (path of the forward loop, the blob that its iterations saved)."""


def popped(net: Net) -> Popped:
    """What the pops of gradient loops hand back of what the forward loops saved.

    Args:
      net: the whole function.
    """
    found: dict[tuple[Place, str], tuple[Place, str]] = {}
    for loops, inner in places(net):
        for pair in loop_pairs(inner, inner, {}, loops):
            found.update(_of_pair(pair, loops))
    return found


def is_kept_alive(net: Net, op: Op) -> bool:
    """Whether a pop hands back what was pushed right before it."""
    return op.type == POP and _made_by(net, op).type == PUSH


def is_refilled(net: Net, op: Op) -> bool:
    """Whether a pop hands back what a segment kept that ran again."""
    return op.type == POP and _made_by(net, op).attributes.get(SEGMENTS) == REFILLS


def is_handed_on(net: Net, op: Op) -> bool:
    """Whether a pop reads a list that its loop carries."""
    return op.type == POP and op.inputs[0] in net.inputs


def _made_by(net: Net, op: Op) -> Op:
    return net.producer.get(op.inputs[0], op)


def _of_pair(
    pair: LoopPair, around: Place
) -> Iterator[tuple[tuple[Place, str], tuple[Place, str]]]:
    """The pops of a pair and of those inside it; ``around`` are the loops around its gradient."""
    for gradient in pair.gradients:
        place = (*around, gradient.loop.op.name)
        for link in gradient.links:
            pushing = pair.forward.pushes[link.accumulator]
            saved = pushing.attributes.get(SAVES, link.pushed.encode()).decode()
            yield (place, gradient.loop.pops[link.popped_by].name), (pair.path, saved)
        for inner in inner_pairs(pair, gradient):
            yield from _of_pair(inner, place)
