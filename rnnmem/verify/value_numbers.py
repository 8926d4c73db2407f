"""Numbers of values: the same for what is made in the same way, in whichever function."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Iterable

FILL = "fill"
"""The first of a constant's value that is the same number everywhere, which is the second."""


class Table:
    """Numbers of values: the same for what is made in the same way, in whichever function."""

    def __init__(self, joined_sums: frozenset[str] = frozenset()) -> None:
        """Slices' gradients of the ``joined_sums`` are put side by side in the other function."""
        self.joined_sums = joined_sums
        self.sides: dict[int, tuple[int, ...]] = {}
        self._numbers: dict[Hashable, int] = {}
        self.lists: dict[int, frozenset[int]] = {}
        self.optionals: dict[int, tuple[int, ...]] = {}
        self.states: set[int] = set()
        self.sums_of_items: set[int] = set()
        self.as_they_come: dict[tuple[int, ...], int] = {}
        self.zero = self.constant((FILL, 0.0))

    def number(self, *how: Hashable) -> int:
        """The number of what is made so."""
        return self._numbers.setdefault(how, len(self._numbers) + 1)

    def constant(self, value: tuple[Hashable, ...]) -> int:
        """The number of a constant."""
        return self.number("constant", value)

    def state(self, start: int, following: int) -> int:
        """The number of a loop's state."""
        found = self.number("state", start, following)
        self.states.add(found)
        return found

    def list_of(self, elements: frozenset[int]) -> int:
        """The number of a list by the values that are ever put into it."""
        found = self.number("list", elements)
        self.lists[found] = elements
        return found

    def optional_of(self, values: tuple[int, ...]) -> int:
        """The number of an optional that holds these; of none where there are none."""
        found = self.number("optional", values)
        self.optionals[found] = values
        return found

    def elements(self, of: int) -> frozenset[int]:
        """What is ever put into a list."""
        return self.lists.get(of) or frozenset()

    def joined(self, lists: Iterable[int]) -> int:
        """The number of a list that holds what any of them does."""
        return self.list_of(frozenset().union(*map(self.elements, lists)))

    def content(self, of: int) -> frozenset[int]:
        """What is ever put into a list, but for zeros, which are read where an element lacks."""
        return self.elements(of) - {self.zero} or frozenset([self.zero])

    def element(self, of: int) -> int:
        """The number of what a list gives."""
        found = self.content(of)
        return next(iter(found)) if len(found) == 1 else self.number("one of", found)

    def plus(self, one: int, other: int) -> int:
        """The number of a sum of two; a zero takes the sign off another at most."""
        if self.zero in (one, other):
            return other if one == self.zero else one
        return self.number("+", min(one, other), max(one, other))

    def side_by_side(self, parts: Iterable[int]) -> int:
        """The number of slices' gradients side by side; where each stands is proven of the Net."""
        sides = tuple(sorted(parts))
        found = self.number("side by side", sides)
        self.sides[found] = sides
        return found

    def sum_of_items(self, product: int) -> int:
        """The number of the sum over the items of a batched product."""
        found = product if product in self.sums_of_items else self.number("items", product)
        self.sums_of_items.add(found)
        return found

    def accumulated(self, addends: Iterable[int]) -> int:
        """The number of a sum that adds values up as they come: in one order or another."""
        found = tuple(sorted(addends))
        if len(found) < 3:
            return functools.reduce(self.plus, found)
        return self.as_they_come.setdefault(found, self.number("as they come", found))

    def list_sum(self, one: int, other: int) -> int:
        """The number of a list of sums; an element that one list lacks is taken from the other."""
        if not self.elements(one) or not self.elements(other):
            return self.joined([one, other])
        pairs = itertools.product(self.elements(one), self.elements(other))
        return self.list_of(frozenset(self.plus(*pair) for pair in pairs))
