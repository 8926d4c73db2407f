"""The same decisions for a loop pair with segments: states are kept, iterations run again.

What each iteration saves is chosen first; segments then keep it for one segment at a time. Both
axes are weighed together, because every trade of the first has its own best segments.

Where time is plenty, not every segment's states are kept either: a binomial schedule over the
segments keeps some, and the gradient goes on from these (Griewank and Walther 2000, "Algorithm 799:
revolve", here over segments and per loop). Where only the run can tell the trip count the schedule
is online (`rnnmem.passes.checkpoint.online`): segments are equal and the slots are as many as they
are, so what is kept does not grow with the loop, and how often iterations run again does.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator

from rnnmem.analysis.held_bytes import stored_bytes
from rnnmem.analysis.loops import Loop, LoopPair
from rnnmem.analysis.replay import Replay, replay_of
from rnnmem.analysis.segment_lengths import best_growth, best_length
from rnnmem.analysis.trip_count import LONG_TRIPS, UNKNOWN_TRIPS
from rnnmem.grappler.summation_order import sums_of
from rnnmem.grappler.summation_races import racing
from rnnmem.ir.op_table import PUSH, SET
from rnnmem.passes.checkpoint.decision import Segments
from rnnmem.passes.checkpoint.schedule import OnlineSchedule, evaluations
from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.passes.rematerialise.min_cut import Step

LEAST_GAIN = 64 * 1024
"""Bytes below which segments are not worth their bookkeeping."""
FIRST_LENGTH = 8
"""Iterations of the first segment where the trip count is unknown."""
LONGEST_WAY = 256
"""Segments up to which an online schedule's way to a segment is the shortest."""
LEAST_TRIPS = 16
"""Iterations below which no schedule over the segments is looked for."""
REPEATS = (1.5, 2.0, 3.0, 4.0)
"""How often iterations may run again on average, with the states of some segments only."""
TAILS = tuple(eighths / 8 for eighths in range(1, 8))
"""Parts of the iterations, the last ones, that are saved as they run."""
LARGEST_TABLE = 2**16
"""Whole numbers that a schedule may have: its loops find their way by a table of them."""
WORTH = 0.9
"""Part of the bytes that running again more often must come down to."""
LONGER = (1.5, 2.0, 3.0)
"""How much longer segments are tried where the peak may lie in another loop."""
HANDED_SECONDS = 1e-6
"""What an iteration spends on each value that goes through the branch for a segment's start."""
PASSED_SECONDS = 3e-7
"""What it spends on each op of that branch where it is not taken, those of loops in it included."""
WAY_OPS, SLOT_OPS = 70, 70
"""Ops that a schedule adds to the branches, the step's own apart; and those of an online one."""


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
            replay = replay_of(pair.forward, segments.wanted, step.hoisted, step.never)
            if _would_be_held(pair, replay, but=()):
                continue  # what goes on to a segment pushes nothing
            for scheduled in with_slots(segments, plan.trips):
                passed = len(replay.ops) + WAY_OPS + (SLOT_OPS if scheduled.online else 0)
                again = scheduled.seconds + PASSED_SECONDS * passed / scheduled.replays
                scheduled = dataclasses.replace(scheduled, seconds=again)
                yield dataclasses.replace(plan, segments=scheduled)


def longer_segments(loops: Iterable[LoopPlan]) -> Iterator[tuple[LoopPlan, ...]]:
    """The same plans of loops with longer segments: fewer states, and more kept of one segment.

    The best length is that of the loop alone; where the peak lies in another loop, all the states
    are there, and nothing of what a segment keeps. Nothing runs again more often.

    Args:
      loops: the plans of a Net's loops.
    """
    loops = tuple(loops)
    stretched = {loop.path: longer for loop in loops if (longer := _stretched(loop))}
    for index in range(len(LONGER) if stretched else 0):
        yield tuple(
            dataclasses.replace(loop, segments=stretched[loop.path][index])
            if loop.path in stretched
            else loop
            for loop in loops
        )


def _stretched(loop: LoopPlan) -> list[Segments]:
    """Longer segments; none where not each has its states, or their number is not known."""
    segments, trips = loop.segments, loop.trips
    if segments is None or trips is None or loop.closed or segments.slots or segments.growth:
        return []
    trips = segments.end or trips
    lengths = (min(trips, round(factor * segments.length)) for factor in LONGER)
    return [dataclasses.replace(segments, length=length) for length in lengths]


def with_tails(plan: LoopPlan, loop: Loop) -> Iterator[LoopPlan]:
    """The same plan where the last iterations save what segments want: faster and larger.

    Args:
      plan: of a loop; its tails are none where not each segment has its states, where only the run
        can tell the trip count, or where a state grows: the last iterations hold most of it then.
      loop: the forward loop.
    """
    segments, trips = plan.segments, plan.trips
    if plan.closed or segments is None or segments.slots or trips is None or trips < LEAST_TRIPS:
        return
    if any(_grows(loop, state) for state in segments.states):
        return
    for part in TAILS:
        end = round((1.0 - part) * trips)
        # Each iteration hands lists and values through one more branch.
        handed = 2 * HANDED_SECONDS * len(segments.wanted) / (1.0 - part)
        shorter = dataclasses.replace(
            segments,
            length=best_length(end, segments.bytes, segments.saved_bytes),
            end=end,
            seconds=segments.seconds + handed,
        )
        yield dataclasses.replace(plan, segments=shorter)


def _grows(loop: Loop, state: str) -> bool:
    """Whether the state's size is known where the loop begins, and not in its iterations."""
    given = loop.op.inputs[loop.body.inputs.index(state)]
    sizes = loop.net.blobs[given].bytes, loop.body.blobs[state].bytes
    return sizes[0] is not None and sizes[1] is None


def with_slots(segments: Segments, trips: int | None) -> Iterator[Segments]:
    """The same segments under schedules that keep the states of some only: slower and smaller.

    Args:
      segments: the best where the states of each are kept.
      trips: iterations of the loop; None where only the run can tell.
    """
    assumed = UNKNOWN_TRIPS if trips is None else trips
    if assumed < LEAST_TRIPS:
        return
    kept = segments.peak_bytes(assumed)
    for again in REPEATS:
        found = _scheduled(trips, segments.bytes, segments.saved_bytes, again)
        if found is None:
            continue
        length, slots, count = found
        scheduled = dataclasses.replace(
            segments,
            length=length,
            growth=0,
            slots=slots,
            count=LONGEST_WAY if trips is None else count,
            replays=_again(count, slots, trips is None),
            online=trips is None,
        )
        if scheduled.peak_bytes(assumed) < WORTH * kept:
            kept = scheduled.peak_bytes(assumed)
            yield scheduled


@functools.lru_cache(maxsize=4096)
def _scheduled(
    trips: int | None, state_bytes: int, saved_bytes: int, again: float
) -> tuple[int, int, int] | None:
    """The schedule that keeps least where an iteration runs again about so often on average.

    Returns:
      ``(length, slots, count)``; None where there is none.
    """
    best = None
    length = 1
    longest = UNKNOWN_TRIPS if trips is None else trips
    while length < longest:
        count = -(-(LONG_TRIPS if trips is None else trips) // length)
        slots = _fewest_slots(count, again)
        table = ((LONGEST_WAY if trips is None else count) + 1) * (slots + 1)
        if trips is None:
            table += slots * (slots + 1)
        if slots < count and table <= LARGEST_TABLE:
            kept = (slots + 1) * state_bytes + length * saved_bytes + 4 * table
            if best is None or kept < best[0]:
                best = kept, length, slots, count
        length += max(1, length // 8)
    return best and best[1:]


@functools.lru_cache(maxsize=4096)
def _again(count: int, slots: int, is_online: bool) -> float:
    """How often a schedule runs each of so many segments again, on average."""
    runs = evaluations(count, slots) + 1
    if is_online:
        schedule = OnlineSchedule(slots)
        for _ in range(count):
            schedule.offer()
        runs = schedule.evaluations()
    return (runs - count) / count


def _fewest_slots(count: int, again: float) -> int:
    """The fewest slots with which ``count`` segments run again ``replays`` times on average."""
    low, high = 1, count
    while low < high:
        middle = (low + high) // 2
        if evaluations(count, middle) + 1 - count <= again * count:
            high = middle
        else:
            low = middle + 1
    return low


def _best(pair: LoopPair, plan: LoopPlan, step: Step) -> Segments | None:
    """The segments that keep least; None where they would keep about as much."""
    asked = (blob for blob in plan.saved if blob not in step.free)
    replay = replay_of(pair.forward, asked, step.hoisted, step.never, step.reading)
    trips = UNKNOWN_TRIPS if plan.trips is None else plan.trips
    encoded = {one.blob: one.bytes for one in plan.encodings}
    saved_bytes = sum(encoded.get(blob) or step.bytes_kept(blob) for blob in replay.wanted)
    # The start of a segment is kept beside its states.
    state_bytes = sum(stored_bytes(step.body.blobs[blob]) for blob in replay.states) + 64
    if (
        not saved_bytes
        or not trips
        or _are_summed(pair, replay)
        or _would_be_held(pair, replay, replay.wanted)
    ):
        return None
    if plan.trips is None:
        growth = best_growth(state_bytes, saved_bytes)
        length = max(FIRST_LENGTH, growth)
    else:
        length, growth = best_length(trips, state_bytes, saved_bytes), 0
    again = (op for op in step.body.ops if op.name in replay.ops)  # in order, as floats are summed
    seconds = sum(step.seconds(op, step.body) for op in again)
    # Both loops hand the states' lists through a branch; the gradient's all that runs again reads.
    handed = (
        3 * len(replay.states) + len(replay.wanted) + len(replay.invariants) + len(replay.reads)
    )
    segments = Segments(
        length=length,
        growth=growth,
        wanted=replay.wanted,
        states=replay.states,
        invariants=replay.invariants,
        reads=replay.reads,
        bytes=state_bytes,
        saved_bytes=saved_bytes,
        seconds=seconds + HANDED_SECONDS * handed,
    )
    gain = trips * saved_bytes - segments.peak_bytes(trips)
    return segments if gain >= LEAST_GAIN else None


def _are_summed(pair: LoopPair, replay: Replay) -> bool:
    """Whether a sum of three or more may add to a state in place: nobody else holds it there."""
    forward = pair.forward
    return bool(racing(forward)) or not sums_of(forward.body).addends.isdisjoint(replay.states)


def _would_be_held(pair: LoopPair, replay: Replay, but: Iterable[str]) -> bool:
    """Whether a sum of three or more adds up a blob that a list keeps in the loop, but not again.

    Running again it would have to be held, and what holds it is not understood there.
    """
    body, addends = pair.forward.body, sums_of(pair.forward.body).addends
    made = {blob for name in replay.ops for blob in body.op_by_name[name].outputs}
    return any(
        reader.type in (PUSH, SET) and reader.name not in replay.ops
        for blob in addends & made - set(but)
        for reader in body.readers.get(blob, ())
    )
