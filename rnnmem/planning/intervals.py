"""Between which bytes the peaks of a plan lie: told of the plan that was chosen, and chose none."""

from __future__ import annotations

import dataclasses

from rnnmem.analysis.shapes import KnownNet
from rnnmem.ir.graph import Net
from rnnmem.planning.plan import Plan
from rnnmem.simulate.interval import Interval, peak_interval
from rnnmem.simulate.timeline import counted_peak

SEEN = "peaks are those at the sizes of the first call; the function does not tell them"


def with_intervals(
    plan: Plan, net: Net | KnownNet, rewritten: Net | KnownNet | None, threads: int
) -> Plan:
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


def at_sizes(plan: Plan, net: KnownNet, rewritten: KnownNet | None) -> Plan:
    """The plan with its peaks at the sizes of a call, which its Net does not tell.

    Args:
      plan: what was decided; without a predicted peak.
      net: the function as it was, with what is known in the call.
      rewritten: the same of what the plan makes of it; None: it is as it was.

    Returns:
      The plan as it was where not even the call's sizes tell.
    """
    original = counted_peak(net)
    changed = original if rewritten is None else counted_peak(rewritten)
    if original is None or changed is None:
        return plan
    return dataclasses.replace(
        plan, original_peak=original, predicted_peak=changed, notes=(*plan.notes, SEEN)
    )


def around(interval: Interval | None, peak: int | None) -> Interval | None:
    """The interval, the peak that plans were compared by within it."""
    if interval is None or peak is None:
        return None
    return min(interval[0], peak), max(interval[1], peak)
