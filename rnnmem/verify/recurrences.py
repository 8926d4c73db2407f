"""Solving a loop: from the numbers of its step net to the sequences that its variables run through.

Variables that depend on each other in a circle form one system; a system reads only systems that
are solved before it. Two loops with the same systems run through the same values, whatever else
either of them carries: that is the proof by induction over iterations, done once by construction.

    step net, raw variables          system of h and c               of an accumulator of h
    h' = f(h, c, w)            =>    h = start, f(own 0, own 1, w)
    c' = g(h, c)                     c = start, g(own 0, own 1)
    acc' = push(acc, h)                                              acc = [], push(own 0, h)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rnnmem.verify.expressions import OWN, SYSTEM, VARIABLE, Table


class Solution:
    """What each expression of a step net is, once its loop's variables are known.

    Attributes:
      variables: the number of each loop variable at the start of an iteration.
    """

    def __init__(self, table: Table, level: int, first: int, starts: Sequence[int]):
        """Of a loop whose raw variables have the numbers from ``first`` on."""
        self._table, self._level, self._first, self._starts = table, level, first, starts
        self._final: dict[int, int] = {}
        self._reads: dict[int, int] = {}  # number -> bit mask of the variables that it reads
        self.variables: list[int] = []

    def solve(self, following: Sequence[int]) -> None:
        """Finds the variables, given what each becomes after an iteration."""
        for index in range(len(self._starts)):
            self._reads[self._first + index] = 1 << index
        for group in _groups([self._read_by(number) for number in following]):
            self._solve_group(group, following)
        self.variables = [self._final[self._first + i] for i in range(len(self._starts))]

    def of(self, number: int) -> int:
        """The number of an expression of the step net."""
        if number < self._first:
            return number
        for one in self._open_below((number,)):
            self._final[one] = self._table.remade(one, self._final)
        return self._final[number]

    def _solve_group(self, group: Sequence[int], following: Sequence[int]) -> None:
        table, level = self._table, self._level
        if len(group) == 1 and following[group[0]] == self._first + group[0]:
            self._final[following[group[0]]] = self._starts[group[0]]  # handed on as it is
            return
        raw = [self._first + index for index in group]
        own = [table.make(table.operator(OWN, level, place)) for place in range(len(group))]
        local = dict(zip(raw, own, strict=True))
        mask = sum([1 << index for index in group])
        roots = [following[index] for index in group]
        for one in self._open_below(roots):
            if one in local:
                continue
            if self._reads[one] & mask:
                local[one] = table.remade(one, local, self._final)
            else:
                self._final[one] = table.remade(one, self._final)
        equations = [local.get(root, self._final.get(root, root)) for root in roots]
        if len(group) == 1 and self._stays(equations[0], own[0], self._starts[group[0]]):
            self._final[raw[0]] = self._starts[group[0]]
            return
        starts = [self._starts[index] for index in group]
        system = table.make(table.operator(SYSTEM, level), (*starts, *equations))
        for place, number in enumerate(raw):
            self._final[number] = table.make(table.operator(VARIABLE, level, place), (system,))

    def _stays(self, following: int, own: int, start: int) -> bool:
        return following == own or (
            following == start and not self._table.levels[following] >> self._level & 1
        )

    def _open_below(self, roots: Iterable[int]) -> list[int]:
        return self._table.below(roots, self._first, self._final)

    def _read_by(self, root: int) -> int:
        """Which variables a number reads, as a bit mask."""
        reads, table = self._reads, self._table
        for one in table.below((root,), self._first, reads):
            mask = 0
            for child in table.children[one]:
                mask |= reads.get(child, 0)
            reads[one] = mask
        return reads.get(root, 0)


def _groups(reads: Sequence[int]) -> list[list[int]]:
    """Variables that depend on each other in a circle, each group after those that it reads."""
    reach = [mask | 1 << index for index, mask in enumerate(reads)]
    read_by_others = 0
    for index, mask in enumerate(reads):
        read_by_others |= mask & ~(1 << index)
    for middle in range(len(reach)):
        if read_by_others >> middle & 1:
            through, bit = reach[middle], 1 << middle
            if through == bit:
                continue
            for index, mask in enumerate(reach):
                if mask & bit:
                    reach[index] = mask | through
    groups, grouped = [], 0
    # What a variable reaches holds all that is reached from there, so fewer bits come first.
    for index in sorted(range(len(reach)), key=lambda index: reach[index].bit_count()):
        if not grouped >> index & 1:
            # All that it reaches and that reaches no less is one circle with it.
            group = reach[index] & ~grouped
            grouped |= group
            groups.append(_ones(group))
    return groups


def _ones(mask: int) -> list[int]:
    """The places of the bits that are set, lowest first."""
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found
