"""A sentence for every decision of every pass."""

from __future__ import annotations

from collections.abc import Iterator

from rnnmem.passes.registry import AROUND_LOOPS, BY_NAME
from rnnmem.planning.plan import Plan

MOST = 5
"""Decisions of one pass that `explain` tells singly; more are counted."""


def sentences(plan: Plan, most: int = MOST) -> Iterator[str]:
    """What all passes decided, in words; what becomes of each blob is a table of its own."""
    for loop in plan.every_loop():
        yield from loop.sentences
    for name, place, told in beside_loops(plan, most):
        yield f"{name} in {place}: {told}" if place else f"{name}: {told}"


def beside_loops(plan: Plan, most: int = MOST, place: str = "") -> Iterator[tuple[str, str, str]]:
    """What passes decided beside the loops themselves: ``(pass, place, decision)``.

    Args:
      plan: the plan.
      most: decisions of one pass that are told singly.
      place: where its Net is a step net: which.
    """
    left = plan.loops and all(loop.closed for loop in plan.loops)
    for name, decided in plan.decisions:
        if left and BY_NAME[name] in AROUND_LOOPS:
            continue  # nothing was rewritten that brings it along
        told = decided[:most] if len(decided) > most + 1 else decided
        for one in told:
            yield name, place, one.sentence
        if len(told) < len(decided):
            yield name, place, f"{len(decided) - len(told)} more"
    for one in plan.nested:
        yield from beside_loops(one.plan, most, "/".join((*filter(None, [place]), *one.path)))
