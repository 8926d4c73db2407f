"""The same decisions for a loop pair with segments: states are kept, iterations run again.

What each iteration saves is chosen first; segments then keep it for one segment at a time. Both
axes are weighed together, because every trade of the first has its own best segments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from rnnmem.net.loops import LoopPair
from rnnmem.net.rerun import Rerun, rerun_of
from rnnmem.net.segments import best_growth, best_length
from rnnmem.net.trips import UNKNOWN_TRIPS
from rnnmem.plan import LoopPlan, Segments
from rnnmem.recompute.cut import Step, stored_bytes

LEAST_GAIN = 64 * 1024
"""Bytes below which segments are not worth their bookkeeping."""
FIRST_LENGTH = 8
"""Iterations of the first segment where the trip count is unknown."""


def with_segments(pair: LoopPair, plans: Iterable[LoopPlan], step: Step) -> Iterator[LoopPlan]:
    """The plans of a loop pair, each with its best segments, where these keep less.

    Args:
      pair: the pair; it must stand in the outermost Net.
      plans: what each iteration saves, at several prices of time; none of them closed.
      step: what the choice of a saved set depends on.
    """
    if len(pair.gradients) != 1:
        return
    for plan in plans:
        segments = _best(pair, plan, step)
        if segments is not None:
            yield dataclasses.replace(plan, segments=segments)


def _best(pair: LoopPair, plan: LoopPlan, step: Step) -> Segments | None:
    """The segments that keep least; None where they would keep about as much."""
    asked = (blob for blob in plan.saved if blob not in step.free)
    rerun = rerun_of(pair.forward, asked, step.hoisted, step.never)
    trips = UNKNOWN_TRIPS if plan.trips is None else plan.trips
    saved_bytes = sum(map(step.bytes_kept, rerun.wanted))
    # The start of a segment is kept beside its states.
    state_bytes = sum(stored_bytes(step.body.blobs[blob]) for blob in rerun.states) + 64
    if not saved_bytes or not trips or _are_summed(pair, rerun):
        return None
    if plan.trips is None:
        growth = best_growth(state_bytes, saved_bytes)
        length = max(FIRST_LENGTH, growth)
    else:
        length, growth = best_length(trips, state_bytes, saved_bytes), 0
    segments = Segments(
        length=length,
        growth=growth,
        wanted=rerun.wanted,
        states=rerun.states,
        invariants=rerun.invariants,
        reads=rerun.reads,
        bytes=state_bytes,
        saved_bytes=saved_bytes,
        seconds=sum(step.seconds(step.body.op_by_name[name], step.body) for name in rerun.ops),
    )
    gain = trips * saved_bytes - segments.peak_bytes(trips)
    return segments if gain >= LEAST_GAIN else None


def _are_summed(pair: LoopPair, rerun: Rerun) -> bool:
    """Whether a sum of three or more may add to a state in place: nobody else holds it there."""
    return not pair.forward.sums.addends.isdisjoint(rerun.states)
