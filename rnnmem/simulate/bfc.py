"""What TensorFlow's allocator hands out for a run of allocations: whole chunks.

A request takes the smallest free chunk that is large enough, whole, unless half of it (or 128 MiB)
would be left over; freed neighbours become one chunk again. So a step may have in use up to twice
what it asked for, as the free chunks happen to lie, and that is what its memory statistics count.

Source: TensorFlow's ``bfc_allocator.cc`` (best fit with coalescing, a simple form of Doug Lea's
malloc); regions start at 2 MiB and double.
"""

from __future__ import annotations

import bisect
import random
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
    """Chunks in use and free."""

    def __init__(self):
        self.in_use = 0
        self._free: list[tuple[int, int]] = []  # (size, address), smallest first
        self._at: dict[int, _Chunk] = {}
        self._region = FIRST_REGION
        self._end = 0

    def take(self, size: int) -> _Chunk:
        """A chunk of at least that many bytes, a multiple of 256."""
        place = bisect.bisect_left(self._free, (size, -1))
        if place == len(self._free):
            self._extend(size)
            place = bisect.bisect_left(self._free, (size, -1))
        _, address = self._free.pop(place)
        chunk = self._at[address]
        chunk.free = False
        if chunk.size >= 2 * size or chunk.size - size >= LARGEST_LOSS:
            self._split(chunk, size)
        chunk.asked = size
        self.in_use += chunk.size
        return chunk

    def give(self, chunk: _Chunk) -> None:
        """Frees a chunk."""
        self.in_use -= chunk.size
        after, before = chunk.after, chunk.before
        if after is not None and after.free:
            self._remove(after)
            self._join(chunk, after)
        if before is not None and before.free:
            self._remove(before)
            self._join(before, chunk)
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
        self._at[chunk.address] = chunk
        self._add(chunk)

    def _split(self, chunk: _Chunk, size: int) -> None:
        rest = _Chunk(chunk.address + size, chunk.size - size)
        rest.before, rest.after = chunk, chunk.after
        if chunk.after is not None:
            chunk.after.before = rest
        chunk.after, chunk.size = rest, size
        self._at[rest.address] = rest
        self._add(rest)

    def _join(self, first: _Chunk, second: _Chunk) -> None:
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        del self._at[second.address]

    def _add(self, chunk: _Chunk) -> None:
        chunk.free = True
        bisect.insort(self._free, (chunk.size, chunk.address))

    def _remove(self, chunk: _Chunk) -> None:
        place = bisect.bisect_left(self._free, (chunk.size, chunk.address))
        del self._free[place]


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
    return max((max(_laid_out(log, seed), default=0) for seed in range(ARENAS)), default=peak)


def in_use(log: Sequence[tuple[Holder, int, int]]) -> list[int]:
    """Bytes in use after each entry of a log, in the arena where the most are.

    The most of them is `counted_peak`; a run too long to be laid out has what is alive.
    """
    if len(log) > LONGEST_LOG:
        return [live for _, _, live in log]
    return max(
        (_laid_out(log, seed) for seed in range(ARENAS)), key=lambda use: max(use, default=0)
    )


def _laid_out(log: Sequence[tuple[Holder, int, int]], seed: int) -> list[int]:
    """Bytes in use above what was in use before, after each entry."""
    used = []
    allocator = _broken_up(random.Random(seed))
    before = allocator.in_use
    held: dict[int, list[_Chunk]] = {}
    for holder, change, _ in log:
        mine = held.setdefault(id(holder), [])
        if change > 0:
            mine.extend(map(allocator.take, _sizes(change, holder.bytes)))
        left = -change
        while left > 0 and mine:
            chunk = mine.pop()
            left -= chunk.asked
            allocator.give(chunk)
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
