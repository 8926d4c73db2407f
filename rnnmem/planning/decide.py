"""The plan that the options ask for."""

from __future__ import annotations

from rnnmem.ir.graph import Net
from rnnmem.passes.rematerialise.select import NOT_ALLOWED
from rnnmem.planning.choice import cannot_be_met, needed_budget
from rnnmem.planning.options import Options
from rnnmem.planning.plan import Plan
from rnnmem.planning.search import NO_GAIN, Search


def decide(search: Search, options: Options) -> tuple[Plan, Net | None]:
    """The plan that the options ask for, with its predicted peaks, and what applying it makes.

    Args:
      search: the Net and what may be decided for it.
      options: what the user asks for.

    Returns:
      The plan, and the rewritten Net; None where the plan changes nothing.

    Raises:
      BudgetError: no plan is predicted to stay within the budget; names the smallest peak.
    """
    if not search.setting.in_loops:
        if search.losses:
            return _losses_alone(search, options)
        if options.budget is not None:
            search.unchanged(options.budget)  # raises where the original does not fit
        return search.as_it_was(NOT_ALLOWED), None
    if options.budget is None:
        return search.least_memory(options.max_slowdown)
    return search.least_time(options.budget)


def _losses_alone(search: Search, options: Options) -> tuple[Plan, Net | None]:
    """Chunks of tokens and nothing else.

    Raises:
      BudgetError: that is not predicted to stay within the budget.
    """
    loops = search.closed(NOT_ALLOWED)
    if 1.0 + search.slower > options.max_slowdown and options.budget is None:
        return search.as_it_was(NO_GAIN), None
    notes = (NOT_ALLOWED,) if loops else ()
    plan, rewritten = search.finished(search.with_losses(Plan(loops=loops, notes=notes)))
    peak = plan.predicted_peak
    if options.budget is not None and peak is not None and needed_budget(peak) > options.budget:
        raise cannot_be_met(options.budget, plan)
    return plan, rewritten
