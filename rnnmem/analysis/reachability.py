"""Which op surely comes before which, whatever the threads do.

`HappensBefore` has a bit for each op. Where few of very many ops are asked about,
`HappensBeforeSoFar` has a vector clock for each over a cover of these with chains, each op of a
chain after the one before it. The clock of an op tells for each chain how far it surely has run
when the op starts, so one comparison answers a question (Jagadish 1990, "A compression technique to
materialize transitive closure").

    op     chain  place     clock of d: chain 0 up to place 2, chain 1 up to place 1
    a ─► b ─► d   0: a, b
    c ───────┘    1: c
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rnnmem.ir.order import reached

MOST_CHAINS = 4096
"""Ops beyond that many chains are said to come before nothing: safe, and rare."""


class HappensBeforeSoFar:
    """Follows the ops in order; `advance` must be called for each, from the first.

    Args:
      before: op -> ops that must have run before it starts; all of them have smaller numbers.
      marked: ops that `comes_before` will be asked about.
    """

    def __init__(self, before: Sequence[Sequence[int]], marked: set[int]):
        self.before = before
        self.marked = marked
        self.chain: dict[int, int] = {}
        self.place: dict[int, int] = {}
        self.tails = np.zeros(MOST_CHAINS, np.int32)
        self.chains = 0
        self.left = [0] * len(before)
        for others in before:
            for other in others:
                self.left[other] += 1
        self.clocks: dict[int, np.ndarray] = {}
        self.now = -1
        self.clock = np.zeros(0, np.int32)

    def advance(self) -> int:
        """Goes on to the next op, about which `comes_before` answers from now on."""
        self._leave()
        self.now += 1
        self.clock = self._joined()
        for other in self.before[self.now]:
            self.left[other] -= 1
            if not self.left[other]:
                self.clocks.pop(other, None)
        return self.now

    def comes_before(self, op: int) -> bool:
        """Whether the op has surely run when the present one starts."""
        chain = self.chain.get(op)
        return chain is not None and chain < len(self.clock) and self.clock[chain] >= self.place[op]

    def _joined(self) -> np.ndarray:
        known = [self.clocks[other] for other in self.before[self.now]]
        if not known:
            return np.zeros(0, np.int32)
        longest = max(known, key=len)
        if all(one is longest for one in known):
            return longest
        joined = longest.copy()
        for one in known:
            if one is not longest:
                part = joined[: len(one)]
                np.maximum(part, one, out=part)
        return joined

    def _leave(self) -> None:
        """Stores the clock that those after the present op start from."""
        if self.now < 0:
            return
        clock = self.clock
        if self.now in self.marked and (chain := self._chain()) is not None:
            self.tails[chain] += 1
            self.chain[self.now], self.place[self.now] = chain, int(self.tails[chain])
            grown = np.zeros(max(len(clock), chain + 1), np.int32)
            grown[: len(clock)] = clock
            grown[chain] = self.tails[chain]
            clock = grown
        if self.left[self.now]:
            self.clocks[self.now] = clock

    def _chain(self) -> int | None:
        """A chain whose last op surely comes before the present one; else a new one."""
        for other in self.before[self.now]:
            chain = self.chain.get(other)
            if chain is not None and self.place[other] == self.tails[chain]:
                return chain
        clock = self.clock
        (ended,) = np.nonzero((clock == self.tails[: len(clock)]) & (clock > 0))
        if len(ended):
            return int(ended[0])
        if self.chains == MOST_CHAINS:
            return None
        self.chains += 1
        return self.chains - 1


def all_come_before(
    before: Sequence[Sequence[int]], questions: Sequence[tuple[int, int]]
) -> tuple[int, int] | None:
    """Checks pairs ``(op, later op)``; returns one whose order nothing implies, or None.

    What the clocks do not tell is looked for by walking back, so the answer is exact.
    """
    by_later: dict[int, list[int]] = {}
    for op, later in questions:
        by_later.setdefault(later, []).append(op)
    happens_before = HappensBeforeSoFar(before, {op for op, _ in questions})
    for _ in before:
        later = happens_before.advance()
        for op in by_later.get(later, ()):
            if not happens_before.comes_before(op) and not _walks_back(before, later, op):
                return op, later
    return None


def _walks_back(before: Sequence[Sequence[int]], later: int, op: int) -> bool:
    return op in reached([later], lambda one: (other for other in before[one] if other >= op))


class HappensBefore:
    """The same by a bit for each op: exact, for all ops, and edges may be added on the way."""

    def __init__(self):
        self._bits: list[int] = []  # op -> a bit for each that surely ran before it, and for itself
        self._now = 0

    def begin(self, before: Iterable[int]) -> None:
        """Goes on to the next op, which waits for these."""
        self._now = 0
        for other in before:
            self.wait_for(other)

    def wait_for(self, op: int) -> None:
        """The present op waits for one more."""
        self._now |= self._bits[op]

    def end(self) -> None:
        """All edges of the present op are known."""
        self._bits.append(self._now | 1 << len(self._bits))

    def comes_before(self, op: int, later: int | None = None) -> bool:
        """Whether an op has surely run when a later one starts; None: the present one."""
        return bool((self._now if later is None else self._bits[later]) >> op & 1)


def bits_of_all(following: Sequence[Iterable[int]], order: Iterable[int]) -> list[int]:
    """Op -> a bit for each op that is reached from it, itself among them.

    Args:
      following: op -> ops that stand before it in the order.
      order: of all ops.
    """
    found = [0] * len(following)
    for index in order:
        known = 1 << index
        for other in following[index]:
            known |= found[other]
        found[index] = known
    return found
