"""Where large buffers of a function that was compiled take turns."""

from __future__ import annotations

import dataclasses
import math

from rnnmem.compiled import Compiled, Target, waits_for_gradient
from rnnmem.ir.graph import Net
from rnnmem.passes.schedule.apply import with_edges
from rnnmem.planning.choice import budget_for
from rnnmem.planning.intervals import SEEN
from rnnmem.planning.plan import Plan
from rnnmem.planning.saved import of_this_function
from rnnmem.planning.scheduling_edges import (
    predicted_peak,
    time_of_edges,
    with_edges_where_they_pay,
)


def in_turns(made: Compiled, target: Target) -> Compiled:
    """The same, with large buffers taking turns where that pays."""
    net, plan, options = made.net, made.plan, target.options
    if made.search is None or target.differentiated or not may_take_turns(net, target):
        return made
    base = net if made.rewritten is None else made.rewritten
    if options.plan is None:
        bound = options.max_slowdown
        if options.budget is not None and _is_above(plan, options.budget):
            bound = math.inf  # it fits only in turns
        setting = made.search.setting
        found, ordered = with_edges_where_they_pay(base, plan, setting, bound)
        if ordered is None:
            return made
        untold = plan.predicted_peak is None and setting.sizes is not None
        plan = found.noting(SEEN) if untold else found
    else:
        with of_this_function():
            ordered = with_edges(base, options.plan.scheduling_edges)
        setting, original = made.search.setting, plan.original_peak
        if original is None:
            original = predicted_peak(base, setting)
        predicted = predicted_peak(ordered, setting)
        plan = dataclasses.replace(plan, original_peak=original, predicted_peak=predicted)
    return dataclasses.replace(made, plan=plan, rewritten=ordered)


def leaving_time_for_turns(made: Compiled, target: Target) -> Target | None:
    """The target with so much less time as turns take that save much; None: there are none."""
    options = target.options
    fixed = options.plan is not None or options.budget is not None or target.differentiated
    if made.search is None or fixed or not may_take_turns(made.net, target):
        return None
    base = made.net if made.rewritten is None else made.rewritten
    factor = time_of_edges(base, made.plan, made.search.setting)
    return target.within(options.max_slowdown / factor) if factor > 1.0 else None


def may_take_turns(net: Net, target: Target) -> bool:
    """Whether large buffers may take turns.

    XLA sees no control edges; a function whose loops are differentiated later is left alone.
    """
    saved = target.options.plan
    wanted = (
        "scheduling_edges" in target.options.passes
        if saved is None
        else bool(saved.scheduling_edges)
    )
    return wanted and not target.by_xla and not waits_for_gradient(net)


def _is_above(plan: Plan, budget: int) -> bool:
    """Whether more is predicted than may run under a budget."""
    return plan.predicted_peak is not None and budget_for(plan) > budget
