"""What becomes of a traced function: import, normalise, plan, apply, verify; a line each."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator

import tensorflow as tf

from rnnmem.analysis.machine import CPU, GPU, Machine
from rnnmem.analysis.training_regions import nested_steps
from rnnmem.compiled import Compiled, Target, waits_for_gradient
from rnnmem.cut_losses import by_chunks
from rnnmem.errors import BudgetError, CheckError, RaceError
from rnnmem.grappler.cse import racing_sums
from rnnmem.grappler.sums_apart import with_sums_apart
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.inline import inline
from rnnmem.ir.order import without_pruned_ops
from rnnmem.ir.requests import RECOMPUTE, requests_of, with_requests
from rnnmem.notes import with_notes
from rnnmem.passes.normalise.decision import dead_code
from rnnmem.passes.normalise.gradient_loops import without_dead_gradients
from rnnmem.passes.registry import BEFORE_LOOPS
from rnnmem.planning.call_sizes import telling
from rnnmem.planning.choice import budget_for, cannot_be_met, least_of
from rnnmem.planning.decide import decide
from rnnmem.planning.intervals import SEEN
from rnnmem.planning.losses import decide_with_losses
from rnnmem.planning.nested import decide_with_nested_steps
from rnnmem.planning.options import left_outside
from rnnmem.planning.outside import OUTSIDE, outside_of_loops
from rnnmem.planning.plan import Plan
from rnnmem.planning.saved import apply_saved, of_this_function
from rnnmem.planning.search import Search
from rnnmem.planning.setting import Setting
from rnnmem.planning.straight_line import LITTLE, Chosen
from rnnmem.prepared import Prepared, prepare
from rnnmem.simulate.timeline import worst_peak
from rnnmem.tf.attributes import constant
from rnnmem.tf.calibration_cache import with_costs
from rnnmem.tf.device import check_offload
from rnnmem.tf.functions import net_of
from rnnmem.tf.optimized import types_left
from rnnmem.tf.profile import SECONDS, profiled
from rnnmem.turns import in_turns, leaving_time_for_turns, may_take_turns
from rnnmem.verify import check

_LOSSES = ("chunked_loss", "row_chunks")
_ALONE = ("congruent_ops", *(one.name for one in BEFORE_LOOPS))
"""Passes that have decided before the loops are planned, and change the Net without them."""
_DECIDED = (*_LOSSES, "zero_lists", *_ALONE)
"""Passes that have decided before the loops are planned."""
_OVER_ITEMS = "accumulated_products"
"""The pass whose loops take time that others may need more."""
_BOUNDS = (1.05, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0)
"""Bounds on time whose plans a budget may take where residuals outside of loops run again."""
_RACING_SUM = (
    "an addend of the sum at {} is computed twice in the loop, with equal constants: TensorFlow "
    "merges the two or not, as other ops stand, and the sum's last bits depend on that; compute it "
    "once"
)


def compile_function(target: Target) -> Compiled:
    """What becomes of a whole function.

    Raises:
      BudgetError: no plan is predicted to stay within the budget.
      PlanError: the plan given is for another function.
      CheckError: the verifier cannot prove what was rewritten.
      NotUnderstood: the function holds something that a Net cannot.
    """
    inlined, net = target.memo.latest("net", (target.options.patterns,), lambda: _nets(target))
    made = compile_net(net, _unless(racing_sums(net), _RACING_SUM, target))
    return _with_dead_code(inlined, made)


def _nets(target: Target) -> tuple[Net, Net]:
    """The function with what it calls inlined, and the same without dead code."""
    inlined = as_asked(inline(net_of(target.concrete)), target)
    return inlined, without_dead_gradients(inlined)


def compile_net(net: Net, target: Target) -> Compiled:
    """What becomes of a Net without dead code; raises what `compile_function` does."""
    try:
        made = _noted(net, target)
    except RaceError as error:
        target = target.leaving(str(error))
        made = _noted(net, target)
    ordered = in_turns(made, target)
    if ordered is made:
        ordered = _in_turns_in_less_time(made, net, target)
    if ordered is not made:
        _verify(ordered, target)
    return ordered


def _in_turns_in_less_time(made: Compiled, net: Net, target: Target) -> Compiled:
    """The plan of a shorter time with large buffers in turns, or the same where that is no less."""
    less = leaving_time_for_turns(made, target)
    if less is None:
        return made
    try:
        fewer = _noted(net, less)
    except (CheckError, RaceError):
        return made  # which was neither
    found = in_turns(fewer, target)
    return made if found is fewer else min(made, found, key=_peak)


def _noted(net: Net, target: Target) -> Compiled:
    """The plan for a Net, applied and verified, with what there is to say of it."""
    made = _decided(net, target)
    if made.search is None and waits_for_gradient(made.net):
        return made  # nothing is decided before its gradient is there
    plan = with_notes(made.plan, made.net, target.options, target.left, target.by_xla)
    in_call = made.search is not None and made.search.setting.sizes is not None
    if in_call and plan.predicted_peak is not None:
        plan = plan.noting(SEEN)
    return dataclasses.replace(made, plan=plan)


def _peak(made: Compiled) -> float:
    """Bytes that are predicted; of what was left as it was, none are, and edges save much of it."""
    return math.inf if made.plan.predicted_peak is None else made.plan.predicted_peak


def as_asked(inlined: Net, target: Target) -> Net:
    """The Net as TensorFlow prunes it, with what the user asks of it and what is left apart."""
    asked = without_pruned_ops(with_requests(inlined, target.options.patterns))
    if target.by_xla or waits_for_gradient(asked):
        return asked
    return with_sums_apart(asked, functools.partial(types_left, target.concrete))


def machine_here() -> Machine:
    """What estimates of time assume of the device that runs what names no other."""
    return GPU if tf.config.list_logical_devices("GPU") else CPU


def _unless(found: Iterator[Op], reason: str, target: Target) -> Target:
    """Nothing is changed where a sum was found whose order no change keeps; XLA has its own."""
    racing = None if target.by_xla else next(found, None)
    if racing is None:
        return target
    return target.leaving(reason.format(racing.source or racing.name))


def _with_dead_code(inlined: Net, made: Compiled) -> Compiled:
    """The same, with what went before anything was planned among the decisions."""
    if made.rewritten is None:
        return made
    gone = dead_code(inlined, made.net)
    return dataclasses.replace(made, plan=made.plan.having(dead_code=gone))


def _decided(net: Net, target: Target) -> Compiled:
    """The plan for a Net, inside loops and outside, applied and verified."""
    made = _least(net, target)
    try:
        _verify(made, target)
    except CheckError as error:
        fewer = () if target.options.plan is not None else target.options.simpler(made.plan)
        for options, names in fewer:
            made = _least(net, dataclasses.replace(target, options=options))
            if _is_verified(made, target):
                note = left_outside(names, str(error).splitlines()[0])
                return dataclasses.replace(made, plan=made.plan.noting(note))
        raise
    return made


def _least(net: Net, target: Target) -> Compiled:
    """The plan for a Net, inside loops and outside, applied; not verified yet."""
    made, options = _with_regions(net, target), target.options
    may_choose = options.budget is None and options.plan is None
    if made.search is None or not may_choose or not made.plan.of(_OVER_ITEMS):
        return made
    taken = made.search.with_own_peak(Plan()).slowdown - 1.0
    if taken <= LITTLE * (options.max_slowdown - 1.0):
        return made
    fewer = dataclasses.replace(target, options=options.without([_OVER_ITEMS]))
    return min(made, _with_regions(net, fewer), key=_predicted)


def _predicted(made: Compiled) -> float:
    peak = made.plan.predicted_peak
    return math.inf if peak is None else peak


def _with_regions(net: Net, target: Target) -> Compiled:
    """The same with all passes that are allowed, whatever time they leave for each other."""
    options = target.options
    left = target.differentiated or target.by_xla or waits_for_gradient(net)
    if left or options.passes.isdisjoint(OUTSIDE) or options.plan is not None:
        return _planned(net, target)
    if options.budget is not None:
        return _within_budget(net, target, options.budget)
    made = _planned(net, target)
    if made.search is None:
        return made
    chosen = made.search, made.plan, made.rewritten
    bound, within = options.max_slowdown, functools.partial(_within, made, target)
    found = outside_of_loops(net, chosen, bound, within)
    counted = any(one.counted for one in found[1].of(_OVER_ITEMS))
    if found[1].changes_nothing and made.search.setting.sizes is not None and not counted:
        # Other calls may be larger; where large buffers take turns, this one tells.
        elsewhere = _least(net, dataclasses.replace(target, given=()))
        if not elsewhere.plan.changes_nothing:
            return dataclasses.replace(elsewhere, search=made.search)
    return _unless_only_merged(_having(made, found))


def _unless_only_merged(made: Compiled) -> Compiled:
    """The same; unchanged where congruent ops are merged and nothing else is decided."""
    others = made.plan.without(["congruent_ops"])
    if others == made.plan or not others.changes_nothing:
        return made
    return dataclasses.replace(made, plan=others, rewritten=None)


def _having(made: Compiled, chosen: Chosen) -> Compiled:
    search, plan, rewritten = chosen
    return dataclasses.replace(made, search=search, plan=plan, rewritten=rewritten)


def _within(made: Compiled, target: Target, max_slowdown: float) -> Chosen | None:
    """The same choice where loops have another time; None where they have no say in it."""
    assert made.search is not None
    options = target.within(max_slowdown).options
    search, plan, rewritten = (
        (made.search, *decide(made.search, options))
        if made.search.losses
        else decide_with_nested_steps(made.search, options)
    )
    if rewritten is None and search.losses:
        return None
    if rewritten is None and any(map(made.plan.of, _ALONE)):
        rewritten, plan = search.net, search.with_own_peak(plan)
    names = _DECIDED if rewritten is not None else _LOSSES
    return search, plan.having(**{name: made.plan.of(name) for name in names}), rewritten


def _within_budget(net: Net, target: Target, budget: int) -> Compiled:
    """The least time in which loops, or loops and what lies outside of them, fit in a budget.

    Raises:
      BudgetError: nothing fits.
    """
    refused: list[BudgetError] = []
    made = None
    try:
        made = _planned(net, target)
    except BudgetError as error:
        refused.append(error)
    asks = RECOMPUTE in requests_of(net).values()
    for bound in _BOUNDS:
        if made is not None and made.plan.slowdown <= bound and not asks:
            return made
        tried = _planned(net, target.within(bound))
        if tried.search is not None:
            chosen = tried.search, tried.plan, tried.rewritten
            tried = _having(tried, outside_of_loops(net, chosen, bound))
        if tried.plan.predicted_peak is None or tried.rewritten is None:
            continue
        run = tried.search.setting.known(tried.rewritten) if tried.search else tried.rewritten
        plan = dataclasses.replace(tried.plan, worst_peak=worst_peak(run))
        if budget_for(plan) <= budget:
            return dataclasses.replace(tried, plan=plan)
        refused.append(cannot_be_met(budget, plan))
    if made is None:
        raise least_of(refused)
    return made


def _planned(net: Net, target: Target) -> Compiled:
    """The plan for a Net, applied; not verified yet."""
    check_offload(net, target.options, machine_here().device)
    if waits_for_gradient(net) and not nested_steps(net) and not _cuts_forward(target):
        return Compiled(net)
    once, options = target.options.runs_once, target.within(1.0).options
    options = dataclasses.replace(options, runs_once=frozenset())
    of = (net, options, target.left, target.differentiated, target.given)
    first = target.memo.latest("prepared", of, lambda: prepare(net, _setting(net, target), target))
    prepared = target.memo.latest("searches", (*of, once), lambda: first.running_once(once))
    search, plan, rewritten = _chosen(prepared, target)
    if rewritten is None and any(prepared.decided[name] for name in _ALONE):
        rewritten, plan = search.net, search.with_own_peak(plan)
    if rewritten is not None:
        plan = plan.having(**prepared.decided)
    return Compiled(net, plan, rewritten, search)


def _setting(net: Net, target: Target) -> Setting:
    options = target.options
    machine = target.machine
    if machine is None:
        machine = machine_here()
        if options.plan is None and not target.by_xla:
            machine = with_costs(machine)
        if options.profile:
            machine = profiled(machine, net, min(SECONDS, options.profile))
    return Setting(
        machine=machine,
        constant=constant,
        passes=options.passes,
        keeps_alive=not target.by_xla,
        reads_again=not target.differentiated,
        scheduling_edges=options.plan is None
        and not target.differentiated
        and may_take_turns(net, target),
        runs_once=options.runs_once,
        sizes=telling(net, target.given),
    )


def _chosen(prepared: Prepared, target: Target) -> tuple[Search, Plan, Net | None]:
    """The search that was taken, its plan, and the rewritten Net; None: unchanged."""
    plain, options, saved = prepared.search, target.options, target.options.plan
    if saved is not None:
        search = plain
        if target.differentiated:
            saved = saved.without(["chunked_loss", "row_chunks", "elementwise_chunks"])
        if target.by_xla:
            saved = saved.without([*OUTSIDE, "readers_in_turn"])
        if saved.cuts_rows:
            with of_this_function():
                search = by_chunks(plain, saved.losses, target)
        return search, *apply_saved(search, saved)
    if target.by_xla and options.budget is not None:
        # Peaks are of TensorFlow's executor: they choose among plans, and promise nothing.
        options = dataclasses.replace(options, budget=None, max_slowdown=math.inf)
    if target.differentiated:
        return plain, *decide(plain, options)
    found = None
    if prepared.by_chunks:
        found = decide_with_losses([plain, *prepared.by_chunks], options)
    search, plan, rewritten = found or decide_with_nested_steps(plain, options)
    return search, plan.having(**prepared.left), rewritten


def _cuts_forward(target: Target) -> bool:
    """Whether a function that somebody may differentiate later runs by chunks where nobody does."""
    saved = target.options.plan
    return "chunked_loss" in target.chunk_passes if saved is None else target.by_chunks


def _verify(made: Compiled, target: Target) -> None:
    """Lets through what the verifier can prove to compute the same.

    Raises:
      CheckError: it cannot.
    """
    if made.rewritten is not None:
        check(
            made.net,
            made.rewritten,
            chunks=made.plan.sums_by_chunks,
            roundings=made.plan.rounds,
            compiled=target.by_xla,
        )


def _is_verified(made: Compiled, target: Target) -> bool:
    try:
        _verify(made, target)
    except CheckError:
        return False
    return True
