"""Between which bytes the peaks of a plan lie: told of the plan that was chosen, and chose none."""

from __future__ import annotations

import dataclasses

from rnnmem.ir.graph import Net
from rnnmem.planning.plan import Plan
from rnnmem.simulate.interval import Interval, peak_interval


def with_intervals(plan: Plan, net: Net, rewritten: Net | None, threads: int) -> Plan:
    """The plan with the intervals of its peaks, where it tells peaks at all.

    Args:
      plan: what was decided.
      net: the function as it was.
      rewritten: what the plan makes of it; None: it is as it was.
      threads: that run its ops side by side.
    """
    before, after = plan.original_peak, plan.predicted_peak
    if before is None and after is None:
        return plan
    original = peak_interval(net, threads)
    changed = original if rewritten is None else peak_interval(rewritten, threads)
    return dataclasses.replace(
        plan,
        original_interval=around(original, before),
        predicted_interval=around(changed, after),
    )


def around(interval: Interval | None, peak: int | None) -> Interval | None:
    """The interval, the peak that plans were compared by within it."""
    if interval is None or peak is None:
        return None
    return min(interval[0], peak), max(interval[1], peak)
