"""The free storages of one kind, and the choice among them."""

from __future__ import annotations

import bisect
import collections
import dataclasses
from collections.abc import Callable, Iterator

from rnnmem.storage.units import Unit

LOOK_AT = 64
"""So many free storages at most are looked at on either side of the wanted size."""
WASTE, LARGE = 256, 2**16
"""A large storage is not given to a blob that is so many times smaller: the next would be new."""


@dataclasses.dataclass(slots=True, eq=False)
class Track:
    """A storage while the plan is made.

    Attributes:
      units: that use it, in turn.
      size: the largest of theirs.
      number: of the storage, for a stable choice.
    """

    units: list[Unit]
    size: int
    number: int
    free: bool = False
    key: tuple = ()

    def add(self, unit: Unit) -> None:
        """The unit uses it from now on."""
        self.units.append(unit)
        self.size = max(self.size, unit.size)
        self.free = False


class Pool:
    """Free storages of one kind, sorted by size; those freed last are preferred among equals.

    Args:
      level: 0 takes equal sizes only, 1 those at least as large, 2 also smaller ones, which grow.
      by_use: sizes are not looked at; what is shared by most is preferred.
    """

    def __init__(self, level: int, by_use: bool = False):
        self.level = level
        self.by_use = by_use
        self.sorted: list[tuple[int, int, int, Track]] = []
        self.near: dict[int, collections.deque[Track]] = {}
        self.freed = 0

    def give(self, track: Track, near: int | None = None) -> None:
        """A storage is free; ``near`` names the chain of ops that frees it."""
        self.freed += 1
        first = -len(track.units) if self.by_use else track.size
        track.key = (first, -self.freed, track.number, track)
        track.free = True
        bisect.insort(self.sorted, track.key, key=_key)
        if near is not None:
            self.near.setdefault(near, collections.deque(maxlen=LOOK_AT)).append(track)

    def take(
        self, unit: Unit, may: Callable[[Track], bool], near: tuple[int, ...] = ()
    ) -> Track | None:
        """Takes the storage that fits the unit best of those that it ``may`` have."""
        best = next(filter(may, self._candidates(unit, near)), None)
        if best is not None:
            del self.sorted[bisect.bisect_left(self.sorted, _key(best.key), key=_key)]
            best.free = False
        return best

    def _candidates(self, unit: Unit, near: tuple[int, ...]) -> Iterator[Track]:
        """Least growth first, then least waste, then what was freed last."""
        wanted = 0 if self.by_use else bisect.bisect_left(self.sorted, unit.size, key=_size)
        for entry in self.sorted[wanted : wanted + LOOK_AT]:
            if not self.by_use and entry[0] > max(LARGE, WASTE * unit.size):
                break
            if self.level and not self.by_use or self._fits(entry[3], unit):
                yield entry[3]
        if near and len(self.sorted) > wanted + LOOK_AT:
            found = [one for chain in near for one in self.near.get(chain, ()) if one.free]
            yield from sorted(
                (one for one in found if self._fits(one, unit)),
                key=lambda one: self._rank(one, unit),
            )
        if not self.by_use and self.level == 2:
            for entry in reversed(self.sorted[max(0, wanted - LOOK_AT) : wanted]):
                yield entry[3]

    def _fits(self, track: Track, unit: Unit) -> bool:
        if self.by_use or self.level == 2:
            return True
        return track.size == unit.size if self.level == 0 else track.size >= unit.size

    def _rank(self, track: Track, unit: Unit) -> tuple:
        if self.by_use:
            return track.key[:2]
        return (max(0, unit.size - track.size), max(0, track.size - unit.size), track.key[1])


def _key(entry: tuple) -> tuple:
    return entry[:3]


def _size(entry: tuple) -> int:
    return entry[0]
