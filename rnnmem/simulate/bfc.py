"""What TensorFlow's allocator hands out for a run of allocations: whole chunks.

A request takes the smallest free chunk that is large enough, whole, unless half of it (or 128 MiB)
would be left over; freed neighbours become one chunk again. So a step may have in use up to twice
what it asked for, as the free chunks happen to lie, and that is what its memory statistics count.

Source: TensorFlow's ``bfc_allocator.cc`` (best fit with coalescing, a simple form of Doug Lea's
malloc); regions start at 2 MiB and double.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

from rnnmem.analysis.machine import (
    ARENAS,
    FIRST_REGION,
    GRANULE,
    LARGEST_LOSS,
    LONGEST_LOG,
    ONE_BY_ONE,
)

_ADDRESS = 48
"""Bits of an address."""


class Holder(Protocol):
    """What memory is booked for."""

    bytes: int


class _Chunk:
    __slots__ = ("address", "after", "asked", "before", "free", "size")

    def __init__(self, address: int, size: int):
        self.address = address
        self.asked = 0
        self.size = size
        self.free = False
        self.before: _Chunk | None = None
        self.after: _Chunk | None = None


class Allocator:
    """Chunks in use and free; nothing runs oftener, so each request is one function."""

    def __init__(self):
        self.in_use = 0
        self._free: list[_Chunk] = []
        self._keys: list[int] = []  # of the free chunks: size and address, smallest first
        self._region = FIRST_REGION
        self._end = 0

    def take(self, size: int) -> _Chunk:
        """A chunk of at least that many bytes, a multiple of 256."""
        keys, free = self._keys, self._free
        place = bisect_left(keys, size << _ADDRESS)
        if place == len(keys):
            self._extend(size)
            place = bisect_left(keys, size << _ADDRESS)
        del keys[place]
        chunk = free.pop(place)
        chunk.free = False
        given = chunk.size
        if given >= 2 * size or given - size >= LARGEST_LOSS:
            rest = _Chunk(chunk.address + size, given - size)
            rest.before, rest.after = chunk, chunk.after
            if chunk.after is not None:
                chunk.after.before = rest
            chunk.after, chunk.size = rest, size
            self._add(rest)
            given = size
        chunk.asked = size
        self.in_use += given
        return chunk

    def give(self, chunk: _Chunk) -> None:
        """Frees a chunk."""
        keys, free = self._keys, self._free
        self.in_use -= chunk.size
        after, before = chunk.after, chunk.before
        if after is not None and after.free:
            place = bisect_left(keys, after.size << _ADDRESS | after.address)
            del keys[place], free[place]
            chunk.size += after.size
            chunk.after = after = after.after
            if after is not None:
                after.before = chunk
        if before is not None and before.free:
            place = bisect_left(keys, before.size << _ADDRESS | before.address)
            del keys[place], free[place]
            before.size += chunk.size
            before.after = after = chunk.after
            if after is not None:
                after.before = before
            chunk = before
        self._add(chunk)

    def _extend(self, size: int) -> None:
        grown = False
        while size > self._region:
            self._region *= 2
            grown = True
        chunk = _Chunk(self._end, self._region)
        self._end += self._region + 1  # regions are no neighbours
        if not grown:
            self._region *= 2
        self._add(chunk)

    def _add(self, chunk: _Chunk) -> None:
        chunk.free = True
        key = chunk.size << _ADDRESS | chunk.address
        place = bisect_left(self._keys, key)
        self._keys.insert(place, key)
        self._free.insert(place, chunk)


def counted_peak(log: Sequence[tuple[Holder, int, int]], peak: int) -> int:
    """The peak that memory statistics would show, for a run of this log.

    How chunks lie depends on everything that ran before, so the run is laid into some arenas that
    random allocations have broken up, and the worst is taken.

    Args:
      log: ``(holder, change of its bytes, bytes alive then)`` in order, as an Account writes it; a
        holder has an attribute ``bytes``, of one buffer.
      peak: the most bytes alive; what is said of a run too long to be laid out.
    """
    if len(log) > LONGEST_LOG:
        return peak
    requests, _ = _requests(log)
    wanted = requests[: _last_of_more(requests, peak)]
    return max((max(_laid_out(wanted, seed), default=0) for seed in range(ARENAS)), default=peak)


def in_use(log: Sequence[tuple[Holder, int, int]]) -> list[int]:
    """Bytes in use after each entry of a log, in the arena where the most are.

    The most of them is `counted_peak`; a run too long to be laid out has what is alive.
    """
    if len(log) > LONGEST_LOG:
        return [live for _, _, live in log]
    requests, ends = _requests(log)
    used = max(
        (_laid_out(requests, seed) for seed in range(ARENAS)), key=lambda use: max(use, default=0)
    )
    return [used[end - 1] if end else 0 for end in ends]


def _requests(log: Sequence[tuple[Holder, int, int]]) -> tuple[list[int], list[int]]:
    """What the allocator is asked, and how much of it up to the end of each entry.

    Bytes to take; or the inverse of a number, to give what the request of that number took.
    """
    found: list[int] = []
    ends: list[int] = []
    held: dict[int, list[int]] = {}
    for holder, change, _ in log:
        mine = held.setdefault(id(holder), [])
        if change > 0:
            start = len(found)
            found += _sizes(change, holder.bytes)
            mine += range(start, len(found))
        while change < 0 and mine:
            number = mine.pop()
            change += found[number]
            found.append(~number)
        ends.append(len(found))
    return found, ends


def _last_of_more(requests: Sequence[int], peak: int) -> int:
    """Requests behind which less is in use than that, for no chunk is twice what was asked."""
    asked = last = 0
    for place, request in enumerate(requests, start=1):
        asked += request if request > 0 else -requests[~request]
        if 2 * asked > peak:
            last = place
    return last


def _laid_out(requests: Sequence[int], seed: int) -> list[int]:
    """Bytes in use above what was in use before, after each request."""
    allocator = _broken_up(random.Random(seed))
    take, give = allocator.take, allocator.give
    before = allocator.in_use
    used: list[int] = []
    chunks: list[_Chunk] = []
    for request in requests:
        if request > 0:
            chunk = take(request)
        else:
            chunk = chunks[~request]
            give(chunk)
        chunks.append(chunk)
        used.append(allocator.in_use - before)
    return used


def _broken_up(random: random.Random) -> Allocator:
    """An arena in which chunks of all sizes up to a MiB are in use and free."""
    allocator = Allocator()
    chunks = [allocator.take(GRANULE * int(2 ** random.uniform(0, 12))) for _ in range(60)]
    random.shuffle(chunks)
    for chunk in chunks[:40]:
        allocator.give(chunk)
    return allocator


def _sizes(change: int, size: int) -> list[int]:
    count = change // size if size else 1
    return [size] * count if 0 < count <= ONE_BY_ONE else [change]
