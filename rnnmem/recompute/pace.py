"""How many iterations of the rewritten loops may be under way at once.

TensorFlow starts up to ten (``parallel_iterations``), and holds what all of them recompute. Two are
enough to keep a second core at the weight gradients of one iteration while the next one is at its
own; one at a time holds least, and lets cores wait:

    two at once   │chain 3│chain 2│chain 1│          one at a time   │chain 3│──────│chain 2│──────
                          │partial 3│partial 2│ ...                          │part 3│       │part 2│
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from rnnmem.plan import OFFLOAD, OVERLAPPING, LoopPlan, Plan

ONE_BY_ONE = 0.1
"""Part of the step time that is lost one at a time; measured on loops of many kinds, 0 to 0.3."""


def overlapped(plan: Plan) -> Plan:
    """The plan with two iterations under way at once."""
    return dataclasses.replace(plan, loops=_paced(plan.loops, OVERLAPPING))


def one_by_one(plan: Plan) -> Plan:
    """The plan with one iteration at a time, and the time that this takes."""
    if plan.changes_nothing:
        return plan
    return dataclasses.replace(
        plan, loops=_paced(plan.loops, 1), slowdown=plan.slowdown + ONE_BY_ONE
    )


def _paced(loops: Iterable[LoopPlan], in_flight: int) -> tuple[LoopPlan, ...]:
    return tuple(
        loop
        if loop.closed
        else dataclasses.replace(
            loop, in_flight=_pace_of(loop, in_flight), inner=_paced(loop.inner, in_flight)
        )
        for loop in loops
    )


def _pace_of(loop: LoopPlan, in_flight: int) -> int:
    """Copies come back from the host while the iteration before is still under way."""
    return max(in_flight, OVERLAPPING) if loop.keeps_by(OFFLOAD) else in_flight
