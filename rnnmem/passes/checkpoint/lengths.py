"""How long the segments of a loop should be: the trades between peak bytes and running again.

A loop of T iterations keeps ``saved`` bytes an iteration for its gradient. Cut into segments it
keeps one state of ``state`` bytes a segment, and runs one segment at a time again:

    levels (T,)        T saved                                  nothing runs again
    levels (n, L)      n states + L saved                       every iteration runs once more
    levels (n, k, L)   n + k states + L saved                   every iteration runs twice more
    slots m            m states + L saved                       as the binomial schedule says

Sources: Chen et al. 2016, "Training deep nets with sublinear memory cost" (segments of about
sqrt(T)); Griewank and Walther 2000 (binomial schedules), here over whole segments.
"""

from __future__ import annotations

import dataclasses
import functools
import math

from rnnmem.errors import OptionError
from rnnmem.passes.checkpoint.schedule import evaluations

_MOST_LEVELS = 5


@dataclasses.dataclass(frozen=True)
class Segmentation:
    """One way to cut a loop into segments.

    Attributes:
      levels: how many parts each level has, outermost first; the last is the iterations of a
        segment. Their product is at least the loop's iterations.
      slots: states that are kept at once by a binomial schedule over the segments; None where
        nested loops keep the states of every level (``sum(levels[:-1])``).
      peak_bytes: of states and of the saved set of the segment that is run again.
      extra_steps: iterations that run again, on top of the forward run.
      extra_seconds: the time of those.
    """

    levels: tuple[int, ...]
    slots: int | None
    peak_bytes: int
    extra_steps: int
    extra_seconds: float


def segmentations(
    steps: int,
    state_bytes: int,
    saved_bytes: int,
    step_seconds: float,
    *,
    schedules: bool = True,
) -> tuple[Segmentation, ...]:
    """The trades that no other beats in both bytes and time, fastest first.

    Args:
      steps: iterations of the loop.
      state_bytes: of the loop's state, kept once a segment.
      saved_bytes: of what the gradient reads, kept once an iteration of the segment at work.
      step_seconds: of one iteration, forward.
      schedules: whether binomial schedules over the segments are tried too; else nested loops only.

    Raises:
      OptionError: a number is negative, or ``steps`` is no int.
    """
    _check(steps, state_bytes, saved_bytes, step_seconds)
    sizes = _sizes(state_bytes, saved_bytes)
    found = [_segmentation((steps,), None, 0, steps, sizes, step_seconds)]
    for count in _counts(steps):
        length = -(-steps // count)
        for depth in range(1, _MOST_LEVELS):
            levels = (*_factors(count, depth), length)
            if depth > 1 and len(levels) == len(_factors(count, depth - 1)) + 1:
                break
            found.append(_segmentation(levels, None, depth * steps, steps, sizes, step_seconds))
        for slots in _slot_counts(count) if schedules else ():
            again = evaluations(count, slots) + 1 - count
            extra = -(-again * steps // count)
            found.append(_segmentation((count, length), slots, extra, steps, sizes, step_seconds))
    return _undominated(found)


def _check(steps, state_bytes, saved_bytes, step_seconds) -> None:
    if isinstance(steps, bool) or not isinstance(steps, int):
        raise OptionError(f"steps={steps!r} must be an int of at least 0")
    numbers = {
        "steps": steps,
        "state_bytes": state_bytes,
        "saved_bytes": saved_bytes,
        "step_seconds": step_seconds,
    }
    for name, value in numbers.items():
        if not 0 <= value < math.inf:
            raise OptionError(f"{name}={value!r} must be at least 0 and finite")


def _sizes(state_bytes: int, saved_bytes: int) -> tuple[int, int]:
    return max(1, state_bytes), max(1, saved_bytes)


def _counts(steps: int) -> list[int]:
    """Every count of segments that a length gives; about 2 sqrt(steps) of them."""
    counts, length = [], 1
    while length <= steps:
        count = -(-steps // length)
        counts.append(count)
        if count == 1:
            break
        length = -(-steps // (count - 1))
    return counts


@functools.cache
def _factors(count: int, depth: int) -> tuple[int, ...]:
    """At most ``depth`` factors whose product is at least ``count`` and whose sum is least."""
    best = (count,)
    if depth > 1:
        for first in range(2, math.isqrt(count) + 2):
            rest = _factors(-(-count // first), depth - 1)
            if first + sum(rest) < sum(best):
                best = (first, *rest)
    return best


def _slot_counts(count: int) -> list[int]:
    """Slot counts to try: all small ones, then steps of an eighth."""
    slots, tried = 1, []
    while slots < count:
        tried.append(slots)
        slots += max(1, slots // 8)
    return tried


def _segmentation(levels, slots, extra, steps, sizes, step_seconds) -> Segmentation:
    states = sum(levels[:-1]) if slots is None else slots
    return Segmentation(
        levels=levels,
        slots=slots,
        peak_bytes=states * sizes[0] + levels[-1] * sizes[1],
        extra_steps=extra,
        extra_seconds=extra * step_seconds,
    )


def _undominated(found: list[Segmentation]) -> tuple[Segmentation, ...]:
    kept: list[Segmentation] = []
    simple_first = sorted(
        found, key=lambda one: (one.extra_steps, one.peak_bytes, one.slots is not None, one.levels)
    )
    for one in simple_first:
        if not kept or one.peak_bytes < kept[-1].peak_bytes:
            kept.append(one)
    return tuple(kept)
