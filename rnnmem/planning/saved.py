"""A plan that was saved: whether it is one for this Net, and what applying it makes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rnnmem.analysis.branch_pairs import branch_pairs
from rnnmem.analysis.loops import loop_pairs
from rnnmem.errors import NetError, PlanError
from rnnmem.ir.graph import Net
from rnnmem.planning.plan import Plan
from rnnmem.planning.search import Search


@contextlib.contextmanager
def of_this_function() -> Iterator[None]:
    """Where a saved plan is applied: one that does not fit was made for another function.

    Raises:
      PlanError: in place of what a rewrite raises for decisions that it finds no place for.
    """
    try:
        yield
    except (NetError, KeyError, ValueError) as error:
        raise _another(str(error)) from error


def apply_saved(search: Search, plan: Plan) -> tuple[Plan, Net | None]:
    """The plan with the peaks that are predicted here, and the rewritten Net; None: unchanged.

    Raises:
      PlanError: the plan was made for another function.
    """
    check_fits(search.net, plan)
    with of_this_function():
        return search.finished(plan)


def check_fits(net: Net, plan: Plan) -> None:
    """Refuses a plan whose loops are not those of the Net.

    What it says of each loop is looked at by the rewrite, and its result by the checker.

    Raises:
      PlanError: names a loop or an op that one has and the other has not.
    """
    here = {pair.path for pair in loop_pairs(net, net, {})}
    here |= {one.pair.path for one in branch_pairs(net)}
    there = {loop.path for loop in plan.loops}
    for path in sorted(there - here):
        raise _another(f"it decides on loop {'/'.join(path)!r}, which {net.name} does not have")
    for path in sorted(here - there):
        raise _another(f"it does not decide on loop {'/'.join(path)!r} of {net.name}")
    names = net.op_by_name
    for op in (name for wait in plan.start_edges for name in wait):
        if op not in names:
            raise _another(f"it lets ops wait for {op!r}, which {net.name} does not have")


def _another(reason: str) -> PlanError:
    return PlanError(
        f"the plan is for another function: {reason}; make one with plan(*args) of this function"
    )
