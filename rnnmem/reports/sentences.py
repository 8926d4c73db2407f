"""A sentence for every decision of every pass."""

from __future__ import annotations

from collections.abc import Iterator

from rnnmem.passes.registry import AROUND_LOOPS, BY_NAME
from rnnmem.planning.plan import Plan

MOST = 5
"""Decisions of one pass that `explain` tells singly; more are counted."""


def sentences(plan: Plan, place: str = "", most: int = MOST) -> Iterator[str]:
    """What each pass decided, in words.

    Args:
      plan: the plan.
      place: where its Net is a step net: which.
      most: decisions of one pass that are told singly.
    """
    where = f" in {place}" if place else ""
    left = plan.loops and all(loop.closed for loop in plan.loops)
    for name, decided in plan.decisions:
        if left and BY_NAME[name] in AROUND_LOOPS:
            continue  # nothing was rewritten that brings it along
        told = decided[:most] if len(decided) > most + 1 else decided
        for one in told:
            yield f"{name}{where}: {one.sentence}"
        if len(told) < len(decided):
            yield f"{name}{where}: {len(decided) - len(told)} more"
    for loop in () if place else plan.every_loop():
        yield from loop.sentences
    for one in plan.nested:
        yield from sentences(one.plan, "/".join((*filter(None, [place]), *one.path)), most)
