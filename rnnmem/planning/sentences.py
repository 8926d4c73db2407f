"""A sentence for every decision of every pass."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from rnnmem.passes.registry import AROUND_LOOPS, BY_NAME
from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.planning.plan import Plan

MOST = 5
"""Decisions of one pass that `explain` tells singly; more are counted."""


class Naming(Protocol):
    """What loops and ops are called."""

    def loop(self, loops: tuple[str, ...]) -> str:
        """The name of the innermost of some loops."""

    def told(self, sentence: str) -> str:
        """A sentence in which ops have names of TensorFlow's, with other names."""


class AsTheyAre:
    """Names as TensorFlow gives them."""

    def loop(self, loops: tuple[str, ...]) -> str:
        """The names of the loops, outermost first."""
        return "/".join(loops)

    def told(self, sentence: str) -> str:
        """The sentence itself."""
        return sentence


AS_THEY_ARE = AsTheyAre()


def called(loop: LoopPlan, naming: Naming) -> LoopPlan:
    """A loop's decisions, which tell it by another name."""
    return dataclasses.replace(loop, path=(naming.loop(loop.path),))


def sentences(plan: Plan, naming: Naming = AS_THEY_ARE, most: int = MOST) -> Iterator[str]:
    """What all passes decided, in words; what becomes of each blob is a table of its own."""
    yield from of_loops(plan, naming)
    for name, place, told in beside_loops(plan, naming, most):
        yield f"{name} in {place}: {told}" if place else f"{name}: {told}"


def of_loops(plan: Plan, naming: Naming = AS_THEY_ARE) -> Iterator[str]:
    """What was decided on loops as a whole."""
    for loop in plan.every_loop():
        yield from called(loop, naming).sentences


def beside_loops(
    plan: Plan, naming: Naming = AS_THEY_ARE, most: int = MOST, around: tuple[str, ...] = ()
) -> Iterator[tuple[str, str, str]]:
    """What passes decided beside the loops themselves: ``(pass, place, decision)``.

    Args:
      plan: the plan.
      naming: what loops and ops are called.
      most: decisions of one pass that are told; those that read the same are told once.
      around: where its Net is a step net: of which.
    """
    left = plan.loops and all(loop.closed for loop in plan.loops)
    bodies = tuple(name for name in around if name != "body")
    place = naming.loop(bodies) if bodies else ""
    for name, decided in plan.decisions:
        if left and BY_NAME[name] in AROUND_LOOPS:
            continue  # nothing was rewritten that brings it along
        alike = Counter(naming.told(one.sentence) for one in decided)
        rows = list(alike.items())
        told = rows[:most] if len(rows) > most + 1 else rows
        for sentence, count in told:
            yield name, place, f"{count} × {sentence}" if count > 1 else sentence
        if len(told) < len(rows):
            yield name, place, f"{sum(alike.values()) - sum(count for _, count in told)} more"
    for one in plan.nested:
        yield from beside_loops(one.plan, naming, most, (*around, *one.path))
