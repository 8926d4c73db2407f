"""``optimize``: where planning on Nets and TensorFlow's functions meet."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rnnmem.check import check
from rnnmem.collector import paused
from rnnmem.errors import BudgetError, OptionError, PlanError, RnnmemWarning
from rnnmem.net.boundaries import with_boundaries
from rnnmem.net.cost import CPU, GPU, Machine
from rnnmem.net.inline import inline
from rnnmem.net.loops import loop_pairs, loops_of
from rnnmem.net.lowering import sums_reordered
from rnnmem.net.merged import sums_by_chance
from rnnmem.net.nouns import Net
from rnnmem.net.order import without_dead_ops
from rnnmem.net.places import Place, places
from rnnmem.options import Options
from rnnmem.plan import ChunkedLoss, Plan
from rnnmem.recompute.budget import Decision, decide
from rnnmem.recompute.places import decide_with_places
from rnnmem.recompute.planner import RECOMPUTE
from rnnmem.recompute.saved_plan import apply_saved, saved_decision, saved_turns
from rnnmem.reports.explain import Explanation, explain
from rnnmem.rewrite.chunks import apply_chunks
from rnnmem.rewrite.gates import with_turns
from rnnmem.rewrite.net import apply_plan
from rnnmem.rewrite.unread import without_unread
from rnnmem.rewrite.zeros import without_zero_lists
from rnnmem.sharing.decide import in_turns, predicted_peak
from rnnmem.sizes import format_bytes
from rnnmem.tf import private
from rnnmem.tf.attributes import constant
from rnnmem.tf.device import check_budget, check_offload
from rnnmem.tf.functions import function_of, net_of
from rnnmem.tf.gradient import rewrite_gradient
from rnnmem.tf.measure import run_measured
from rnnmem.tf.profile import profiled
from rnnmem.tf.verify import ROUNDED, TOLERANCE, run_verified
from rnnmem.vocabulary.decide import decide_with_losses, losses_of

DISABLE = "RNNMEM_DISABLE"
"""Set to 1 in the environment, every function runs as TensorFlow runs it."""

_COMPILED = "XLA compiles the function: what its loops save is kept as it is"


def optimize(
    fn: Callable[..., Any] | None = None,
    *,
    budget: int | str | None = None,
    max_slowdown: float = 1.1,
    allow: tuple[str, ...] | None = None,
    verify: bool = False,
    plan: Plan | str | os.PathLike | None = None,
    profile: bool = False,
) -> Any:
    """Makes a train step with loops run in less memory, with the same results bit for bit.

    Use it as a decorator, with or without arguments, above or below ``@tf.function``::

        @rnnmem.optimize
        def train_step(inputs, targets): ...

    Args:
      fn: a Python function (it is traced as ``tf.function`` does), a ``tf.function`` or a
        ``ConcreteFunction``; a whole train step or any part of one that holds loops with their
        gradients.
      budget: bytes as an int or ``"512MiB"``: the peak above the resident state to stay under, at
        the least time. Where no plan can, the first call raises ``BudgetError``.
      max_slowdown: without a budget, spend at most this factor of step time for the least memory.
      allow: which means may be used, of "recompute", "segments", "order", "vocabulary", "bits",
        "bfloat16" and "offload"; None: the first three. The others are used only where they are
        named. "vocabulary", a projection with its softmax loss by chunks of tokens, adds
        gradients up in another order, so their last bits differ. "bits" keeps saved booleans, and
        numbers that are only asked for their sign, as bits; all bits stay the same. "bfloat16"
        rounds what loops save, so gradients differ by about 1 %; what the forward part computes
        keeps its bits. "offload" keeps what loops save in host memory, on a GPU.
      verify: on the first call of each signature also run the original and raise if any bit of an
        output or a variable differs (with "vocabulary": by more than float tolerance; with
        "bfloat16": by more than 5 % of the largest element). An error in planning is raised then,
        not warned of. With a budget the peak is measured too, where TensorFlow counts memory, and a
        smaller plan is taken from the next call on where it is above the budget.
      plan: decisions to apply instead of making any: a ``Plan``, its JSON text, or the path of a
        file that holds it. One that does not fit the function is refused on the first call.
      profile: measure the time of ops at the shapes of the first call, for at most two seconds,
        instead of estimating it. What was measured is kept below ``$XDG_CACHE_HOME/rnnmem``.

    Returns:
      A callable like ``fn``, with ``plan(*args)``, ``explain(*args)`` and
      ``get_concrete_function(*args)``.

    Raises:
      OptionError: an option is malformed, or ``fn`` is not callable; on the first call, "offload"
        is allowed where the step runs on the host.
      PlanError: ``plan`` holds no plan.
    """
    options = Options.of(budget, max_slowdown, allow, verify, plan, profile)
    if fn is None:
        return functools.partial(
            optimize,
            budget=budget,
            max_slowdown=max_slowdown,
            allow=allow,
            verify=verify,
            plan=plan,
            profile=profile,
        )
    if isinstance(fn, Optimized):
        return Optimized(fn.__wrapped__, options)
    if not callable(fn):
        raise OptionError(f"fn={fn!r} is not callable: pass the step itself")
    return Optimized(fn, options)


@dataclasses.dataclass(frozen=True)
class _Trace:
    """What became of one traced function.

    Attributes:
      original: the function as TensorFlow traced it.
      function: the function that runs instead; ``original`` itself where nothing was gained.
      plan: tells the decisions.
      frontier: tells the alternatives to them.
      gradient_only: whether only the function's gradient, once somebody asks for it, is rewritten.
      taped_as_it_was: whether the original runs under a tape: what was rewritten holds a gradient,
        or gates in the way of one, and its own gradient would be another.
      untaped: what runs instead of ``function`` where no tape records it: a softmax loss by chunks
        of tokens is not differentiated.
      work: what planned it; None where nothing did.
    """

    original: Any
    function: Any
    plan: Callable[[], Plan]
    frontier: Callable[[], tuple[Plan, ...]] = tuple
    gradient_only: bool = False
    taped_as_it_was: bool = False
    untaped: Any = None
    work: _Work | None = None


@dataclasses.dataclass(frozen=True)
class Inspection:
    """One traced function, laid open for a report.

    Attributes:
      name: the function's name.
      original: the ConcreteFunction as TensorFlow traced it.
      function: the one that runs instead; ``original`` itself where nothing was gained.
      plan: the decisions.
      net: the original as a Net, inlined.
      rewritten: what runs instead; None where nothing was changed.
      joint: whether the Nets are the function and its gradient together.
      options: what the user asked for.
    """

    name: str
    original: Any
    function: Any
    plan: Plan
    net: Net
    rewritten: Net | None
    joint: bool
    options: Options


class Optimized:
    """A function that ``optimize`` was applied to; call it like the original."""

    def __init__(self, fn: Callable[..., Any], options: Options):
        self.__wrapped__ = fn
        functools.update_wrapper(self, fn, updated=())
        self._options = options
        self._where = _line_of(fn)
        self._lock = threading.RLock()
        self._traces: dict[int, _Trace] = {}
        self._verified: set[int] = set()
        self._bound: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._concrete = fn if private.is_concrete(fn) else None
        # TensorFlow asks for a rewritten gradient only of a call inside a graph: for an eager call
        # under a tape, the outer function is that graph.
        self._base = self._outer = None
        if self._concrete is None:
            self._base = fn if private.is_polymorphic(fn) else tf.function(fn)
            self._outer = private.function_like(self._base, self._run_traced)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the optimised function on the same arguments as the original."""
        try:
            return self._call(args, kwargs)
        except TypeError:
            self._raise_as_original(args, kwargs)
            raise

    def _call(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        if tf.config.functions_run_eagerly():
            return self.__wrapped__(*args, **kwargs)
        trace = self._trace_of(args, kwargs)
        if private.a_tape_is_active():
            if trace.taped_as_it_was or self._may_be_differentiated_twice(trace, args, kwargs):
                return (self._base or self._concrete)(*args, **kwargs)
            if tf.executing_eagerly() and self._outer is not None:
                return self._outer(*args, **kwargs)

        if trace.untaped is not None and not private.a_tape_is_active():
            trace = dataclasses.replace(trace, function=trace.untaped)

        def call(function):
            return private.call(self._base, function, args, kwargs)

        first = id(trace.original) not in self._verified
        if self._options.verify and first and tf.executing_eagerly():
            return self._run_first(trace, call)
        return call(trace.function)

    def _run_first(self, trace: _Trace, call: Callable[[Any], Any]) -> Any:
        """Runs the optimised function and the original; holds the peak against the budget."""
        peaks: list[int | None] = []

        def measured(function):
            if function is not trace.function or self._options.budget is None:
                return call(function)
            results, peak = run_measured(lambda: call(function))
            peaks.append(peak)
            return results

        plan = trace.plan()
        tolerance = None
        if plan.rounds:
            tolerance = ROUNDED
        elif any(not loss.closed for loss in plan.losses):
            tolerance = TOLERANCE
        results = run_verified(trace.original, trace.function, measured, tolerance)
        peak = peaks[-1] if peaks else None
        if peak is not None and peak > self._options.budget:
            self._step_down(trace, peak)
        else:
            self._verified.add(id(trace.original))
        return results

    def _step_down(self, trace: _Trace, peak: int) -> None:
        """Takes a smaller plan for a trace whose measured peak is above the budget."""
        budget = self._options.budget
        predicted = trace.plan().predicted_peak
        if predicted is None or trace.function is trace.original:
            raise BudgetError(
                f"budget={budget} ({format_bytes(budget)}): the measured peak is {peak} bytes "
                f"({format_bytes(peak)}), and there is no smaller plan; give at least that much"
            )
        stricter = dataclasses.replace(self._options, budget=min(predicted, budget**2 // peak))
        with self._lock:
            self._traces[id(trace.original)] = _optimized(trace.original, stricter, self._where)

    def _may_be_differentiated_twice(self, trace: _Trace, args: tuple, kwargs: dict) -> bool:
        """Whether tapes could ask for a gradient of the gradient, which is left to TensorFlow.

        It would be summed in another order through a recomputation, and differ in its last bits.
        """
        flat = tf.nest.flatten((args, kwargs), expand_composites=True)
        tensors = [leaf for leaf in flat if isinstance(leaf, tf.Tensor)]
        return private.higher_gradients_are_possible(trace.original, tensors)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Binds to an instance, so that methods can be decorated."""
        if instance is None:
            return self
        try:
            if instance not in self._bound:
                self._bound[instance] = Optimized(self._bind(instance, owner), self._options)
            return self._bound[instance]
        except TypeError:  # not hashable, or no weak references to it
            return Optimized(self._bind(instance, owner), self._options)

    def _bind(self, instance: Any, owner: Any) -> Any:
        fn = self.__wrapped__
        return (
            fn.__get__(instance, owner)
            if hasattr(fn, "__get__")
            else (types.MethodType(fn, instance))
        )

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """The decisions for these arguments; traces, but runs nothing."""
        return self._trace_of(args, kwargs).plan()

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """A report that prints as tables: each saved blob, its fate and why; and other plans."""
        trace = self._trace_of(args, kwargs)
        name = getattr(self, "__name__", "function")
        return explain(trace.plan(), name=name, frontier=trace.frontier())

    def inspect(self, *args: Any, **kwargs: Any) -> Inspection:
        """The function for these arguments before and after, as Nets; traces, but runs nothing.

        Raises:
          NotUnderstood: the function holds something that a Net cannot.
        """
        return self._inspect(self._trace_of(args, kwargs))

    def inspect_all(self) -> list[Inspection]:
        """Every signature that the function was called with so far; see :meth:`inspect`."""
        with self._lock:
            traces = list(self._traces.values())
        return [self._inspect(trace) for trace in traces]

    def call_variant(self, inspection: Inspection, optimised: bool, args: tuple, kwargs: dict):
        """Calls the function of an inspection, or the original behind it, as a user would."""
        function = inspection.function if optimised else inspection.original
        return private.call(self._base, function, args, kwargs)

    def flat_inputs(self, inspection: Inspection, args: tuple, kwargs: dict) -> list[Any]:
        """The tensors that the inputs of an inspection's Net stand for, in order."""
        return private.flat_inputs(self._base, inspection.original, args, kwargs)

    def _inspect(self, trace: _Trace) -> Inspection:
        plan, work = trace.plan(), trace.work
        net = None if work is None else work.net
        return Inspection(
            name=getattr(self, "__name__", "function"),
            original=trace.original,
            function=trace.function if trace.untaped is None else trace.untaped,
            plan=plan,
            net=without_dead_ops(inline(net_of(trace.original))) if net is None else net,
            rewritten=None if work is None or plan.changes_nothing else work.rewritten,
            joint=trace.gradient_only and net is not None and bool(plan.loops),
            options=self._options,
        )

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Any:
        """The optimised ConcreteFunction for these arguments."""
        trace = self._trace_of(args, kwargs)
        if trace.untaped is not None:
            return trace.untaped
        if trace.gradient_only and self._outer is not None:
            return self._outer.get_concrete_function(*args, **kwargs)
        return trace.function

    def _trace_of(self, args: tuple, kwargs: dict[str, Any]) -> _Trace:
        if self._concrete is not None:
            return self._trace(self._concrete)
        return self._trace(private.trace(self._base, args, kwargs))

    @tf.autograph.experimental.do_not_convert
    def _run_traced(self, *args: Any, **kwargs: Any) -> Any:
        """What the outer tf.function traces: the optimised function, called."""
        trace = self._trace_of(args, kwargs)
        reordered = trace.taped_as_it_was and private.a_tape_is_active()
        function = trace.original if reordered else trace.function
        return private.call(self._base, function, args, kwargs)

    def _trace(self, concrete: Any) -> _Trace:
        with self._lock:
            if id(concrete) not in self._traces:
                self._traces[id(concrete)] = _optimized(concrete, self._options, self._where)
            return self._traces[id(concrete)]

    def _raise_as_original(self, args: tuple, kwargs: dict[str, Any]) -> None:
        """Raises what the undecorated function raises for arguments that do not fit it."""
        fn = self.__wrapped__
        if private.is_polymorphic(fn) or private.is_concrete(fn):
            return
        try:
            inspect.signature(fn).bind(*args, **kwargs)
        except TypeError:
            fn(*args, **kwargs)


def _optimized(concrete: Any, options: Options, where: str = "") -> _Trace:
    """Plans and rewrites one traced function; whatever fails, the original runs."""
    if os.environ.get(DISABLE, "") not in ("", "0"):
        return _Trace(concrete, concrete, lambda: Plan(notes=(f"{DISABLE} is set",)))
    check_budget(options.budget)
    with paused():
        return _planned(concrete, options, where)


def _planned(concrete: Any, options: Options, where: str) -> _Trace:
    """What becomes of a function; whatever fails, the original runs."""
    work = _Work(concrete, options, where)
    try:
        original = net_of(concrete)
        net = without_unread(without_dead_ops(inline(original)))
        by_chance = next(sums_by_chance(net), None)
        if by_chance is not None and not private.is_compiled(concrete):  # XLA merges all equal ops
            work.leave(_BY_CHANCE.format(by_chance.source or by_chance.name))
        rewritten = work.rewrite(net)
        ordered = work.order(net, rewritten)
        if ordered is not None and not private.is_compiled(concrete):
            by_number = next(sums_reordered(original, net, with_boundaries(ordered)), None)
            if by_number is not None:
                work.leave(_BY_NUMBER.format(by_number.source or by_number.name))
                ordered = work.order(net, work.rewrite(net))
        if ordered is not None:
            # A gradient that is asked for without a tape, of a graph, is the original's too.
            function = private.differentiate_as(function_of(ordered, concrete), concrete)
            if work.cuts_rows:
                return _by_chunks(work, net, function)
            return _Trace(
                concrete,
                function,
                lambda: work.plan,
                work.frontier,
                taped_as_it_was=True,
                work=work,
            )
        if not work.plan.loops and _waits_for_gradient(net):
            function = private.with_gradient(concrete, work.gradient)
            return _Trace(
                concrete, function, work.plan_all, work.frontier, gradient_only=True, work=work
            )
    except Exception as error:
        work.give_up(error)
    return _Trace(concrete, concrete, lambda: work.plan, work.frontier, work=work)


def _waits_for_gradient(net: Net) -> bool:
    """Whether the Net has loops and no gradient loop yet: somebody may differentiate it later."""
    return bool(loops_of(net)) and not loop_pairs(net, net, {}) and not places(net)


_IN_A_PIPELINE = (
    "the body of a loop over a dataset runs in the input pipeline and is not looked into; take the "
    "elements with next(iterator) in a loop over tf.range"
)


_BY_CHANCE = (
    "an addend of the sum at {} is computed twice in the loop, with equal constants: TensorFlow "
    "merges the two or not, as other ops stand, and the sum's last bits hang on it; compute it once"
)


_BY_NUMBER = (
    "the sum at {} adds up two states that TensorFlow sorts by a number that it counts up over the "
    "whole function; the change would take one of them from 99 to 100, or the like, and the sum "
    "into another order; an op more or less in the function may help"
)


def _trains_in_a_pipeline(net: Net) -> bool:
    """Whether a dataset is reduced here, which is what becomes of ``for x in dataset``."""
    return any(op.type == "ReduceDataset" for _, inner in net.walk() for op in inner.ops)


def _by_chunks(work: _Work, net: Net, function: Any) -> _Trace:
    """What becomes of a function with a softmax loss by chunks; under a tape it has none."""
    taped, later = work.concrete, False
    if _waits_for_gradient(net):
        of_gradient = _Work(work.concrete, work.options, work.where)
        taped, later = private.with_gradient(work.concrete, of_gradient.gradient), True
    return _Trace(
        work.concrete,
        taped,
        lambda: work.plan,
        work.frontier,
        gradient_only=later,
        taped_as_it_was=not later,
        untaped=function,
        work=work,
    )


class _Work:
    """Planning and rewriting one traced function, or its gradient once somebody asks for it."""

    def __init__(self, concrete: Any, options: Options, where: str):
        self.concrete = concrete
        self.where = where
        self.options = options
        self.plan = Plan()
        self.left_for = ""
        self.decision: Decision | None = None
        self.net: Net | None = None
        self.rewritten: Net | None = None

    def leave(self, reason: str) -> None:
        """Nothing is to be changed; the report tells the reason, and a budget must be met so."""
        self.options = dataclasses.replace(self.options, allow=(), plan=None)
        self.left_for = reason

    def rewrite(self, net: Net, differentiated: bool = False) -> Net | None:
        """The rewritten and checked Net, or None where the plan changes nothing.

        Args:
          net: the Net.
          differentiated: whether it is a function and the gradient that somebody asked for; such a
            Net is split again, and no loop may hold ops of both halves.
        """
        self.net, self.rewritten = net, None
        self.rewritten = self._rewritten(net, differentiated)
        if not any(True for _ in self.plan.every_loop()) and _trains_in_a_pipeline(net):
            self.plan = dataclasses.replace(self.plan, notes=(*self.plan.notes, _IN_A_PIPELINE))
        if self.left_for:
            self.plan = dataclasses.replace(self.plan, notes=(self.left_for,))
        return self.rewritten

    def _rewritten(self, net: Net, differentiated: bool) -> Net | None:
        check_offload(net, self.options, _machine().device)
        compiled = private.is_compiled(self.concrete)
        saved = self.options.plan
        if saved is not None and differentiated:
            saved = dataclasses.replace(saved, losses=())
        by_chunks = not compiled and not differentiated and self._wants_chunks()
        if _waits_for_gradient(net) and not by_chunks:
            return None
        # Under XLA a list in a branch would be copied whole.
        segments = {"recompute", "segments"} <= set(self.options.allow) and not compiled
        machine = profiled(_machine(), net) if self.options.profile else _machine()
        means = self.options.loop_means
        if compiled:
            means &= RECOMPUTE

        def apply_to(base: Net, plan: Plan, place: Place | None = None) -> Net:
            return apply_plan(base, plan, constant, anchored=not compiled, place=place)

        def decision(base: Net, place: Place | None = None, **fields) -> Decision:
            return Decision(
                base,
                machine,
                lambda plan: apply_to(base, plan, place),
                segments=segments,
                means=means,
                reads_again=not differentiated,
                variables=None if place is None else place.variables,
                **fields,
            )

        def chunked(losses: tuple[ChunkedLoss, ...]) -> Net:
            base = apply_chunks(whole, losses, constant)
            check(net, base, chunks=True)
            return base

        whole = without_zero_lists(net, anchored=not compiled)
        if saved is not None:
            self.decision = saved_decision(whole, saved, chunked, decision)
            self.plan, rewritten = apply_saved(self.decision, saved)
        elif by_chunks:
            losses = losses_of(whole, machine)
            self.decision, self.plan, rewritten = decide_with_losses(
                whole, losses, chunked, decision, self.options
            )
        else:
            self.decision = decision(net)
            if whole is not net:
                self.decision = decision(whole, beside=self.decision)
            if differentiated:
                self.plan, rewritten = decide(self.decision, self.options)
            else:
                self.decision, self.plan, rewritten = decide_with_places(
                    self.decision, self.options, decision, apply_to
                )
        if rewritten is not None:
            check(net, rewritten, chunks=self.cuts_rows, roundings=self.plan.rounds)
        if means != self.options.loop_means:
            self.plan = dataclasses.replace(self.plan, notes=(*self.plan.notes, _COMPILED))
        return rewritten

    def _wants_chunks(self) -> bool:
        """Whether projections onto a vocabulary may, or by a saved plan must, run by chunks."""
        saved = self.options.plan
        if saved is not None:
            return any(not loss.closed for loss in saved.losses)
        return "vocabulary" in self.options.allow

    @property
    def cuts_rows(self) -> bool:
        """Whether a projection onto a vocabulary runs by chunks of tokens."""
        return any(not loss.closed for loss in self.plan.losses)

    def frontier(self) -> tuple[Plan, ...]:
        """The plan among its alternatives; none where nothing was planned."""
        if self.decision is None or not self.plan.loops:
            return ()
        return self.decision.frontier(self.plan)

    def order(self, net: Net, rewritten: Net | None) -> Net | None:
        """What `rewrite` gave, with large buffers taking turns where that pays."""
        # XLA sees no control edges; a function whose loops are differentiated later is left alone.
        compiled = private.is_compiled(self.concrete)
        saved = self.options.plan
        wanted = self.options.allows_order if saved is None else bool(saved.turns)
        if compiled or _waits_for_gradient(net) or not wanted:
            return rewritten
        base = net if rewritten is None else rewritten

        def apply(turns: tuple) -> Net:
            ordered = with_turns(base, turns)
            check(net, ordered, chunks=self.cuts_rows, roundings=self.plan.rounds)
            return ordered

        if saved is None:
            self.plan, ordered = in_turns(base, self.plan, _machine(), self.options, apply)
        else:
            ordered = saved_turns(saved, apply)
            original = self.plan.original_peak
            self.plan = dataclasses.replace(
                self.plan,
                original_peak=predicted_peak(base) if original is None else original,
                predicted_peak=predicted_peak(ordered),
            )
        self.rewritten = rewritten if ordered is None else ordered
        return self.rewritten

    def gradient(self, forward: Any, backward: Any) -> tuple[Any, Any] | None:
        """TensorFlow's graphs of the function and its gradient, rewritten; None to leave them."""
        try:
            count = private.result_count(self.concrete)
            with paused():
                return rewrite_gradient(
                    forward,
                    backward,
                    count,
                    lambda net: self.rewrite(without_dead_ops(net), differentiated=True),
                )
        except Exception as error:
            self.give_up(error)
            return None

    def plan_all(self) -> Plan:
        """The plan, for which the gradient is built if nobody did yet."""
        private.force_gradient(private.with_gradient(self.concrete, self.gradient))
        return self.plan

    def give_up(self, error: Exception) -> None:
        """The original runs; one warning says why. A promise that cannot be kept is an error."""
        if self.options.verify or isinstance(error, (BudgetError, OptionError, PlanError)):
            raise error
        reason = f"{type(error).__name__}: {error}"
        self.plan, self.decision = Plan(notes=(reason,)), None
        name = tf.compat.as_str(self.concrete.name)
        broken = "" if self.options.budget is None else "; the budget is not kept"
        text = f"rnnmem left {name}{self.where} as it was{broken}: {reason}; see docs/errors.md"
        warnings.warn(text, RnnmemWarning, stacklevel=2)


def _line_of(fn: Any) -> str:
    """Where a function was written, in brackets; empty where nobody knows."""
    code = getattr(inspect.unwrap(getattr(fn, "python_function", fn)), "__code__", None)
    if code is None:
        return ""
    return f" ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


def _machine() -> Machine:
    return GPU if tf.config.list_logical_devices("GPU") else CPU
