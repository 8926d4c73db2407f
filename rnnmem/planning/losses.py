"""The plan of a function whose softmax losses may run by chunks: with them or without."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from rnnmem.errors import BudgetError
from rnnmem.ir.graph import Net
from rnnmem.passes.chunked_loss.decision import ChunkedLoss, by_pass
from rnnmem.planning.choice import NEGLIGIBLE, least_of
from rnnmem.planning.decide import decide
from rnnmem.planning.nested import decide_with_nested_steps
from rnnmem.planning.options import Options
from rnnmem.planning.plan import Plan
from rnnmem.planning.search import Search
from rnnmem.simulate.timeline import simulate

_NO_GAIN = "no smaller predicted peak in the time allowed"
_SUMS = "sums over tokens (gradients of weights and biases) are added up in another order"

Found = tuple[Search, Plan, Net | None]
"""The search that was taken, its plan, and the rewritten Net; None: unchanged."""


def decide_with_losses(searches: Sequence[Search], options: Options) -> Found:
    """The plan that the options ask for, with losses by chunks where the peak falls by that.

    Args:
      searches: for the whole step as it is and, where losses can run by chunks, with these.
      options: what the user asks for.

    Raises:
      BudgetError: no plan is predicted to stay within the budget.
    """
    found, failed = [], []
    if (cut := _for_xla(searches, options)) is not None:
        return cut
    if (cut := _no_worse(searches, options)) is not None:
        return cut
    for one in searches:
        try:
            planned = decide(one, options) if one.losses else None
            found.append((one, *planned) if planned else decide_with_nested_steps(one, options))
        except BudgetError as error:
            failed.append(error)
    if not found:
        raise least_of(failed)
    best = functools.reduce(functools.partial(_better, options), found)
    search, plan, rewritten = best
    if search.losses and rewritten is not None:
        return search, _told(plan), rewritten
    search, plan, rewritten = found[0]
    closed = all_closed([loss for one in searches for loss in one.losses], _NO_GAIN)
    return search, plan.having(**by_pass(closed)), rewritten


def _told(plan: Plan) -> Plan:
    notes = (*plan.notes, _SUMS) if plan.sums_by_chunks else plan.notes
    return dataclasses.replace(plan, notes=notes)


def _for_xla(searches: Sequence[Search], options: Options) -> Found | None:
    """The plan with chunks where XLA compiles them, if the time allows it.

    XLA joins chunks without a copy and holds several blobs as large as whole logits; the executor,
    which is what is simulated, copies.
    """
    last = searches[-1]
    if last.setting.keeps_alive or not last.losses:
        return None
    plan, rewritten = decide(last, options)
    return None if rewritten is None else (last, _told(plan), rewritten)


def _no_worse(searches: Sequence[Search], options: Options) -> Found | None:
    """The plan with exact chunks, if these lower the peak beside the loops that it chose.

    None where that has to be weighed: sums by chunks, budgets, unknown sizes, a plan for nothing.
    """
    plain, *cuts = searches
    if len(cuts) != 1 or options.budget is not None or not all(one.exact for one in cuts[0].losses):
        return None
    plan, rewritten = decide(cuts[0], options)
    if rewritten is None or plan.predicted_peak is None:
        return None
    whole = plain.simulated(plan.having(**by_pass(())), plan.predicted_peak)
    if whole.predicted_peak is None or plan.predicted_peak > whole.predicted_peak:
        return None
    return cuts[0], plan, rewritten


def all_closed(losses: Sequence[ChunkedLoss], reason: str) -> tuple[ChunkedLoss, ...]:
    """The losses, none of which runs by chunks."""
    return tuple(dataclasses.replace(one, closed=one.closed or reason) for one in losses)


def _better(options: Options, before: Found, after: Found) -> Found:
    """Of a plan and one with more by chunks: the smaller, or within a budget the faster."""
    (_, plain, _), (_, cut, rewritten) = before, after
    if rewritten is None:
        return before
    if options.budget is not None:
        unknown = None in (plain.predicted_peak, cut.predicted_peak)
        return after if unknown or cut.slowdown < plain.slowdown else before
    whole, by_chunks = _alive(before), _alive(after)
    if whole is None or by_chunks is None:
        return after
    # Where the peak is elsewhere, as predicted, whole logits still stand in the way of it.
    return after if by_chunks <= whole + NEGLIGIBLE else before


def _alive(found: Found) -> int | None:
    """Most bytes alive at once, as simulated; how they lie in memory is left to chance."""
    one, _, rewritten = found
    net = one.net if rewritten is None else rewritten
    return simulate(one.setting.known(net)).peak_bytes
