"""What is decided on ops outside of loops: regions that run again, and chains by chunks of rows."""

from __future__ import annotations

from collections.abc import Callable

from rnnmem.ir.graph import Net
from rnnmem.passes.registry import BY_NAME
from rnnmem.planning.elementwise_chunks import by_chunks_where_it_pays
from rnnmem.planning.straight_line import Chosen, loops_and_regions, with_regions_where_they_pay

OUTSIDE = ("straight_line", "elementwise_chunks")
"""Passes on ops outside of loops that are decided once the loops are."""


def outside_of_loops(
    net: Net,
    loops: Chosen,
    max_slowdown: float,
    within: Callable[[float], Chosen | None] | None = None,
) -> Chosen:
    """The plan for loops, with what pays outside of them.

    Args:
      net: the function as it was.
      loops: the plan for its loops.
      max_slowdown: the bound on the factor of step time.
      within: the choice for loops under another bound; None: they leave no time.
    """
    setting, best = loops[0].setting, loops
    if "straight_line" in setting.passes and within is not None:
        best = loops_and_regions(net, loops, max_slowdown, within)
    elif "straight_line" in setting.passes:
        best = with_regions_where_they_pay(net, loops, max_slowdown)
    # Rows keep their bits of numbers that the Net tells.
    chunks = BY_NAME["elementwise_chunks"]
    may = chunks.name in setting.passes and setting.keeps_bits(chunks)
    if not may or setting.sizes is not None:
        return best
    others = [] if best is loops or best[1].must_recompute else [loops]
    return by_chunks_where_it_pays(net, [*others, best], max_slowdown)
