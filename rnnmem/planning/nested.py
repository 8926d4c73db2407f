"""Plans for step nets that are steps by themselves: a training loop's body, a branch that trains.

Each is decided alone, for one run of it, inside its loops and outside of them, inner ones first;
then the Net around them is decided with these rewritten. No part gets slower than the bound on
time, so the whole does not either.
"""

from __future__ import annotations

import dataclasses

from rnnmem.analysis.branch_pairs import branch_pairs
from rnnmem.analysis.loops import own_loop_pairs
from rnnmem.analysis.shapes import filled
from rnnmem.analysis.times import op_seconds, step_seconds
from rnnmem.analysis.training_regions import NestedStep, nested_steps, step_net
from rnnmem.errors import BudgetError
from rnnmem.ir.graph import Net
from rnnmem.ir.op_table import LOOPS
from rnnmem.planning.choice import HEADROOM, least_of
from rnnmem.planning.decide import decide
from rnnmem.planning.options import Options
from rnnmem.planning.plan import NestedPlan, Plan
from rnnmem.planning.search import Search
from rnnmem.planning.step_time import slowdown_of
from rnnmem.planning.straight_line import LEAST_GAIN, Chosen, loops_and_regions

_SLOWDOWNS = (1.1, 1.2, 1.35, 1.5, 2.0, 3.0, float("inf"))
"""Bounds on the time of step nets, tried in turn until a budget is met."""


def decide_with_nested_steps(plain: Search, options: Options) -> tuple[Search, Plan, Net | None]:
    """The plan that the options ask for, with the decisions for places in it.

    Args:
      plain: the search for the whole step.
      options: what the user asks for.

    Returns:
      The search for the Net around the places, the plan, and the rewritten Net; None: unchanged.

    Raises:
      BudgetError: no plan is predicted to stay within the budget.
    """
    found = nested_steps(plain.net)
    if not found or not (plain.setting.in_loops or plain.setting.outside_of_loops):
        return plain, *decide(plain, options)
    if options.budget is None:
        return _decided(plain, found, options, options.max_slowdown)
    refused: list[BudgetError] = []
    for slowdown in (1.0, *_SLOWDOWNS):
        try:
            some = found if slowdown > 1.0 else ()
            return _decided(plain, some, options, slowdown)
        except BudgetError as error:
            refused.append(error)
    raise least_of(refused)


def _decided(
    plain: Search, found: tuple[NestedStep, ...], options: Options, slowdown: float
) -> tuple[Search, Plan, Net | None]:
    plans: tuple[NestedPlan, ...] = ()
    whole = plain.net
    alone = dataclasses.replace(plain.setting, scheduling_edges=False, sizes=None)
    for nested_step in reversed(found):
        inner = step_net(whole, nested_step.path)
        own = _of_step(Search(inner, alone, nested_step=nested_step), options, slowdown)
        if own is None:
            continue
        plans += (NestedPlan(nested_step.path, _loops_around(plain.net, nested_step.path), own),)
        whole = plain.apply(Plan(nested=plans))
    below = Plan(nested=plans, slowdown=_slowdown(plain, plans))
    if whole is plain.net:
        plan, rewritten = decide(plain, options)
        return plain, dataclasses.replace(plan, nested=plans), rewritten
    around = Search(whole, plain.setting, beside=plain)
    plan, rewritten = _around(around, options)
    peak, before = plan.predicted_peak, plan.original_peak
    # Each step net's own peak falls; of the whole, chunks and the order of ops vary.
    rises = peak is not None and before is not None and peak > before * _most(plans)
    must = any(one.plan.must_recompute for one in plans)
    if options.budget is None and rises and not must:
        plan, rewritten = decide(plain, options)
        closed = tuple(dataclasses.replace(one, plan=_closed(one.plan)) for one in plans)
        return plain, dataclasses.replace(plan, nested=closed), rewritten
    slower = plan.slowdown + below.slowdown - 1.0
    final = whole if rewritten is None else rewritten
    known = slowdown_of(plain.setting.known(final), plain.original.seconds, plain.setting.machine)
    slower = slower if known is None else known
    plan = dataclasses.replace(plan, nested=plans, slowdown=slower)
    return around, plan, final


def _of_step(search: Search, options: Options, max_slowdown: float) -> Plan | None:
    """The plan for one run of a nested step; None where there is nothing to decide."""

    def within(bound: float) -> Chosen:
        return search, *decide(
            search, dataclasses.replace(options, budget=None, max_slowdown=bound)
        )

    chosen = within(max_slowdown)
    nested_step = search.nested_step
    if search.setting.outside_of_loops and nested_step is not None and nested_step.results:
        chosen = loops_and_regions(search.net, chosen, max_slowdown, within)
    _, plan, _ = chosen
    return plan if plan.loops or not plan.changes_nothing else None


def _around(search: Search, options: Options) -> tuple[Plan, Net | None]:
    """The plan for the Net around the places, and what applying it makes."""
    if own_loop_pairs(search.net) or branch_pairs(search.net):
        return decide(search, options)
    return search.as_it_is(options.budget), None


def _most(plans: tuple[NestedPlan, ...]) -> float:
    """The factor of the whole's predicted peak above which nested steps are left as they were."""
    return 1 + HEADROOM if any(one.plan.loops for one in plans) else 1 - LEAST_GAIN


def _loops_around(net: Net, path: tuple[str, ...]) -> tuple[str, ...]:
    loops = []
    for nested_step in range(0, len(path), 2):
        op = step_net(net, path[:nested_step]).op_by_name[path[nested_step]]
        if op.type in LOOPS:
            loops.append(op.name)
    return tuple(loops)


def _closed(plan: Plan) -> Plan:
    """The plan, with nothing done."""
    reason = "the predicted peak of the whole step would not fall"
    loops = (
        dataclasses.replace(loop, closed=loop.closed or reason, residuals=()) for loop in plan.loops
    )
    notes = plan.notes if plan.loops else (reason,)
    return Plan(tuple(loops), (), notes, 1.0, plan.original_peak, plan.original_peak)


def _slowdown(plain: Search, plans: tuple[NestedPlan, ...]) -> float:
    """The estimated factor of the whole step's time, given those of its places."""
    net, machine = filled(plain.known), plain.setting.machine
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
