"""The size and the plan of most examples a second under a limit of memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from rnnmem.planning.plan import Plan
from rnnmem.sizes import MIB
from rnnmem.tables import plain_text, table_of

BEHIND = 0.9
"""The part of the best throughput below which larger sizes are not worth a try, twice in turn."""
STEPS = 0.5, 0.25
"""Powers of two, up and down from the best size, that are tried once it is known."""
FINAL = 3
"""Sizes that are timed again, in turn, before one is chosen."""


@dataclasses.dataclass(frozen=True)
class SizeTrial:
    """A size that ran within the limit.

    Attributes:
      size: what ``make_args`` was given.
      seconds: of a step, the median.
      peak_bytes: above the resident state; None where TensorFlow counts no memory.
      plan: the plan that ran; None where ``fn`` is not optimised.
    """

    size: int
    seconds: float
    peak_bytes: int | None
    plan: Plan | None

    @property
    def rate(self) -> float:
        """Examples a second, where a size is a number of examples."""
        return self.size / self.seconds


@dataclasses.dataclass(frozen=True)
class Throughput:
    """What ``rnnmem.largest(..., goal="throughput")`` found; ``print`` it.

    Attributes:
      best: the trial of most examples a second.
      tried: all sizes that ran, ascending.
    """

    best: SizeTrial
    tried: tuple[SizeTrial, ...]

    @property
    def size(self) -> int:
        """The size to take."""
        return self.best.size

    @property
    def plan(self) -> Plan | None:
        """The plan that ran at that size, for ``rnnmem.optimize(fn, plan=...)``."""
        return self.best.plan

    @property
    def examples_per_second(self) -> float:
        """At that size."""
        return self.best.rate

    def __str__(self) -> str:
        """A table of the sizes that ran, the best one marked."""
        numbers = ("size", "a second", "step", "peak", "estimated time")
        table = table_of((*numbers, ""), numbers)
        for one in self.tried:
            peak = "?" if one.peak_bytes is None else f"{one.peak_bytes / MIB:.1f} MiB"
            table.add_row(
                str(one.size),
                f"{one.rate:.1f}",
                f"{one.seconds:.3f} s",
                peak,
                "" if one.plan is None else f"{one.plan.slowdown:.2f}x",
                "<- best" if one is self.best else "",
            )
        return plain_text([table]).rstrip("\n")


def most_examples(
    low: int, high: int, attempt: Callable[[int], SizeTrial | None]
) -> Throughput | None:
    """Looks for the size of most examples a second: doubling, then around the best one.

    Args:
      low: the smallest size.
      high: the largest.
      attempt: runs a size and times it, each time anew; None: it does not fit.

    Returns:
      What was found; None where not even ``low`` fits.
    """
    tried: dict[int, SizeTrial | None] = {}

    def best() -> SizeTrial:
        return max((one for one in tried.values() if one is not None), key=lambda one: one.rate)

    size, behind = low, 0
    while size <= high and behind < 2:
        one = tried[size] = attempt(size)
        if one is None:
            break
        behind = behind + 1 if one.rate < BEHIND * best().rate else 0
        size = min(high, 2 * size) if size < high else high + 1
    if tried[low] is None:
        return None
    for step in STEPS:
        around = best().size
        for power in (step, -step):
            size = max(low, min(high, math.floor(around * 2**power)))
            if size not in tried:
                tried[size] = attempt(size)
    ran = {size: one for size, one in tried.items() if one is not None}
    for size in sorted(ran, key=lambda size: -ran[size].rate)[:FINAL]:
        again = attempt(size)
        if again is not None:  # the slower of two: of several sizes, one that was lucky would win
            ran[size] = max(ran[size], again, key=lambda one: one.seconds)
    return Throughput(
        max(ran.values(), key=lambda one: one.rate), tuple(ran[size] for size in sorted(ran))
    )
