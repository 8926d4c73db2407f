"""Which plan to run: the least memory in the time allowed, or the least time in a budget."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from rnnmem.errors import BudgetError
from rnnmem.net.cost import Machine
from rnnmem.net.nouns import Net
from rnnmem.net.shapes import with_known_shapes
from rnnmem.net.timeline import simulate
from rnnmem.options import Options
from rnnmem.plan import Plan
from rnnmem.recompute.planner import plan_net
from rnnmem.sizes import format_bytes

_SLOWDOWNS = (1.0, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, math.inf)
"""Bounds on time that a budget is tried at, one after the other."""


def decide(
    net: Net,
    machine: Machine,
    options: Options,
    apply: Callable[[Plan], Net],
    *,
    compiled: bool = False,
) -> tuple[Plan, Net | None]:
    """The plan for a Net, with its predicted peaks, and what applying it makes.

    Args:
      net: the whole step, inlined.
      machine: what estimates of time assume.
      options: what the user asks for.
      apply: applies a plan to the Net.
      compiled: whether XLA compiles the function: a list in a branch would be copied whole there.

    Returns:
      The plan, and the rewritten Net; None where the plan changes nothing.

    Raises:
      BudgetError: no plan is predicted to stay within the budget; names the smallest peak.
    """
    known = with_known_shapes(net)
    if "recompute" not in options.allow:
        return Plan(notes=("recomputation is not among the means allowed",)), None

    def plan_within(bound: float) -> tuple[Plan, Net | None]:
        segments = "segments" in options.allow and not compiled
        return _finished(plan_net(known, machine, bound, segments=segments), net, apply)

    if options.budget is None:
        return plan_within(options.max_slowdown)
    smallest: int | None = None
    for bound in _SLOWDOWNS:
        plan, rewritten = plan_within(bound)
        peak = plan.predicted_peak
        if peak is None:
            note = "the budget was not held against a prediction: a size is known only at run time"
            if bound == _SLOWDOWNS[-1]:
                return dataclasses.replace(plan, notes=(*plan.notes, note)), rewritten
            continue
        if peak <= options.budget:
            return plan, rewritten
        smallest = peak if smallest is None else min(smallest, peak)
    raise BudgetError(
        f"budget={options.budget} ({format_bytes(options.budget)}) cannot be met: the smallest "
        f"peak above the resident state is predicted to be {smallest} bytes "
        f"({format_bytes(smallest)}); give at least that much, or a smaller batch"
    )


def _finished(plan: Plan, net: Net, apply: Callable[[Plan], Net]) -> tuple[Plan, Net | None]:
    """The plan with the peaks that a simulation predicts, and the rewritten Net."""
    original = simulate(net).peak_bytes if plan.loops else None
    if plan.changes_nothing:
        return dataclasses.replace(plan, original_peak=original, predicted_peak=original), None
    rewritten = apply(plan)
    predicted = simulate(rewritten).peak_bytes
    return dataclasses.replace(plan, original_peak=original, predicted_peak=predicted), rewritten
