"""The free storages of one kind, and the choice among them."""

from __future__ import annotations

import bisect
import collections
import dataclasses
from collections.abc import Callable, Iterator

from rnnmem.storage.buffers import LiveBuffer

LOOK_AT = 64
"""So many free storages at most are looked at on either side of the wanted size."""
WASTE, LARGE = 256, 2**16
"""A large storage is not given to a blob that is so many times smaller: the next would be new."""


@dataclasses.dataclass(slots=True, eq=False)
class SharedStorage:
    """A storage while the plan is made.

    Attributes:
      live_buffers: that use it, in turn.
      size: the largest of theirs.
      number: of the storage, for a stable choice.
    """

    live_buffers: list[LiveBuffer]
    size: int
    number: int
    free: bool = False
    key: tuple = ()

    def add(self, live_buffer: LiveBuffer) -> None:
        """The unit uses it from now on."""
        self.live_buffers.append(live_buffer)
        self.size = max(self.size, live_buffer.size)
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
        self.sorted: list[tuple[int, int, int, SharedStorage]] = []
        self.near: dict[int, collections.deque[SharedStorage]] = {}
        self.freed = 0

    def give(self, shared_storage: SharedStorage, near: int | None = None) -> None:
        """A storage is free; ``near`` names the chain of ops that frees it."""
        self.freed += 1
        first = -len(shared_storage.live_buffers) if self.by_use else shared_storage.size
        shared_storage.key = (first, -self.freed, shared_storage.number, shared_storage)
        shared_storage.free = True
        bisect.insort(self.sorted, shared_storage.key, key=_key)
        if near is not None:
            self.near.setdefault(near, collections.deque(maxlen=LOOK_AT)).append(shared_storage)

    def take(
        self,
        live_buffer: LiveBuffer,
        may: Callable[[SharedStorage], bool],
        near: tuple[int, ...] = (),
    ) -> SharedStorage | None:
        """Takes the storage that fits the unit best of those that it ``may`` have."""
        best = next(filter(may, self._candidates(live_buffer, near)), None)
        if best is not None:
            del self.sorted[bisect.bisect_left(self.sorted, _key(best.key), key=_key)]
            best.free = False
        return best

    def _candidates(
        self, live_buffer: LiveBuffer, near: tuple[int, ...]
    ) -> Iterator[SharedStorage]:
        """Least growth first, then least waste, then what was freed last."""
        wanted = 0 if self.by_use else bisect.bisect_left(self.sorted, live_buffer.size, key=_size)
        for entry in self.sorted[wanted : wanted + LOOK_AT]:
            if not self.by_use and entry[0] > max(LARGE, WASTE * live_buffer.size):
                break
            if self.level and not self.by_use or self._fits(entry[3], live_buffer):
                yield entry[3]
        if near and len(self.sorted) > wanted + LOOK_AT:
            found = [one for chain in near for one in self.near.get(chain, ()) if one.free]
            yield from sorted(
                (one for one in found if self._fits(one, live_buffer)),
                key=lambda one: self._rank(one, live_buffer),
            )
        if not self.by_use and self.level == 2:
            for entry in reversed(self.sorted[max(0, wanted - LOOK_AT) : wanted]):
                yield entry[3]

    def _fits(self, shared_storage: SharedStorage, live_buffer: LiveBuffer) -> bool:
        if self.by_use or self.level == 2:
            return True
        return (
            shared_storage.size == live_buffer.size
            if self.level == 0
            else shared_storage.size >= live_buffer.size
        )

    def _rank(self, shared_storage: SharedStorage, live_buffer: LiveBuffer) -> tuple:
        if self.by_use:
            return shared_storage.key[:2]
        return (
            max(0, live_buffer.size - shared_storage.size),
            max(0, shared_storage.size - live_buffer.size),
            shared_storage.key[1],
        )


def _key(entry: tuple) -> tuple:
    return entry[:3]


def _size(entry: tuple) -> int:
    return entry[0]
