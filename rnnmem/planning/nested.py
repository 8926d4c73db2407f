"""Plans for step nets that are steps by themselves: a training loop's body, a branch that trains.

Each is decided alone, for one run of it, inner ones first; then the Net around them is decided with
these rewritten. No part gets slower than the bound on time, so the whole does not either.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from rnnmem.analysis.loops import loop_pairs
from rnnmem.analysis.shapes import filled
from rnnmem.analysis.training_regions import Place, places, step_net
from rnnmem.errors import BudgetError
from rnnmem.ir.graph import Net
from rnnmem.ir.op_table import LOOPS
from rnnmem.passes.rematerialise.select import op_seconds, step_seconds
from rnnmem.planning.options import Options
from rnnmem.planning.plan import NestedPlan, Plan
from rnnmem.planning.search import HEADROOM, Decision, decide, least_of

_SLOWDOWNS = (1.1, 1.2, 1.35, 1.5, 2.0, 3.0, float("inf"))
"""Bounds on the time of step nets, tried in turn until a budget is met."""

Decide = Callable[..., Decision]
"""(Net, place=, beside=) -> the Decision for it."""


def decide_with_places(
    plain: Decision, options: Options, decision: Decide, nested: Callable[[Net, Plan], Net]
) -> tuple[Decision, Plan, Net | None]:
    """The plan that the options ask for, with the decisions for places in it.

    Args:
      plain: the Decision for the whole step.
      options: what the user asks for.
      decision: makes a Decision of a Net, given the place that it is and the Decision for the Net
        as it was before something was done to it.
      nested: (the step, a plan with nested decisions only) -> the step with these applied.

    Returns:
      The Decision for the Net around the places, the plan, and the rewritten Net; None: unchanged.

    Raises:
      BudgetError: no plan is predicted to stay within the budget.
    """
    found = places(plain.net)
    if not found or not options.loop_means:
        return plain, *decide(plain, options)
    if options.budget is None:
        return _decided(plain, found, options, options.max_slowdown, decision, nested)
    refused: list[BudgetError] = []
    for slowdown in (1.0, *_SLOWDOWNS):
        try:
            some = found if slowdown > 1.0 else ()
            return _decided(plain, some, options, slowdown, decision, nested)
        except BudgetError as error:
            refused.append(error)
    raise least_of(refused)


def _decided(
    plain: Decision,
    found: tuple[Place, ...],
    options: Options,
    slowdown: float,
    decision: Decide,
    nested: Callable[[Net, Plan], Net],
) -> tuple[Decision, Plan, Net | None]:
    plans: tuple[NestedPlan, ...] = ()
    whole = plain.net
    for place in reversed(found):
        inner = step_net(whole, place.path)
        own, _ = decision(inner, place=place).least_memory(slowdown)
        plans += (NestedPlan(place.path, _loops_around(plain.net, place.path), own),)
        whole = nested(plain.net, Plan(nested=plans))
    below = Plan(nested=plans, slowdown=_slowdown(plain, plans))
    if whole is plain.net:
        plan, rewritten = decide(plain, options)
        return plain, dataclasses.replace(plan, nested=plans), rewritten
    around = decision(whole, beside=plain)
    plan, rewritten = _around(around, options)
    peaks = plan.predicted_peak, plan.original_peak
    # Each step net's own peak falls; of the whole, chunks and the order of ops vary.
    if options.budget is None and None not in peaks and peaks[0] > peaks[1] * (1 + HEADROOM):
        plan, rewritten = decide(plain, options)
        closed = tuple(dataclasses.replace(one, plan=_closed(one.plan)) for one in plans)
        return plain, dataclasses.replace(plan, nested=closed), rewritten
    slower = plan.slowdown + below.slowdown - 1.0
    plan = dataclasses.replace(plan, nested=plans, slowdown=slower)
    return around, plan, whole if rewritten is None else rewritten


def _around(decision: Decision, options: Options) -> tuple[Plan, Net | None]:
    """The plan for the Net around the places, and what applying it makes."""
    if loop_pairs(decision.net, decision.net, {}):
        return decide(decision, options)
    return decision.as_it_is(options.budget), None


def _loops_around(net: Net, path: tuple[str, ...]) -> tuple[str, ...]:
    loops = []
    for place in range(0, len(path), 2):
        op = step_net(net, path[:place]).op_by_name[path[place]]
        if op.type in LOOPS:
            loops.append(op.name)
    return tuple(loops)


def _closed(plan: Plan) -> Plan:
    """The plan, with nothing done."""
    reason = "the predicted peak of the whole step would not fall"
    loops = (
        dataclasses.replace(loop, closed=loop.closed or reason, fates=()) for loop in plan.loops
    )
    return dataclasses.replace(
        plan,
        loops=tuple(loops),
        waits=(),
        gates=(),
        folds=(),
        empty_starts=(),
        made_again=(),
        slowdown=1.0,
    )


def _slowdown(plain: Decision, plans: tuple[NestedPlan, ...]) -> float:
    """The estimated factor of the whole step's time, given those of its places."""
    net, machine = filled(plain.known), plain.machine
    whole = step_seconds(net, machine)
    more = 0.0
    for one in plans:
        runs, inside = 1.0, net
        for name, label in zip(one.path[::2], one.path[1::2], strict=True):
            op = inside.op_by_name[name]
            if op.type in LOOPS:
                once = sum(step_seconds(part, machine) for part in op.nets.values())
                runs *= op_seconds(op, inside, machine) / once if once else 1.0
            inside = op.nets[label]
        more += runs * step_seconds(inside, machine) * (one.plan.slowdown - 1.0)
    return 1.0 + more / whole if whole else 1.0
