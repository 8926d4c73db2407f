"""Checkpoint schedules over time: how often the steps of a long loop run, in so many slots.

A slot holds the state in front of a step; the state in front of step 0 stands in slot 0. Advancing
over a step counts one evaluation of it, and so does reversing it, which needs the state in front.

Sources. Known length: Griewank and Walther 2000, "Algorithm 799: revolve" (binomial checkpointing).
Length known only at the end: Stumm and Walther 2010, "New algorithms for optimal online
checkpointing", Algorithm I, which is optimal up to ``(slots + 1) * (slots + 2) / 2 - 1`` steps;
from there on Wang, Moin and Iaccarino 2009, "Minimal repetition dynamic checkpointing algorithm for
unsteady adjoint calculation"; whatever it kept is then reversed by revolve, span by span.
"""

from __future__ import annotations

import math

from rnnmem.errors import OptionError
from rnnmem.passes.checkpoint.online import first_levels, first_slots, first_steps, next_slot
from rnnmem.passes.checkpoint.revolve import repetitions


def evaluations(steps: int, slots: int) -> int:
    """The fewest evaluations that reverse ``steps`` steps with ``slots`` slots.

    ``C(t, 1) = t (t + 1) / 2``, ``C(1, m) = 1`` and
    ``C(t, m) = min over y of y + C(t - y, m - 1) + C(y, m)``, in closed form:
    ``t + r t - binomial(m + r, r - 1)`` with the least ``r`` such that
    ``t <= binomial(m + r, r)``.

    Raises:
      OptionError: ``steps`` is below 0 or ``slots`` below 1.
    """
    _check(steps, slots)
    if steps < 2:
        return steps
    again = repetitions(steps, slots)
    return steps + again * steps - math.comb(slots + again, again - 1)


def _check(steps: int, slots: int) -> None:
    for name, value, least in (("steps", steps, 0), ("slots", slots, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise OptionError(f"{name}={value!r} must be an int of at least {least}")


_NO_MORE = (-1, -1)
"""A state that no step of a loop comes to."""


class OnlineSchedule:
    """Decides, while a loop runs whose length nobody knows, which states to keep.

    Call :meth:`offer` in front of every step. Fewer steps than slots run nothing again but what
    reversing takes.

    Args:
      slots: states that may be kept at once, that of step 0 included.

    Raises:
      OptionError: ``slots`` is below 1.
    """

    def __init__(self, slots: int):
        _check(0, slots)
        self.slots = slots
        self.held: dict[int, int] = {}
        """Slot -> the step in front of which its state stands."""
        self.steps = 0
        self._first = first_slots(slots)
        self._next = next(self._first)
        self._levels = first_levels(slots)

    def offer(self) -> int | None:
        """The slot that the state in front of the next step is to be put into; None: into none."""
        slot = None
        if self.steps == self._next[0]:
            slot = self._next[1]
            self._next = next(self._first, _NO_MORE)
        elif self.slots > 1 and self.steps >= first_steps(self.slots):
            held = [self.held[slot] for slot in range(self.slots)]
            slot, self._levels = next_slot(held, self._levels)
        if slot is not None:
            self.held[slot] = self.steps
        self.steps += 1
        return slot

    def evaluations(self) -> int:
        """What running and reversing the steps that were offered so far takes."""
        total, stop, free = self.steps, self.steps, self.slots - len(self.held) + 1
        for first in sorted(self.held.values(), reverse=True):
            total += evaluations(stop - first, free)
            stop, free = first, free + 1
        return total
