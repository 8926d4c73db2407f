"""Plans step by step along the frontier until what they take is what is allowed.

What a plan is estimated to take where its decisions are made orders plans well, and may be off as a
whole: on another machine, or where ops are so small that kernels are not what takes the time. So
the next plan is made under the estimate that takes just the time that is allowed, by what the last
ones were found to take: by a better estimate, or by the clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rnnmem.planning.plan import Plan

TOLERANCE = 0.02
"""Part of the step time by which a median of some pairs may be above the bound."""
CLOSE = 0.02
"""Part of the step time that is not worth another plan."""
FREE = 0.005
"""Part of the step time that is as good as none."""
GROWTH = 2.0
"""The time that is allowed by estimate grows at most so many times at once."""
MOST = 8.0
"""And at most so many times in all."""
TRIALS = 6
"""Plans that are tried, at most."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """A plan that was tried.

    Attributes:
      allowed: the bound on the estimated factor of step time under which it was planned.
      plan: the decisions.
      measured: factor of step time that it was found to take.
      made: what runs.
    """

    allowed: float
    plan: Plan
    measured: float
    made: Any = None

    def fits(self, bound: float) -> bool:
        """Whether it was measured within a bound on the factor of step time."""
        return self.measured <= bound + TOLERANCE


def next_allowed(tried: Sequence[Trial], bound: float) -> float | None:
    """The bound on the estimate to plan under next; None: there is nothing more to be tried."""
    good = [one for one in tried if one.fits(bound)]
    slow = [one for one in tried if not one.fits(bound)]
    if not slow:
        return _larger(max(good, key=lambda one: one.allowed), bound)
    fastest = min(slow, key=lambda one: one.allowed)
    below = [one for one in good if one.allowed < fastest.allowed]
    if below:
        return _between(max(below, key=lambda one: one.allowed), fastest, bound)
    return None if good else _smaller(fastest, bound)


def _larger(most: Trial, bound: float) -> float | None:
    if most.measured > bound - CLOSE or bound <= 1.0:
        return None
    growth = min(GROWTH, (bound - 1.0) / max(most.measured - 1.0, 1e-9))
    allowed = 1.0 + growth * (most.allowed - 1.0)
    return allowed if allowed - 1.0 <= MOST * (bound - 1.0) else None


def _smaller(slow: Trial, bound: float) -> float | None:
    """By what it took; in the end, plans that take no time by estimate."""
    if min(slow.allowed, slow.plan.slowdown) <= 1.0:
        return None
    allowed = 1.0 + (slow.plan.slowdown - 1.0) * (bound - 1.0) / (slow.measured - 1.0)
    return allowed if 1.0 + FREE < allowed < slow.allowed else 1.0


def _between(good: Trial, slow: Trial, bound: float) -> float | None:
    low, high = max(1.0, min(good.plan.slowdown, good.allowed)), slow.plan.slowdown
    if high - low < CLOSE or good.measured > bound - CLOSE:
        return None
    part = (bound - good.measured) / max(slow.measured - good.measured, 1e-9)
    allowed = low + (high - low) * min(part, 0.9)
    return allowed if good.allowed < allowed < slow.allowed else None
