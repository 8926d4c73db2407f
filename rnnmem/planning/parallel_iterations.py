"""How many iterations of the rewritten loops may be under way at once.

TensorFlow starts up to ten (``parallel_iterations``), and holds what all of them recompute. Two are
enough to keep a second core at the weight gradients of one iteration while the next one is at its
own; one at a time holds least, and lets cores wait:

    two at once   │chain 3│chain 2│chain 1│          one at a time   │chain 3│──────│chain 2│──────
                          │partial 3│partial 2│ ...                          │part 3│       │part 2│
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from rnnmem.analysis.loops import LoopPair
from rnnmem.analysis.machine import WIDE_SECONDS
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import Work, facts
from rnnmem.passes.encode.decision import OFFLOAD
from rnnmem.passes.rematerialise.decision import OVERLAPPING, LoopPlan
from rnnmem.planning.plan import Plan

if TYPE_CHECKING:
    from rnnmem.planning.pareto import Candidates

ONE_BY_ONE = 0.1
"""Part of the step time that is lost one at a time, before the Net is timed by
:mod:`rnnmem.planning.overlap`; measured on loops of many kinds, 0 to 0.3."""


def overlapped(plan: Plan) -> Plan:
    """The plan with two iterations under way at once."""
    return dataclasses.replace(plan, loops=_with_parallel_iterations(plan.loops, OVERLAPPING))


def one_by_one(plan: Plan) -> Plan:
    """The plan with one iteration at a time, and the time that this takes."""
    if plan.changes_nothing:
        return plan
    return dataclasses.replace(
        plan, loops=_with_parallel_iterations(plan.loops, 1), slowdown=plan.slowdown + ONE_BY_ONE
    )


def within(
    candidates: Candidates, bounds: set[float], most: float, finish: Callable[[Plan], Plan]
) -> list[Plan]:
    """Plans within each bound on time, and one by one, here or there, within the last.

    Args:
      candidates: all trades.
      bounds: on the factor of step time.
      most: the last of them.
      finish: adds to a plan what stands beside its loops.
    """
    found = [overlapped(finish(candidates.within(bound))) for bound in sorted(bounds)]
    lost = sum(filter(None, candidates.lost))
    if lost and most - lost >= 1.0:
        plan = finish(candidates.within(most - lost))
        found.append(one_by_one_where_cheap(plan, candidates.lost))
    if most - ONE_BY_ONE >= 1.0:
        found.append(one_by_one(finish(candidates.within(most - ONE_BY_ONE))))
    if candidates.must_recompute:  # even the fastest may take more time than is allowed
        fastest = min(plan.slowdown for plan in found)
        found = [plan for plan in found if plan.slowdown <= max(most, fastest)]
    return found


def lost_one_by_one(
    pair: LoopPair, seconds: Callable[[Op, Net], float], trips: int, step: float
) -> float | None:
    """The part of the step time that the gradient loops of a pair lose one iteration at a time.

    A large elementwise op keeps all cores busy by itself, so half as much is lost while such run.

    Args:
      pair: the loop pair.
      seconds: estimated time of one run of an op of a Net.
      trips: iterations of the loops.
      step: estimated time of the whole step.

    Returns:
      An estimate; None where such ops take less than half of an iteration.
    """
    whole = wide = 0.0
    for gradient in pair.gradients:
        body = gradient.loop.body
        for op in body.ops:
            taken = seconds(op, body)
            known = facts(op)
            elementwise = known is not None and known.work not in (Work.PRODUCT, Work.NONE)
            whole += taken
            wide += taken if elementwise and taken > WIDE_SECONDS else 0.0
    if not step or wide < whole / 2:
        return None
    return ONE_BY_ONE * trips * (whole - wide / 2) / step


def one_by_one_where_cheap(plan: Plan, lost: Sequence[float | None]) -> Plan:
    """The plan with one iteration at a time in loops that lose little, two in the others.

    Args:
      plan: its loops are those of the pairs that ``lost`` tells of.
      lost: of each pair, what `lost_one_by_one` gives.
    """
    loops: list[LoopPlan] = []
    slowdown = plan.slowdown
    for loop, part in zip(plan.loops, lost, strict=True):
        loops += _with_parallel_iterations([loop], OVERLAPPING if part is None else 1)
        slowdown += 0.0 if part is None or loop.closed else part
    return dataclasses.replace(plan, loops=tuple(loops), slowdown=slowdown)


def _with_parallel_iterations(
    loops: Iterable[LoopPlan], parallel_iterations: int
) -> tuple[LoopPlan, ...]:
    return tuple(
        loop
        if loop.closed
        else dataclasses.replace(
            loop,
            parallel_iterations=_parallel_iterations_of(loop, parallel_iterations),
            inner=_with_parallel_iterations(loop.inner, parallel_iterations),
        )
        for loop in loops
    )


def _parallel_iterations_of(loop: LoopPlan, parallel_iterations: int) -> int:
    """Copies come back from the host while the iteration before is still under way."""
    return max(parallel_iterations, OVERLAPPING) if loop.keeps_by(OFFLOAD) else parallel_iterations
