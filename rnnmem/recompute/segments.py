"""The same decisions for a loop pair with segments: states are kept, iterations run again.

What each iteration saves is chosen first; segments then keep it for one segment at a time. Both
axes are weighed together, because every trade of the first has its own best segments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from rnnmem.net.loops import LoopPair
from rnnmem.net.nouns import Net, Op
from rnnmem.net.rerun import Rerun, rerun_of
from rnnmem.net.segments import best_growth, best_length
from rnnmem.net.trips import UNKNOWN_TRIPS
from rnnmem.plan import LoopPlan, Segments
from rnnmem.recompute.cut import stored_bytes

LEAST_GAIN = 64 * 1024
"""Bytes below which segments are not worth their bookkeeping."""
FIRST_LENGTH = 8
"""Iterations of the first segment where the trip count is unknown."""


def with_segments(
    pair: LoopPair,
    plans: Sequence[LoopPlan],
    free: frozenset[str],
    steady: frozenset[str],
    bytes_kept: Callable[[str], int],
    seconds: Callable[[Op, Net], float],
) -> tuple[LoopPlan, ...]:
    """The plans of a loop pair, and each with its best segments where these keep less.

    Args:
      pair: the pair; it must stand in the outermost Net.
      plans: what each iteration saves, at several prices of time; none of them closed.
      free: blobs that are saved for all iterations whatever is chosen.
      steady: blobs that read a variable which does not change meanwhile.
      bytes_kept: bytes that saving a blob takes per iteration.
      seconds: estimated time of one run of an op.
    """
    if len(pair.gradients) != 1:
        return tuple(plans)
    found = []
    for plan in plans:
        rerun = rerun_of(pair.forward, (blob for blob in plan.saved if blob not in free), steady)
        segments = _best(pair, plan, rerun, bytes_kept, seconds)
        if segments is not None:
            found.append(dataclasses.replace(plan, segments=segments))
    return (*plans, *found)


def _best(
    pair: LoopPair,
    plan: LoopPlan,
    rerun: Rerun,
    bytes_kept: Callable[[str], int],
    seconds: Callable[[Op, Net], float],
) -> Segments | None:
    """The segments that keep least; None where they would keep about as much."""
    body = pair.forward.body
    trips = UNKNOWN_TRIPS if plan.trips is None else plan.trips
    saved_bytes = sum(map(bytes_kept, rerun.wanted))
    # The start of a segment is kept beside its states.
    state_bytes = sum(stored_bytes(body.blobs[blob]) for blob in rerun.states) + 64
    if not rerun.wanted or not saved_bytes or not trips:
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
        seconds=sum(seconds(body.op_by_name[name], body) for name in rerun.ops),
    )
    gain = trips * saved_bytes - segments.peak_bytes(trips)
    return segments if gain >= LEAST_GAIN else None
