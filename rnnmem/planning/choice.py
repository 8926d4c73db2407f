"""Which of several plans to take: what fits in a budget, and what is worth its time."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rnnmem.errors import BudgetError
from rnnmem.passes.registry import AROUND_LOOPS, Kind
from rnnmem.planning.plan import Plan
from rnnmem.sizes import format_bytes

HEADROOM = 0.1
"""Part of a predicted peak that a budget must leave free: chunks and the order of ops vary."""

CHUNK_ROOM = 16 * 1024
"""Bytes, or another such part of a small peak, to leave free beside: chunks left by what ran before
are taken whole."""

SCHEDULE_HEADROOM = 0.5
"""The same of a plan with a schedule over segments: new checkpoints leave holes in memory."""

NOT_WORTH_TIME = 0.01
"""Part of the original's peak that is not worth any time at all."""

STILL_CLOSE = 0.25
"""Part of the least peak that is worth time after all where plenty of it is allowed."""

PLENTY = 2.0
"""The bound on time from which memory is what is wanted."""

CLOSE = 0.02
"""Part of a peak that is not worth more time."""

PER_TIME = 0.25
"""Part of a peak that is not worth more time either, for each part of the time that it takes: one
iteration at a time may save a twentieth and take a third longer."""

NO_TIME = 0.001
"""Part of the step time for which any smaller peak is taken."""

NEGLIGIBLE = 64 * 1024
"""Bytes below which no peak is worth leaving a function as it was."""


def needed_budget(peak: int) -> int:
    """The smallest budget that a plan of this predicted peak may be run under."""
    return _with_room(peak, HEADROOM)


def budget_for(plan: Plan) -> int:
    """The smallest budget that a plan, whose peak was predicted, may be run under."""
    slots = any(loop.segments is not None and loop.segments.slots for loop in plan.every_loop())
    usual = _with_room(_predicted(plan), SCHEDULE_HEADROOM if slots else HEADROOM)
    return max(usual, _with_room(plan.worst_peak or 0, 0.0))


def _predicted(plan: Plan) -> int:
    assert plan.predicted_peak is not None
    return plan.predicted_peak


def _with_room(peak: int, headroom: float) -> int:
    return math.ceil(peak * (1 + headroom) + min(CHUNK_ROOM, HEADROOM * peak))


def cannot_be_met(budget: int, least: Plan, remark: str = "") -> BudgetError:
    """The refusal of a budget.

    Args:
      budget: what was asked for.
      least: the plan that needs least.
      remark: what else there is to say of it; empty: how slow it is.
    """
    smallest, peak = budget_for(least), least.predicted_peak
    remark = remark or f"at about {least.slowdown:.2f}x the step time"
    error = BudgetError(
        f"budget={budget} ({format_bytes(budget)}) cannot be met: the smallest peak above the "
        f"resident state is predicted to be {smallest} bytes ({format_bytes(smallest)}), {remark} "
        f"({format_bytes(peak)} by simulation, and a margin for races); give at least that much, "
        "or a smaller batch"
    )
    error.budget, error.smallest = budget, smallest
    error.of = functools.partial(cannot_be_met, least=least, remark=remark)
    return error


def met_when_asked(refusal: BudgetError, try_within: Callable[[int], None]) -> BudgetError:
    """The same refusal, naming a budget that is met by whoever asks for it.

    Once applied, a plan that is predicted to fit may give way to a larger one, as last bits would
    be others.

    Args:
      refusal: of a budget, by plans that were not applied.
      try_within: makes what would run within a budget, or raises another refusal.
    """
    named = refusal
    while named.smallest is not None:
        try:
            try_within(named.smallest)
            break
        except BudgetError as error:
            if error.smallest is None or error.smallest <= named.smallest:
                break
            named = error
    if named is refusal or named.of is None or refusal.budget is None:
        return refusal
    return named.of(refusal.budget)


def least_held(
    plans: Iterable[Plan], found: Iterable[Plan], at_worst: Callable[[Plan], Plan]
) -> Plan:
    """The plan that may be run under the smallest budget, an op that is held up included.

    Args:
      plans: simulated.
      found: those whose worst peak is known.
      at_worst: finds it.
    """
    least = list(found)
    known = (plan for plan in plans if plan.predicted_peak is not None)
    for plan in sorted(known, key=budget_for):
        if least and budget_for(plan) > min(map(budget_for, least)):
            break
        least.append(at_worst(plan))
    return min(least, key=lambda plan: (budget_for(plan), plan.slowdown))


def least_of(refusals: Sequence[BudgetError]) -> BudgetError:
    """Of several refusals of one budget the one that names the smallest peak."""
    return min(refusals, key=lambda error: math.inf if error.smallest is None else error.smallest)


def bisected(steps: Sequence[Plan], fits: Callable[[Plan], bool]) -> Plan | None:
    """The fastest plan that fits, where few are tried: peaks are taken to fall along the frontier.

    Args:
      steps: plans from the fastest to the smallest.
      fits: whether one stays within the budget.
    """
    if not steps or not fits(steps[-1]):
        return None
    low, high = 0, len(steps) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(steps[middle]) else (middle + 1, high)
    return steps[high]


def rises(plan: Plan) -> bool:
    """Whether more is predicted of a plan than of the original."""
    after, before = plan.predicted_peak, plan.original_peak
    return after is not None and before is not None and after > max(before, NEGLIGIBLE)


def worth_its_time(plans: Sequence[Plan], max_slowdown: float) -> Plan:
    """The fastest of the plans with about the least peak; unknown, the one that keeps least.

    Args:
      plans: all within the bound.
      max_slowdown: the bound on time; the more is allowed, the closer to the least peak it must be.
    """
    known = [plan for plan in plans if None not in (plan.predicted_peak, plan.original_peak)]
    if not known:
        return min(plans, key=kept)
    least = min(known, key=_predicted)
    if least.changes_nothing:
        return least
    free = _free(least)
    if max_slowdown >= PLENTY:
        free = min(free, STILL_CLOSE * _predicted(least))

    def is_close(plan: Plan) -> bool:
        longer = max(1.0, least.slowdown / max(1.0, plan.slowdown))
        spared = _spared(least, longer, max_slowdown)
        if plan.slowdown <= 1.0:
            spared = max(spared, free)
        if rises(plan) and not rises(least):  # it would be taken for no gain at all
            return False
        return _predicted(plan) <= _predicted(least) + spared

    close = [plan for plan in known if is_close(plan) and not plan.changes_nothing]
    fastest = min(plan.slowdown for plan in close)
    as_fast = [plan for plan in close if plan.slowdown <= fastest + NO_TIME]
    return min(as_fast, key=lambda plan: (plan.predicted_peak, plan.slowdown))


def _spared(least: Plan, longer: float, max_slowdown: float) -> float:
    """Bytes above the least peak that are not worth so many times the time of another plan."""
    part = CLOSE if max_slowdown >= PLENTY else CLOSE + PER_TIME * (longer - 1.0)
    return part * _predicted(least)


def not_worth_any(plan: Plan, max_slowdown: float) -> float:
    """The predicted peak from which on `worth_its_time` takes no plan, where it may take this."""
    if None in (plan.predicted_peak, plan.original_peak):
        return math.inf
    return 1 + _predicted(plan) + max(_free(plan), _spared(plan, max_slowdown, max_slowdown))


def _free(plan: Plan) -> float:
    return NOT_WORTH_TIME * (plan.original_peak or 0)


def kept(plan: Plan) -> tuple[int, float]:
    """Bytes that the loops of a plan keep, where unknown sizes are guessed; and its time."""
    return sum(loop.total()[0] for loop in plan.loops), plan.slowdown


def is_smaller(plan: Plan, other: Plan) -> bool:
    """Whether a plan has the smaller predicted peak; where one is unknown, it is not told."""
    return None not in (plan.predicted_peak, other.predicted_peak) and (
        _predicted(plan) < _predicted(other)
    )


def unbeaten(plans: Iterable[Plan], there: Sequence[Plan]) -> list[Plan]:
    """Those of the plans that no other takes less time and memory than, as they are told.

    Args:
      plans: the plans; where no peaks are predicted, what their loops keep is compared.
      there: plans that are told in any case.
    """
    found: list[Plan] = []
    for plan in sorted(plans, key=lambda one: (one.slowdown, one.predicted_peak or 0, *kept(one))):
        if not any(_beats(other, plan) for other in (*there, *found)):
            found.append(plan)
    return found


def _beats(other: Plan, plan: Plan) -> bool:
    """Whether a plan takes no more time and memory than another, to the digits that are told."""
    if round(other.slowdown, 2) > round(plan.slowdown, 2):
        return False
    least, most = other.predicted_peak, plan.predicted_peak
    if least is None and most is None and not other.changes_nothing:
        least, most = kept(other)[0], kept(plan)[0]
    if least is None or most is None:  # of the original it is not known what its loops keep
        return False
    return least <= most or format_bytes(least) == format_bytes(most)


def is_cut(plan: Plan) -> bool:
    """Whether a loop of the plan has segments."""
    return any(loop.segments is not None and not loop.closed for loop in plan.loops)


def tried_in(plan: Plan) -> tuple[tuple[Any, ...], ...]:
    """What the plan was tried with."""
    return tuple(plan.of(one.name) for one in AROUND_LOOPS if one.kind is Kind.TRIED)
