"""A plan that was saved: whether it is one for this Net, and what applying it makes."""

from __future__ import annotations

from collections.abc import Callable

from rnnmem.analysis.loops import loop_pairs
from rnnmem.errors import NetError, PlanError
from rnnmem.ir.graph import Net
from rnnmem.planning.plan import ChunkedLoss, Plan, Turn
from rnnmem.planning.search import Decision


def saved_decision(
    net: Net,
    plan: Plan,
    chunked: Callable[[tuple[ChunkedLoss, ...]], Net],
    decision: Callable[..., Decision],
) -> Decision:
    """What a saved plan is applied to: the Net, with losses by chunks where the plan says so.

    Args:
      net: the whole step.
      plan: that was saved.
      chunked: the Net with these losses by chunks.
      decision: makes a Decision of a Net and, as ``losses`` and ``beside``, what was done to it.

    Raises:
      PlanError: the plan was made for another function.
    """
    plain = decision(net)
    if all(loss.closed for loss in plan.losses):
        return plain
    try:
        return decision(chunked(plan.losses), losses=plan.losses, beside=plain)
    except (NetError, KeyError, ValueError) as error:
        raise _another(str(error)) from error


def apply_saved(decision: Decision, plan: Plan) -> tuple[Plan, Net | None]:
    """The plan with the peaks that are predicted here, and the rewritten Net; None: unchanged.

    Raises:
      PlanError: the plan was made for another function.
    """
    check_fits(decision.net, plan)
    try:
        return decision.finished(plan)
    except (NetError, KeyError, ValueError) as error:
        raise _another(str(error)) from error


def saved_turns(plan: Plan, apply: Callable[[tuple[Turn, ...]], Net]) -> Net:
    """The Net with the saved plan's control edges.

    Args:
      plan: that was saved.
      apply: adds edges to the Net.

    Raises:
      PlanError: the plan was made for another function.
    """
    try:
        return apply(plan.turns)
    except (NetError, KeyError, ValueError) as error:
        raise _another(str(error)) from error


def check_fits(net: Net, plan: Plan) -> None:
    """Refuses a plan whose loops are not those of the Net.

    What it says of each loop is looked at by the rewrite, and its result by the checker.

    Raises:
      PlanError: names a loop or an op that one has and the other has not.
    """
    here = {pair.path for pair in loop_pairs(net, net, {})}
    there = {loop.path for loop in plan.loops}
    for path in sorted(there - here):
        raise _another(f"it decides on loop {'/'.join(path)!r}, which {net.name} does not have")
    for path in sorted(here - there):
        raise _another(f"it does not decide on loop {'/'.join(path)!r} of {net.name}")
    names = net.op_by_name
    for op in (name for wait in plan.waits for name in wait):
        if op not in names:
            raise _another(f"it lets ops wait for {op!r}, which {net.name} does not have")


def _another(reason: str) -> PlanError:
    return PlanError(
        f"the plan is for another function: {reason}; make one with plan(*args) of this function"
    )
