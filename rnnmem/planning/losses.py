"""The plan of a function whose softmax losses may run by chunks: with them or without."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnnmem.errors import BudgetError
from rnnmem.ir.graph import Net
from rnnmem.passes.chunked_loss.decision import ChunkedLoss
from rnnmem.planning.choice import NEGLIGIBLE, least_of
from rnnmem.planning.options import Options
from rnnmem.planning.plan import Plan
from rnnmem.planning.search import Search, decide
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
    for one in searches:
        try:
            found.append((one, *decide(one, options)))
        except BudgetError as error:
            failed.append(error)
    if not found:
        raise least_of(failed)
    search, plan, rewritten = _better(found, options) if len(found) == 2 else found[0]
    if search.losses and rewritten is not None:
        return search, dataclasses.replace(plan, notes=(*plan.notes, _SUMS)), rewritten
    search, plan, rewritten = found[0]
    closed = all_closed(searches[-1].losses, _NO_GAIN)
    return search, plan.having(chunked_loss=closed), rewritten


def all_closed(losses: Sequence[ChunkedLoss], reason: str) -> tuple[ChunkedLoss, ...]:
    """The losses, none of which runs by chunks."""
    return tuple(dataclasses.replace(one, closed=one.closed or reason) for one in losses)


def _better(found: Sequence[Found], options: Options) -> Found:
    """Of the plan without and the one with chunks: the smaller, or within a budget the faster."""
    (_, plain, _), (_, cut, rewritten) = found
    if rewritten is None:
        return found[0]
    if options.budget is not None:
        unknown = None in (plain.predicted_peak, cut.predicted_peak)
        return found[1] if unknown or cut.slowdown < plain.slowdown else found[0]
    whole, by_chunks = _alive(found[0]), _alive(found[1])
    if whole is None or by_chunks is None:
        return found[1]
    # Where the peak is elsewhere, as predicted, whole logits still stand in the way of it.
    return found[1] if by_chunks <= whole + NEGLIGIBLE else found[0]


def _alive(found: Found) -> int | None:
    """Most bytes alive at once, as simulated; how they lie in memory is left to chance."""
    one, _, rewritten = found
    return simulate(one.net if rewritten is None else rewritten).peak_bytes
