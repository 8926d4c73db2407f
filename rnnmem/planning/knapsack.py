"""All trades of one loop between bytes and time, and the choice among several loops' trades."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint

from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.solver import milp

_DEAREST = 1e15
"""Bytes per second at which no recomputation is worth its time."""


def frontier(plan_at: Callable[[float], LoopPlan]) -> tuple[LoopPlan, ...]:
    """Every plan that is best at some price of time, fewest bytes first.

    Between two known plans the price at which they tie is tried; a third plan found there divides
    the interval, else there is none between them (Eisner and Severance 1976, "Mathematical
    techniques for efficient record segmentation in large shared databases").

    Args:
      plan_at: the best plan at a price in bytes per second.
    """
    plan_at = functools.lru_cache(maxsize=None)(plan_at)

    def between(small: LoopPlan, fast: LoopPlan) -> list[LoopPlan]:
        (small_bytes, small_seconds), (fast_bytes, fast_seconds) = small.total(), fast.total()
        if small_seconds <= fast_seconds or fast_bytes <= small_bytes:
            return []
        tie = (fast_bytes - small_bytes) / (small_seconds - fast_seconds)
        middle = plan_at(tie)
        line = small_bytes + tie * small_seconds
        gain = line - (middle.total()[0] + tie * middle.total()[1])
        if gain <= 1e-3 * abs(line) or middle in (small, fast):
            return []
        return [*between(small, middle), middle, *between(middle, fast)]

    ends = plan_at(0.0), plan_at(_DEAREST)
    plans = [ends[0], *between(*ends), ends[1]]
    return tuple(dict.fromkeys(plans))


def choose_within(choices: Sequence[Sequence[LoopPlan]], seconds: float) -> tuple[LoopPlan, ...]:
    """One plan of each loop, so that all keep fewest bytes and spend no more time than allowed.

    Args:
      choices: each loop's plans.
      seconds: the time that all loops together may spend again.

    Returns:
      One plan a loop: a multiple-choice knapsack, solved exactly by HiGHS. Where even the fastest
      plans take longer, the fastest.
    """
    if not choices:
        return ()
    costs = [[plan.total() for plan in plans] for plans in choices]
    smallest = [min(range(len(one)), key=one.__getitem__) for one in costs]
    if sum(one[i][1] for one, i in zip(costs, smallest, strict=True)) <= seconds:
        return tuple(plans[i] for plans, i in zip(choices, smallest, strict=True))
    turned = [[(seconds, size) for size, seconds in one] for one in costs]
    fastest = [min(range(len(one)), key=one.__getitem__) for one in turned]
    if sum(one[i][1] for one, i in zip(costs, fastest, strict=True)) > seconds:
        return tuple(plans[i] for plans, i in zip(choices, fastest, strict=True))
    several = [index for index, one in enumerate(costs) if len(one) > 1]
    if len(several) == 1:  # most steps have one loop
        (index,) = several
        others = sum(one[0][1] for i, one in enumerate(costs) if i != index)
        fit = [i for i, (_, spent) in enumerate(costs[index]) if others + spent <= seconds]
        best = min(fit, key=costs[index].__getitem__, default=fastest[index])
        return tuple(own[best if i == index else 0] for i, own in enumerate(choices))
    flat = np.array([pair for one in costs for pair in one], float)
    scale = flat.max(axis=0)
    scale[scale == 0] = 1.0
    owner = np.repeat(np.arange(len(costs)), [len(one) for one in costs])
    one_each = (owner[None, :] == np.arange(len(costs))[:, None]).astype(float)
    result = milp(
        flat[:, 0] / scale[0],
        integrality=np.ones(len(flat)),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(one_each, 1, 1),
            LinearConstraint(flat[None, :, 1] / scale[1], ub=seconds / scale[1]),
        ],
    )
    if result.x is None:
        return tuple(plans[i] for plans, i in zip(choices, fastest, strict=True))
    taken = np.flatnonzero(result.x > 0.5)
    everything = [plan for plans in choices for plan in plans]
    return tuple(everything[i] for i in taken)
