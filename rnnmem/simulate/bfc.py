"""What TensorFlow's allocator hands out for a run of allocations: whole chunks.

A request takes the smallest free chunk that is large enough, whole, unless half of it (or 128 MiB)
would be left over; freed neighbours become one chunk again. So a step may have in use up to twice
what it asked for, as the free chunks happen to lie, and that is what its memory statistics count.

Source: TensorFlow's ``bfc_allocator.cc`` (best fit with coalescing, a simple form of Doug Lea's
malloc); regions start at 2 MiB and double.
"""

from __future__ import annotations

import dataclasses
import math
import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import add
from typing import Protocol

from rnnmem.analysis.machine import (
    ARENAS,
    FIRST_REGION,
    GRANULE,
    LARGEST_LEFT,
    LARGEST_LOSS,
    LONGEST_LOG,
    MOST_ARENAS,
    ONE_BY_ONE,
)

ADDRESS = 48
"""Bits of an address."""
_LOW = (1 << ADDRESS) - 1


class Holder(Protocol):
    """What memory is booked for."""

    bytes: int


class Allocator:
    """Chunks in use and free; nothing runs oftener, so each request is one function.

    A chunk is a number, its size and behind it its address, so that of a sorted list of free chunks
    the first that is large enough is the one to take.
    """

    def __init__(self, region: int = FIRST_REGION, kept: int = 0):
        """Regions double from ``region`` bytes on; of each others keep ``kept`` in front."""
        self.in_use = 0
        self._free: list[int] = []  # smallest first
        self._starts: dict[int, int] = {}  # where a free chunk starts -> the chunk
        self._ends: dict[int, int] = {}  # where one ends -> the chunk
        self._region = region
        self._kept = kept
        self._end = 0

    def take(self, size: int) -> int:
        """A chunk of at least that many bytes, a multiple of 256."""
        free = self._free
        place = bisect_left(free, size << ADDRESS)
        if place == len(free):
            self._extend(size)
            place = bisect_left(free, size << ADDRESS)
        chunk = free.pop(place)
        given, address = chunk >> ADDRESS, chunk & _LOW
        del self._starts[address]
        if given >= 2 * size or given - size >= LARGEST_LOSS:
            start = address + size
            rest = (given - size) << ADDRESS | start
            free.insert(bisect_left(free, rest, 0, place), rest)
            self._starts[start] = self._ends[address + given] = rest
            self.in_use += size
            return size << ADDRESS | address
        del self._ends[address + given]
        self.in_use += given
        return chunk

    def give(self, chunk: int) -> None:
        """Frees a chunk."""
        free = self._free
        size, start = chunk >> ADDRESS, chunk & _LOW
        self.in_use -= size
        end = start + size
        if end in self._starts:
            after = self._starts.pop(end)
            del free[bisect_left(free, after)]
            end += after >> ADDRESS
        if start in self._ends:
            before = self._ends.pop(start)
            del free[bisect_left(free, before)]
            start = before & _LOW
        chunk = (end - start) << ADDRESS | start
        free.insert(bisect_left(free, chunk), chunk)
        self._starts[start] = self._ends[end] = chunk

    def _extend(self, size: int) -> None:
        grown = False
        while size > self._region - self._kept:
            self._region *= 2
            grown = True
        start, end = self._end + self._kept, self._end + self._region
        self._end = end + 1  # regions are no neighbours
        chunk = (end - start) << ADDRESS | start
        self._free.insert(bisect_left(self._free, chunk), chunk)
        self._starts[start] = self._ends[end] = chunk
        if not grown:
            self._region *= 2


def counted_peak(
    log: Sequence[tuple[Holder, int, int]],
    peak: int,
    limit: float = math.inf,
    is_worst: bool = False,
) -> int:
    """The peak that memory statistics would show, for a run of this log.

    How chunks lie depends on everything that ran before, so the run is laid into some arenas that
    random allocations have broken up, and the worst is taken.

    Args:
      log: ``(holder, change of its bytes, bytes alive then)`` in order, as an Account writes it; a
        holder has an attribute ``bytes``, of one buffer.
      peak: the most bytes alive.
      limit: from which on nobody asks how high the peak is; it may be higher than is said then.
      is_worst: whether it is laid into more of them, one in whose regions others keep a little
        among them: no buffer as large as half a region is split off it then.
    """
    asked = _asked(log)
    wanted = asked.requests[: asked.last_of_more(peak)]
    worst = asked.first
    for arena in _bad_arenas() if is_worst else _arenas(ARENAS):
        used = _laid_out(wanted, arena, limit)
        worst = max(worst, max(map(add, used, asked.beside), default=0))
        if worst >= limit:
            break
    return worst


def _arenas(count: int) -> Iterator[Allocator]:
    """Arenas that random allocations have broken up."""
    return (_broken_up(random.Random(seed)) for seed in range(count))


def _bad_arenas() -> Iterator[Allocator]:
    yield from _arenas(MOST_ARENAS)
    yield Allocator(kept=GRANULE)


def least_peak(log: Sequence[tuple[Holder, int, int]], peak: int) -> int:
    """The least peak that memory statistics would show, for a run of this log.

    Small chunks that fit may be at hand, left by what ran before; of large ones the arena that lays
    them out best counts, of those that are broken up, one that nothing has run in, and one in which
    something larger has.

    Args:
      log: as `counted_peak` has it.
      peak: the most bytes alive.
    """
    asked = _asked(log)
    if max(asked.requests, default=0) < LARGEST_LEFT:
        return peak
    arenas = (Allocator(), Allocator(4 * peak), *_arenas(MOST_ARENAS))
    return min(_with_large_losses(asked, allocator) for allocator in arenas)


def _with_large_losses(asked: _Asked, allocator: Allocator) -> int:
    """The most bytes in use, where small chunks are no larger than what was asked for."""
    live, most = 0, asked.first
    held: list[tuple[int, int]] = []  # chunk, bytes that it counts
    for request, beside in zip(asked.requests, asked.beside, strict=True):
        if request > 0:
            chunk = allocator.take(request)
            counted = chunk >> ADDRESS if request >= LARGEST_LEFT else request
            held.append((chunk, counted))
            live += counted
        else:
            chunk, counted = held[~request]
            allocator.give(chunk)
            held.append((0, 0))
            live -= counted
        most = max(most, live + beside)
    return most


def in_use(log: Sequence[tuple[Holder, int, int]]) -> list[int]:
    """Bytes in use after each entry of a log, in the arena where the most are.

    The most of them is `counted_peak`; what is not laid out of a long run has what it asked for.
    """
    asked = _asked(log)
    used = max(
        (_laid_out(asked.requests, arena) for arena in _arenas(ARENAS)),
        key=lambda use: max(map(add, use, asked.beside), default=0),
    )
    return [
        (used[end - 1] if end else 0) + live
        for end, live in zip(asked.ends, asked.live, strict=True)
    ]


@dataclasses.dataclass(frozen=True)
class _Asked:
    """What the allocator is asked in a run; of a long one, what is small is counted beside that.

    Attributes:
      requests: bytes to take; or the inverse of a number, to give what the request of that number
        took.
      beside: the most bytes of small buffers that are alive from each request to the next.
      first: the same before the first request.
      ends: how many requests there are up to the end of each entry of the log.
      live: the bytes of small buffers that are alive then.
    """

    requests: list[int]
    beside: list[int]
    first: int
    ends: list[int]
    live: list[int]

    def last_of_more(self, peak: int) -> int:
        """Requests behind which less is in use than that, for no chunk is twice what was asked."""
        asked = last = 0
        for place, (request, beside) in enumerate(zip(self.requests, self.beside, strict=True), 1):
            asked += request if request > 0 else -self.requests[~request]
            if 2 * asked + beside > peak:
                last = place
        return last


def _asked(log: Sequence[tuple[Holder, int, int]]) -> _Asked:
    """What a log asks the allocator for."""
    small = _least_laid_out(log)
    found: list[int] = []
    most, ends, alive, live = [0], [], [], 0
    held: dict[int, list[int]] = {}
    for holder, change, _ in log:
        if holder.bytes < small:
            live += change
            most[-1] = max(most[-1], live)
        else:
            mine = held.setdefault(id(holder), [])
            start = len(found)
            if change > 0:
                found += _sizes(change, holder.bytes)
                mine += range(start, len(found))
            while change < 0 and mine:
                number = mine.pop()
                change += found[number]
                found.append(~number)
            most += [live] * (len(found) - start)
        ends.append(len(found))
        alive.append(live)
    return _Asked(found, most[1:], most[0], ends, alive)


def _least_laid_out(log: Sequence[tuple[Holder, int, int]]) -> int:
    """The size from which on the buffers of a log are laid out: of a short one all are."""
    if len(log) <= LONGEST_LOG:
        return 0
    sizes = sorted((holder.bytes for holder, _, _ in log), reverse=True)
    return sizes[LONGEST_LOG] + 1


def _laid_out(requests: Sequence[int], allocator: Allocator, limit: float = math.inf) -> list[int]:
    """Bytes in use above what was in use before, after each request up to one with the limit."""
    take, give = allocator.take, allocator.give
    before = allocator.in_use
    used: list[int] = []
    chunks: list[int] = []
    for request in requests:
        if request > 0:
            chunks.append(take(request))
            used.append(allocator.in_use - before)
            if used[-1] >= limit:
                break
        else:
            give(chunks[~request])
            chunks.append(0)
            used.append(allocator.in_use - before)
    return used


def _broken_up(random: random.Random) -> Allocator:
    """An arena in which chunks of all sizes up to a MiB are in use and free."""
    allocator = Allocator()
    steps = math.log2(LARGEST_LEFT // GRANULE)
    chunks = [allocator.take(GRANULE * int(2 ** random.uniform(0, steps))) for _ in range(60)]
    random.shuffle(chunks)
    for chunk in chunks[:40]:
        allocator.give(chunk)
    return allocator


def _sizes(change: int, size: int) -> list[int]:
    count = change // size if size else 1
    return [size] * count if 0 < count <= ONE_BY_ONE else [change]
