"""How much longer iterations of a loop take one at a time than two at once.

Ops are dealt to threads as they become ready (list scheduling: R. L. Graham 1966, "Bounds for
certain multiprocessing anomalies"). A long op shares its work among all threads, and runs alone.
What overlaps is drawn in :mod:`rnnmem.planning.parallel_iterations`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from heapq import heappop, heappush

from rnnmem.analysis.machine import WIDE_SECONDS, seconds_to_pack
from rnnmem.simulate.steps import Program, Step

ITERATIONS = 5
"""Iterations that are looked at where two run at once: the third and the fourth take as long as all
others, as each ran ahead of one, and has one running ahead of it."""
INLINE = 0.5
"""Part of the cheap ops for which no other thread is at hand: TensorFlow runs them in the one that
made them ready. Between all of them and none, as measured on thirteen programs."""


def factor_one_by_one(
    body: Program, seconds: Sequence[float], cheap: Sequence[bool], threads: int
) -> float:
    """The factor of a loop's time with one iteration at a time, by that with two at once.

    Args:
      body: of the loop.
      seconds: of each of its steps.
      cheap: whether each runs at once, in the thread that made it ready.
      threads: that run ops side by side.
    """
    inline = [
        INLINE * one if is_cheap else 0.0 for one, is_cheap in zip(seconds, cheap, strict=True)
    ]
    dealt = [one - other for one, other in zip(seconds, inline, strict=True)]
    ends = _Schedule(body, dealt, threads, ITERATIONS, window=2).run()
    two = sum(inline) + (ends[3] - ends[1]) / 2
    (end,) = _Schedule(body, dealt, threads, 1, window=1).run()
    return max(1.0, (sum(inline) + end) / two) if two > 0.0 else 1.0


def _is_alone(body: Program, step: Step, seconds: float) -> bool:
    """Whether a step is long, and its kernel hands parts of its work to the other threads."""
    shared = not step.inner and 2 * seconds_to_pack(step.op, body.net) <= seconds
    return shared and seconds > WIDE_SECONDS


class _Schedule:
    """Some iterations of a loop's body, on some threads."""

    def __init__(
        self, body: Program, seconds: Sequence[float], threads: int, iterations: int, window: int
    ):
        self.body, self.seconds, self.window = body, seconds, window
        self.alone = [_is_alone(body, *one) for one in zip(body.steps, seconds, strict=True)]
        self.free = [0.0] * threads
        self.ends = [0.0] * iterations
        self.left = [len(body.steps)] * iterations
        self.waits: list[list[int]] = []  # of the iterations that are under way
        self.given: list[list[tuple[int, float]]] = [[] for _ in range(iterations)]
        self.ready: list[tuple[float, int, int]] = []  # heap of (time, iteration, step)
        self.begins = [[0.0] * len(body.steps) for _ in range(iterations)]

    def run(self) -> list[float]:
        """When each iteration and all before it are over."""
        self._open()
        body, ready, steps = self.body, self.ready, self.body.steps
        while ready:
            at, number, index = heappop(ready)
            end = self._end(at, self.seconds[index], self.alone[index])
            for slot in steps[index].outputs:
                self._put(number, slot, end)
                for position in body.handed[slot]:
                    self._hand(number + 1, body.inputs[position], end)
            for follower in body.followers[index]:
                self._release(number, follower, end)
            self.left[number] -= 1
            self.ends[number] = max(self.ends[number], end)
            if not self.left[number]:
                self._open()
        return list(itertools.accumulate(self.ends, max))

    def _end(self, at: float, seconds: float, alone: bool) -> float:
        """When an op is done that may begin at a time, on whatever thread is free then."""
        free = self.free
        if alone:
            end = max(at, *free) + seconds
            free[:] = [end] * len(free)
            return end
        thread = free.index(min(free))
        free[thread] = end = max(at, free[thread]) + seconds
        return end

    def _open(self) -> None:
        """Begins the iterations that may be under way now."""
        while (number := len(self.waits)) < len(self.left):
            before = number - self.window
            if before >= 0 and self.left[before]:
                return
            at = max(self.ends[: max(0, before + 1)], default=0.0)
            self.waits.append(list(self.body.waits))
            for index in self.body.roots:
                heappush(self.ready, (at, number, index))
            for position, slot in enumerate(self.body.inputs):
                constant = position in self.body.invariants or position in self.body.absent
                if constant or not number:
                    self._put(number, slot, at)
            for slot, given in self.given[number]:
                self._put(number, slot, max(at, given))

    def _hand(self, number: int, slot: int, at: float) -> None:
        """Gives the next iteration a value, or keeps it until that one begins."""
        if number < len(self.waits):
            self._put(number, slot, at)
        elif number < len(self.given):
            self.given[number].append((slot, at))

    def _put(self, number: int, slot: int, at: float) -> None:
        for index in self.body.readers[slot]:
            self._release(number, index, at)

    def _release(self, number: int, index: int, at: float) -> None:
        """One of the things that a step waits for is there."""
        begins, waits = self.begins[number], self.waits[number]
        begins[index] = max(begins[index], at)
        waits[index] -= 1
        if not waits[index]:
            heappush(self.ready, (begins[index], number, index))
