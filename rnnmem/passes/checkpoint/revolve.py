"""Binomial schedules: which states a loop of known length keeps in so many slots.

Source: Griewank and Walther 2000, "Algorithm 799: revolve". Here are the closed forms that both the
counts (`rnnmem.passes.checkpoint.schedule`) and the loops that follow them are made of.
"""

from __future__ import annotations

import math


def repetitions(steps: int, slots: int) -> int:
    """The least ``r`` with ``steps <= binomial(slots + r, r)``: how often a step runs at most."""
    if slots == 1:
        return steps - 1
    again, reach = 0, 1
    while reach < steps:
        again += 1
        reach = reach * (slots + again) // again
    return again


def split(steps: int, slots: int) -> int:
    """How far to advance before the next state is saved, so that no evaluation is wasted.

    Args:
      steps: steps left, at least 2.
      slots: free slots, that of the state which the steps start from included; at least 1.
    """
    if slots == 1:
        return steps - 1
    again = repetitions(steps, slots)
    return min(
        math.comb(slots + again - 1, again - 1),
        steps - math.comb(slots + again - 2, again - 1),
    )


def first_saves(steps: int, slots: int) -> tuple[int, ...]:
    """The steps in front of which states are saved while a loop first goes to its end.

    The state in front of the last step is among them; it is at hand when the gradient begins, and
    takes no slot.
    """
    saves, first = [], 0
    while first < steps:
        saves.append(first)
        left, free = steps - first, slots - len(saves) + 1
        first += split(left, free) if left > 1 else 1
    return tuple(saves)


def split_table(steps: int, slots: int) -> tuple[tuple[int, ...], ...]:
    """:func:`split` as ``[steps left][slots free]``; rows 0 and 1 and column 0 are 1."""
    return tuple(
        tuple(split(left, free) if left > 1 and free else 1 for free in range(slots + 1))
        for left in range(steps + 1)
    )
