"""What becomes of a traced function: import, normalise, plan, apply, verify; a line each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from rnnmem.analysis.loops import loop_pairs, loops_of
from rnnmem.analysis.machine import CPU, GPU, Machine
from rnnmem.analysis.training_regions import nested_steps
from rnnmem.errors import CheckError, NetError, RaceError
from rnnmem.grappler.cse import racing_sums
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.inline import inline
from rnnmem.ir.op_table import RUNS_PYTHON
from rnnmem.ir.order import without_dead_ops
from rnnmem.passes.chunked_loss.apply import apply_chunks
from rnnmem.passes.chunked_loss.decision import ChunkedLoss
from rnnmem.passes.chunked_loss.select import losses_of
from rnnmem.passes.encode.decision import BFLOAT16, BITS, OFFLOAD
from rnnmem.passes.normalise.decision import dead_code, zero_lists
from rnnmem.passes.normalise.gradient_loops import without_dead_gradients
from rnnmem.passes.normalise.zero_lists import without_zero_lists
from rnnmem.passes.schedule.apply import with_edges
from rnnmem.planning.choice import budget_for
from rnnmem.planning.losses import all_closed, decide_with_losses
from rnnmem.planning.nested import decide_with_nested_steps
from rnnmem.planning.options import Options
from rnnmem.planning.plan import Plan, without_peaks
from rnnmem.planning.saved import apply_saved, of_this_function
from rnnmem.planning.scheduling_edges import predicted_peak, with_edges_where_they_pay
from rnnmem.planning.search import Search, decide
from rnnmem.planning.setting import Setting
from rnnmem.tf import private
from rnnmem.tf.attributes import constant
from rnnmem.tf.device import check_offload
from rnnmem.tf.functions import net_of
from rnnmem.tf.profile import profiled
from rnnmem.verify import check

_ENCODED = "XLA compiles the function: what its loops save is kept as it is"
_NOT_PREDICTED = "XLA compiles the function and lays out buffers of its own: no peak is predicted"
_NOT_HELD = "the budget was not held against a prediction: XLA lays out buffers of its own"
_IN_A_PIPELINE = (
    "the body of a loop over a dataset runs in the input pipeline and is not looked into; take the "
    "elements with next(iterator) in a loop over tf.range"
)
_IN_PYTHON = (
    "the budget is held against a prediction that knows nothing of what Python functions take"
)
_RACING_SUM = (
    "an addend of the sum at {} is computed twice in the loop, with equal constants: TensorFlow "
    "merges the two or not, as other ops stand, and the sum's last bits depend on that; compute it "
    "once"
)


@dataclasses.dataclass(frozen=True)
class Target:
    """What is to be compiled.

    Attributes:
      concrete: the function as TensorFlow traced it.
      options: what the user asks for.
      machine: what estimates of time assume; None: it is found out.
      differentiated: whether it is compiled together with the gradient that somebody asked for;
        such a Net is split again, and no loop may hold ops of both halves.
      left: why nothing may be changed; empty where something may.
    """

    concrete: Any
    options: Options
    machine: Machine | None = None
    differentiated: bool = False
    left: str = ""

    @property
    def by_xla(self) -> bool:
        """Whether XLA compiles it."""
        return private.is_compiled(self.concrete)

    @property
    def by_chunks(self) -> bool:
        """Whether softmax losses may, or by a saved plan must, run by chunks."""
        if self.by_xla or self.differentiated:
            return False
        saved = self.options.plan
        return "chunked_loss" in self.options.passes if saved is None else saved.cuts_rows

    def leaving(self, reason: str) -> Target:
        """The same where nothing is to be changed; a budget must be met so."""
        options = dataclasses.replace(self.options, allow=(), plan=None)
        return dataclasses.replace(self, options=options, left=reason)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What became of a Net.

    Attributes:
      net: the Net, as it was normalised.
      plan: the decisions.
      rewritten: what is to run instead; None: nothing was changed.
      search: the choice of the plan; None where nothing was planned.
    """

    net: Net
    plan: Plan = Plan()
    rewritten: Net | None = None
    search: Search | None = None


def compile_function(target: Target) -> Compiled:
    """What becomes of a whole function.

    Raises:
      BudgetError: no plan is predicted to stay within the budget.
      PlanError: the plan given is for another function.
      CheckError: the verifier cannot prove what was rewritten.
      NotUnderstood: the function holds something that a Net cannot.
    """
    inlined = without_dead_ops(inline(net_of(target.concrete)))
    net = without_dead_gradients(inlined)
    made = compile_net(net, _unless(racing_sums(net), _RACING_SUM, target))
    return _with_dead_code(inlined, made)


def compile_net(net: Net, target: Target) -> Compiled:
    """What becomes of a Net without dead code; raises what `compile_function` does."""
    try:
        made = _planned(net, target)
    except RaceError as error:
        target = target.leaving(str(error))
        made = _planned(net, target)
    _verify(made)
    made = dataclasses.replace(made, plan=_with_notes(made.plan, net, target))
    ordered = _in_turns(made, target)
    if ordered is not made:
        _verify(ordered)
    return ordered


def waits_for_gradient(net: Net) -> bool:
    """Whether the Net has loops and no gradient loop yet: somebody may differentiate it later."""
    return bool(loops_of(net)) and not loop_pairs(net, net, {}) and not nested_steps(net)


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


def _planned(net: Net, target: Target) -> Compiled:
    """The plan for a Net, applied; not verified yet."""
    options, saved = target.options, target.options.plan
    check_offload(net, options, machine_here().device)
    if waits_for_gradient(net) and not target.by_chunks:
        return Compiled(net)
    setting = _setting(net, target)
    may = "zero_lists" in options.passes if saved is None else bool(saved.of("zero_lists"))
    whole = without_zero_lists(net, keeps_alive=setting.keeps_alive) if may else net
    beside = None if whole is net else Search(net, setting)
    search, plan, rewritten = _chosen(Search(whole, setting, beside=beside), target)
    if rewritten is not None and whole is not net:
        plan = plan.having(zero_lists=zero_lists(net, whole))
    return Compiled(net, plan, rewritten, search)


def _setting(net: Net, target: Target) -> Setting:
    options = target.options
    machine = target.machine
    if machine is None:
        machine = profiled(machine_here(), net) if options.profile else machine_here()
    return Setting(
        machine=machine,
        constant=constant,
        passes=options.passes,
        keeps_alive=not target.by_xla,
        reads_again=not target.differentiated,
        scheduling_edges=options.plan is None
        and not target.differentiated
        and _may_take_turns(net, target),
    )


def _chosen(plain: Search, target: Target) -> tuple[Search, Plan, Net | None]:
    """The search that was taken, its plan, and the rewritten Net; None: unchanged."""
    options, saved = target.options, target.options.plan
    if saved is not None:
        search = plain
        if target.differentiated:
            saved = saved.having(chunked_loss=())
        if saved.cuts_rows:
            with of_this_function():
                search = _by_chunks(plain, saved.losses)
        return search, *apply_saved(search, saved)
    if target.by_xla and options.budget is not None:
        # Peaks are of TensorFlow's executor: they choose among plans, and promise nothing.
        options = dataclasses.replace(options, budget=None, max_slowdown=math.inf)
    if target.by_chunks:
        return _with_losses(plain, options)
    if target.differentiated:
        return plain, *decide(plain, options)
    return decide_with_nested_steps(plain, options)


def _with_losses(plain: Search, options: Options) -> tuple[Search, Plan, Net | None]:
    """The same where softmax losses may run by chunks."""
    losses = losses_of(plain.net, plain.setting.machine)
    searches = [plain]
    if not all(loss.closed for loss in losses):
        try:
            searches.append(_by_chunks(plain, losses))
        except (CheckError, NetError) as error:
            losses = all_closed(losses, f"it was not understood: {str(error).splitlines()[0]}")
    if len(searches) > 1:
        return decide_with_losses(searches, options)
    plan, rewritten = decide(plain, options)
    return plain, plan.having(chunked_loss=losses), rewritten


def _by_chunks(plain: Search, losses: tuple[ChunkedLoss, ...]) -> Search:
    """The search for the Net with these losses by chunks."""
    cut = apply_chunks(plain.net, losses, constant)
    check(plain.net, cut, chunks=True)
    return Search(cut, plain.setting, losses=losses, beside=plain)


def _verify(made: Compiled) -> None:
    """Lets through what the verifier can prove to compute the same.

    Raises:
      CheckError: it cannot.
    """
    if made.rewritten is not None:
        plan = made.plan
        check(made.net, made.rewritten, chunks=plan.cuts_rows, roundings=plan.rounds)


def _with_notes(plan: Plan, net: Net, target: Target) -> Plan:
    """The plan, saying what was left and what is not known."""
    notes = plan.notes
    options, xla = target.options, target.by_xla
    if xla and not options.passes.isdisjoint({BITS, BFLOAT16, OFFLOAD}):
        notes += (_ENCODED,)
    if not any(True for _ in plan.every_loop()) and _trains_in_a_pipeline(net):
        notes += (_IN_A_PIPELINE,)
    if target.left:
        notes = (target.left,)
    if options.budget is not None and _calls_python(net):
        notes += (_IN_PYTHON,)
    if xla:
        notes += (_NOT_PREDICTED,) if options.budget is None else (_NOT_HELD,)
        plan = without_peaks(plan)
    return dataclasses.replace(plan, notes=notes)


def _in_turns(made: Compiled, target: Target) -> Compiled:
    """The same, with large buffers taking turns where that pays."""
    net, plan, options = made.net, made.plan, target.options
    if made.search is None or target.differentiated or not _may_take_turns(net, target):
        return made
    base = net if made.rewritten is None else made.rewritten
    if options.plan is None:
        bound = options.max_slowdown
        if options.budget is not None and _is_above(plan, options.budget):
            bound = math.inf  # it fits only in turns
        plan, ordered = with_edges_where_they_pay(base, plan, made.search.setting.machine, bound)
        if ordered is None:
            return made
    else:
        with of_this_function():
            ordered = with_edges(base, options.plan.scheduling_edges)
        original = predicted_peak(base) if plan.original_peak is None else plan.original_peak
        plan = dataclasses.replace(
            plan, original_peak=original, predicted_peak=predicted_peak(ordered)
        )
    return dataclasses.replace(made, plan=plan, rewritten=ordered)


def _may_take_turns(net: Net, target: Target) -> bool:
    """Whether large buffers may take turns.

    XLA sees no control edges; a function whose loops are differentiated later is left alone.
    """
    saved = target.options.plan
    wanted = (
        "scheduling_edges" in target.options.passes
        if saved is None
        else bool(saved.scheduling_edges)
    )
    return wanted and not target.by_xla and not waits_for_gradient(net)


def _is_above(plan: Plan, budget: int) -> bool:
    """Whether more is predicted than may run under a budget."""
    return plan.predicted_peak is not None and budget_for(plan) > budget


def _calls_python(net: Net) -> bool:
    """Whether ops run Python functions; only what these hand back is counted."""
    return any(op.type in RUNS_PYTHON for _, inner in net.walk() for op in inner.ops)


def _trains_in_a_pipeline(net: Net) -> bool:
    """Whether a dataset is reduced here, which is what becomes of ``for x in dataset``."""
    return any(op.type == "ReduceDataset" for _, inner in net.walk() for op in inner.ops)
