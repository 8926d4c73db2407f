"""Plans whose measured time is within the bound: step by step along the plans by estimates.

What a plan is estimated to take orders plans well, and may be off as a whole: on another machine,
or where ops are so small that their kernels are not what takes the time. So a plan is run beside
the original, and the next one is planned under the estimate that, by what was measured so far,
takes just the time that is allowed.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

from rnnmem.errors import NotUnderstood
from rnnmem.planning.options import Options
from rnnmem.planning.plan import Plan
from rnnmem.planning.trials import TRIALS, Trial, next_allowed
from rnnmem.tf.timing import StepTimer
from rnnmem.traced import Trace, left_as_it_was, trace_of

SHARE = 0.2
"""Part of the seconds that each of them may run for."""

_TOO_SLOW = (
    "it runs as it was: no plan was measured within max_slowdown={:g} (the fastest took {:.2f}x)"
)
_NOT_TIMED = "its time was not measured: {}"
_TOLD = {"notes": (), "slowdown": 1.0, "calibrated": False}
"""Fields of a plan that decide nothing."""


def within_bound(
    first: Trial,
    bound: float,
    attempt: Callable[[float], Trial | None],
    again: Callable[[Trial], float],
) -> Trial:
    """The plan of the least predicted peak that was measured within the bound, twice.

    Args:
      first: the plan that was made for the bound.
      bound: on the measured factor of step time.
      attempt: plans under another bound on the estimate, and runs that; None: time is over.
      again: measures a plan once more: of several, one that was lucky would be taken.

    Returns:
      That plan; where none is within the bound, the fastest.
    """
    tried = [first]
    while True:
        allowed = next_allowed(tried, bound) if len(tried) < TRIALS else None
        made = None if allowed is None else attempt(allowed)
        if made is not None:
            tried.append(made)
            continue
        good = [one for one in tried if one.fits(bound)]
        if not good:
            return min(tried, key=lambda one: one.measured)
        best = min(good, key=lambda one: (_peak(one.plan), one.measured))
        confirmed = dataclasses.replace(best, measured=again(best))
        if confirmed.fits(bound):
            return confirmed
        tried[tried.index(best)] = confirmed


def _peak(plan: Plan) -> float:
    return float("inf") if plan.predicted_peak is None else plan.predicted_peak


def held_to_bound(
    trace: Trace,
    options: Options,
    where: str,
    call: Callable[[Any], Any],
    inputs: Sequence[Any],
) -> Trace:
    """What runs within the bound on time, as measured beside the original on one call's arguments.

    Variables, tables and the places of iterators are as before afterwards.

    Args:
      trace: what was planned by estimates.
      options: of which ``profile`` says how many seconds there are.
      where: the user's line, in brackets, for warnings.
      call: calls one function or the other.
      inputs: the tensors that stand for the original's inputs in this call, captures last.

    Returns:
      What runs instead; its plan tells what was measured, or why nothing was.
    """
    if trace.gradient_only and trace.untaped is None:
        return trace  # whose gradient is rewritten, which a call does not run
    end = time.perf_counter() + options.profile
    try:
        timer = StepTimer(trace.original, call, inputs)
        return _measured_within(trace, options, where, timer, end)
    except NotUnderstood as reason:
        trace.work.plan = trace.work.plan.noting(_NOT_TIMED.format(reason))
        return trace


def _measured_within(
    trace: Trace, options: Options, where: str, timer: StepTimer, end: float
) -> Trace:
    bound, tried = options.max_slowdown, list[Trial]()

    def measured(made: Trace) -> float:
        if made.work.plan.changes_nothing:
            return 1.0
        return timer.ratio(made.without_tape, SHARE * options.profile)

    def run(allowed: float, made: Trace) -> Trial:
        plan = made.work.plan
        known = (one.measured for one in tried if _same(one.plan, plan))
        ratio = next(known, None)
        tried.append(Trial(allowed, plan, measured(made) if ratio is None else ratio, made))
        return tried[-1]

    def attempt(allowed: float) -> Trial | None:
        if time.perf_counter() > end:
            return None
        other = dataclasses.replace(options, max_slowdown=allowed)
        return run(allowed, trace_of(trace.original, other, where, trace.work.given))

    first = run(bound, trace)
    best = within_bound(first, bound, attempt, lambda one: measured(one.made))
    rewritten = [one.measured for one in tried if not one.plan.changes_nothing]
    if rewritten and (best.plan.changes_nothing or not best.fits(bound)):
        reason = _TOO_SLOW.format(bound, min(rewritten))
        return left_as_it_was(trace.original, options, where, reason)
    work = best.made.work
    work.plan = dataclasses.replace(work.plan, measured_slowdown=best.measured)
    return best.made


def _same(plan: Plan, other: Plan) -> bool:
    """Whether two plans decide the same."""
    return plan.to_data() | _TOLD == other.to_data() | _TOLD
