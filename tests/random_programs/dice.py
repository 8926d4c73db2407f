"""Chances: everything about a program is thrown from its seed, in the same way by every Python."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Dice:
    """Throws that depend on nothing but the seed."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)

    def whole(self, low: int, high: int) -> int:
        """A whole number, ``low`` and ``high`` among them."""
        return self._random.randint(low, high)

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def one_of(self, items: Sequence[Item]) -> Item:
        return items[self._random.randrange(len(items))]

    def weighted(self, items: Mapping[Item, float]) -> Item:
        """One of the keys; the values say how likely each is."""
        return self._random.choices(list(items), list(items.values()))[0]

    def some(self, items: Sequence[Item], count: int) -> list[Item]:
        """Up to ``count`` different items, in a thrown order."""
        return self._random.sample(list(items), min(count, len(items)))
