"""Sizes of a loop's variables that grow by as many in each iteration.

    seen [1, 8] ─► While, 100 iterations: ConcatV2(seen, h [1, 8]) ─► [101, 8]

Where sizes compare plans and nothing else, all iterations are taken for the middle one: what a list
keeps of all of them then has as many bytes as it will have, and their times add up to the loop's.
What counts the iterations has the value that it has there, so that ``x[i * n : (i + 1) * n]`` and
``x[:i]`` have sizes, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnnmem.analysis.facts import Fact
from rnnmem.ir.graph import static

Growth = tuple[int, ...]
"""What an iteration adds to each size of a variable."""


def growths(starts: Sequence[Fact], ends: Sequence[Fact], trips: int) -> dict[int, Growth]:
    """What an iteration adds to the sizes of variables that are larger or smaller behind it.

    Args:
      starts: what is known of each variable before an iteration.
      ends: the same behind it.
      trips: iterations of the loop.

    Returns:
      By variable; without those some of whose sizes are not known, or would be negative in the end.
    """
    found = {}
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        before, behind = static(start.shape), static(end.shape)
        if before is None or behind is None or before == behind or len(before) != len(behind):
            continue
        growth = tuple(b - a for a, b in zip(before, behind, strict=True))
        if all(a + trips * one >= 0 for a, one in zip(before, growth, strict=True)):
            found[index] = growth
    return found


def sizes_after(start: Fact, growth: Growth, iterations: int) -> Fact:
    """A variable with the sizes that it has behind so many iterations."""
    pairs = zip(static(start.shape) or (), growth, strict=True)
    return dataclasses.replace(start, shape=tuple(a + iterations * one for a, one in pairs))


def middle(trips: int) -> int:
    """The iterations before the one that all are taken for."""
    return (trips - 1) // 2
