"""``optimize``: where planning on Nets and TensorFlow's functions meet."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import math
import os
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rnnmem.analysis.cost import CPU, GPU, Machine
from rnnmem.analysis.loops import loop_pairs, loops_of
from rnnmem.analysis.training_regions import Place, places
from rnnmem.errors import BudgetError, OptionError, PlanError, RaceError, RnnmemWarning
from rnnmem.grappler.boundaries import with_boundaries
from rnnmem.grappler.cse import sums_by_chance
from rnnmem.grappler.lowering import sums_reordered
from rnnmem.ir.graph import Net
from rnnmem.ir.inline import inline
from rnnmem.ir.op_table import RUNS_PYTHON
from rnnmem.ir.order import without_dead_ops
from rnnmem.passes.chunked_loss.apply import apply_chunks
from rnnmem.passes.chunked_loss.select import decide_with_losses, losses_of
from rnnmem.passes.normalise.gradient_loops import without_unread
from rnnmem.passes.normalise.zero_lists import without_zero_lists
from rnnmem.passes.rematerialise.select import RECOMPUTE
from rnnmem.passes.schedule.apply import with_turns
from rnnmem.passes.schedule.select import in_turns, predicted_peak
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.nested import decide_with_places
from rnnmem.planning.options import Options, with_known_names
from rnnmem.planning.plan import ChunkedLoss, Plan, without_peaks
from rnnmem.planning.saved import apply_saved, saved_decision, saved_turns
from rnnmem.planning.search import Decision, budget_for, decide
from rnnmem.reports.explain import Explanation, explain
from rnnmem.simulate.timeline import counted_peak
from rnnmem.sizes import format_bytes
from rnnmem.spared import spared
from rnnmem.tf import private
from rnnmem.tf.attributes import constant
from rnnmem.tf.counting import uncounted
from rnnmem.tf.device import check_budget, check_offload
from rnnmem.tf.functions import function_of, net_of
from rnnmem.tf.gc import paused
from rnnmem.tf.gradient import rewrite_gradient
from rnnmem.tf.measure import run_measured
from rnnmem.tf.profile import profiled
from rnnmem.tf.verify import ROUNDED, TOLERANCE, run_verified, verify_differentiated
from rnnmem.verify import check
from rnnmem.warn import warn_user

DISABLE = "RNNMEM_DISABLE"
"""Set to 1 in the environment, every function runs as TensorFlow runs it."""

_COMPILED = "XLA compiles the function: what its loops save is kept as it is"
_NOT_PREDICTED = "XLA compiles the function and lays out buffers of its own: no peak is predicted"
_NOT_HELD = "the budget was not held against a prediction: XLA lays out buffers of its own"


@with_known_names
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
        "bfloat16": by more than 5 % of the largest element). Both runs start from the same
        variables, tables, seeds and elements of iterators; where that cannot be had, nothing is
        compared, and a warning says so. An error in planning is raised then, not warned of. With
        a budget the peak is measured too, and a smaller plan is taken from the next call on where
        it is above the budget; where TensorFlow counts no memory, a warning says so.
      plan: decisions to apply instead of making any: a ``Plan``, its JSON text, or the path of a
        file that holds it. One that does not fit the function is refused on the first call.
      profile: measure the time of ops at the shapes of the first call, for at most two seconds,
        instead of estimating it. What was measured is kept below ``$XDG_CACHE_HOME/rnnmem``.

    Returns:
      A callable like ``fn``, with ``plan(*args)``, ``explain(*args)`` and
      ``get_concrete_function(*args)``.

    Raises:
      OptionError: an option is unknown or malformed, or ``fn`` is no function; on the first call,
        "offload" is allowed where the step runs on the host.
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
    _check_is_function(fn)
    return Optimized(fn, options)


def _check_is_function(fn: Any) -> None:
    """Refuses what can never be traced to a step."""
    if not callable(fn):
        raise OptionError(f"fn={fn!r} is not callable: pass the step itself")
    if inspect.isclass(fn):
        raise OptionError(f"fn={fn!r} is a class: pass the step itself, a function or a method")
    keras = sys.modules.get("keras")  # nobody has a model who did not import it
    if keras is not None and isinstance(fn, keras.Model):
        raise OptionError(
            f"fn={type(fn).__name__} is a Keras model, not its train step: call "
            "rnnmem.keras.optimize(model), or decorate a train step of your own"
        )


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
      net: the original as a Net, inlined; None where an error of ours stands in the way.
      rewritten: what runs instead; None where nothing was changed.
      joint: whether the Nets are the function and its gradient together.
      options: what the user asked for.
    """

    name: str
    original: Any
    function: Any
    plan: Plan
    net: Net | None
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
        self._unverified: set[int] = set()
        self._stepped_down: set[int] = set()
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
        verifies = self._options.verify and id(trace.original) not in self._verified
        if trace.work is not None:
            trace.work.forget_nets()
        if private.a_tape_is_active():
            if trace.taped_as_it_was or self._may_be_differentiated_twice(trace, args, kwargs):
                return (self._base or self._concrete)(*args, **kwargs)
            if tf.executing_eagerly() and self._outer is not None:
                if verifies:
                    self._verify_gradient(trace, args, kwargs)
                return private.call(self._base, trace.function, args, kwargs)

        if trace.untaped is not None and not private.a_tape_is_active():
            trace = dataclasses.replace(trace, function=trace.untaped)

        def call(function):
            return private.call(self._base, function, args, kwargs)

        if verifies and tf.executing_eagerly():
            inputs = private.flat_inputs(self._base, trace.original, args, kwargs)
            return self._run_first(trace, call, inputs)
        if verifies:
            self._leave_unverified(trace, _IN_A_GRAPH)
        return call(trace.function)

    def _leave_unverified(self, trace: _Trace, reason: str) -> None:
        """Says once that what was rewritten is not verified, and why."""
        if trace.function is trace.original or id(trace.original) in self._unverified:
            return
        self._unverified.add(id(trace.original))
        name = tf.compat.as_str(trace.original.name)
        warn_user(f"rnnmem did not verify {name}{self._where}: {reason}")

    def _run_first(self, trace: _Trace, call: Callable[[Any], Any], inputs: list[Any]) -> Any:
        """Runs the optimised function and the original; holds the peak against the budget."""
        peaks: list[int | None] = []

        def measured(function):
            if function is not trace.function or self._options.budget is None:
                return call(function)
            results, peak = run_measured(lambda: call(function))
            peaks.append(peak)
            return results

        kept = trace.original.variables if self._options.budget is not None else ()
        before = [tf.identity(variable) for variable in kept]
        if trace.function is trace.original or trace.gradient_only:
            results = measured(trace.function)
        else:
            results = run_verified(
                trace.original,
                trace.function,
                measured,
                inputs,
                _tolerance(trace.plan()),
                self._where,
            )
        peak = peaks[-1] if peaks else None
        if peaks and peak is None:
            warn_user(f"the budget is not held against a measured peak: {uncounted()}")
        if peak is not None and peak > self._options.budget:
            self._step_down(trace, peak, before)
        else:
            self._verified.add(id(trace.original))
        return results

    def _verify_gradient(self, trace: _Trace, args: tuple, kwargs: dict[str, Any]) -> None:
        """Compares a function with its gradient, which a tape outside takes later."""
        self._verified.add(id(trace.original))
        try:
            plan = trace.plan()
        except Exception:  # the call itself raises it, if it asks for a gradient at all
            return
        if trace.function is trace.original or plan.changes_nothing:
            return
        verify_differentiated(
            trace.original,
            lambda: self._base(*args, **kwargs),
            lambda: private.call(self._base, trace.function, args, kwargs),
            private.flat_inputs(self._base, trace.original, args, kwargs),
            _tolerance(plan),
            self._where,
        )

    def _step_down(self, trace: _Trace, peak: int, before: list[tf.Tensor]) -> None:
        """Takes a smaller plan for a trace whose measured peak is above the budget.

        Where there is none, the first call is refused and leaves no trace; a training that is under
        way is only warned.

        Args:
          trace: what was measured.
          peak: bytes that it took.
          before: values of the function's variables before the call.

        Raises:
          BudgetError: the first call took more than the budget, and no smaller plan is promising.
        """
        key = id(trace.original)
        smaller = self._smaller(trace, peak)
        if smaller is not None:
            with self._lock:
                self._traces[key] = smaller
                self._stepped_down.add(key)
            return
        budget = self._options.budget
        error = BudgetError(
            f"budget={budget} ({format_bytes(budget)}): the measured peak is {peak} bytes "
            f"({format_bytes(peak)}), and there is no smaller plan; give at least that much"
        )
        if key not in self._stepped_down:
            for variable, value in zip(trace.original.variables, before, strict=True):
                variable.assign(value)
            raise error
        self._verified.add(key)
        warnings.warn(f"{error}; the step goes on with this plan", RnnmemWarning, stacklevel=4)

    def _smaller(self, trace: _Trace, peak: int) -> _Trace | None:
        """What runs under a plan that fits if it is as far off as this one; None: there is none."""
        budget, predicted = self._options.budget, trace.plan().predicted_peak
        if predicted is None or trace.function is trace.original:
            return None
        stricter = dataclasses.replace(self._options, budget=min(predicted, budget**2 // peak))
        try:
            return _optimized(trace.original, stricter, self._where)
        except BudgetError:  # of a budget that the user never wrote
            return None

    def _may_be_differentiated_twice(self, trace: _Trace, args: tuple, kwargs: dict) -> bool:
        """Whether tapes could ask for a gradient of the gradient, which is left to TensorFlow.

        It would be summed in another order through a recomputation, and differ in its last bits.
        """
        flat = tf.nest.flatten((args, kwargs), expand_composites=True)
        tensors = [leaf for leaf in flat if isinstance(leaf, tf.Tensor)]
        return private.higher_gradients_are_possible(trace.original, tensors)

    def __deepcopy__(self, memo: dict[int, Any]) -> Optimized:
        """A function of its own, with the same options, that traces and plans anew."""
        fn = self.__wrapped__
        return Optimized(
            fn if self._concrete is not None else copy.deepcopy(fn, memo), self._options
        )

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
        plan, notes = trace.plan(), []
        frontier = spared("other plans", trace.frontier, (), notes)
        return explain(_noted(plan, notes), name=name, frontier=frontier)

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
        plan = trace.plan()
        net, rewritten = (None, None) if trace.work is None else trace.work.nets()
        notes: list[str] = []
        if net is None:
            net = spared("the function", lambda: _net_as_traced(trace.original), None, notes)
        return Inspection(
            name=getattr(self, "__name__", "function"),
            original=trace.original,
            function=trace.function if trace.untaped is None else trace.untaped,
            plan=_noted(plan, notes),
            net=net,
            rewritten=None if plan.changes_nothing else rewritten,
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


_IN_A_GRAPH = (
    "it is called inside of another tf.function, where nothing runs twice; decorate the outermost "
    "function to have it verified"
)


def _tolerance(plan: Plan) -> dict[str, float] | None:
    """How far numbers may be off under a plan; None where no bit may be."""
    if plan.rounds:
        return ROUNDED
    return TOLERANCE if any(not loss.closed for loss in plan.losses) else None


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
        net, ordered = work.rewrite_all()
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
                concrete,
                function,
                lambda: work.plan_gradient(function),
                work.frontier,
                gradient_only=True,
                work=work,
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


_IN_PYTHON = (
    "the budget is held against a prediction that knows nothing of what Python functions take"
)


def _calls_python(net: Net) -> bool:
    """Whether ops run Python functions; only what these hand back is counted."""
    return any(op.type in RUNS_PYTHON for _, inner in net.walk() for op in inner.ops)


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
    """Planning and rewriting one traced function, or its gradient once somebody asks for it.

    Nothing but reports reads the Nets once a function runs, and they are as large as its trace: the
    call lets go of them, and whoever asks for them then has them made again.
    """

    def __init__(self, concrete: Any, options: Options, where: str):
        self.concrete = concrete
        self.where = where
        self.options = self.asked = options
        self.machine: Machine | None = None
        self.make_again: Callable[[_Work], Any] | None = _Work.rewrite_all
        self.keeps_nets = False
        self.plan = Plan()
        self.left_for = ""
        self.decision: Decision | None = None
        self.net: Net | None = None
        self.rewritten: Net | None = None

    def leave(self, reason: str) -> None:
        """Nothing is to be changed; the report tells the reason, and a budget must be met so."""
        self.options = dataclasses.replace(self.options, allow=(), plan=None)
        self.left_for = reason

    def rewrite_all(self) -> tuple[Net, Net | None]:
        """The whole function as a Net, and what is to run instead; None: nothing."""
        original = net_of(self.concrete)
        net = without_unread(without_dead_ops(inline(original)))
        compiled = private.is_compiled(self.concrete)
        by_chance = next(sums_by_chance(net), None)
        if by_chance is not None and not compiled:  # XLA merges all equal ops
            self.leave(_BY_CHANCE.format(by_chance.source or by_chance.name))
        ordered = self.order(net, self.rewrite(net))
        if ordered is not None and not compiled:
            by_number = next(sums_reordered(original, net, with_boundaries(ordered)), None)
            if by_number is not None:
                self.leave(_BY_NUMBER.format(by_number.source or by_number.name))
                ordered = self.order(net, self.rewrite(net))
        return net, ordered

    def forget_nets(self) -> None:
        """Lets go of what only reports read."""
        self.net = self.rewritten = self.decision = None

    def nets(self) -> tuple[Net | None, Net | None]:
        """The function before and after, by the plan; None where nothing was planned or changed."""
        rewritten, net = self.rewritten, self.net
        if net is not None:
            return net, rewritten
        if self.plan.changes_nothing:
            options = dataclasses.replace(self.asked, plan=None, budget=None, allow=())
        else:
            options = dataclasses.replace(self.asked, plan=self.plan)
        made = self._again(options)
        return made.net, made.rewritten

    def _again(self, options: Options) -> _Work:
        """The same work done again, on the same estimates of time; none where it failed."""
        made = _Work(self.concrete, options, self.where)
        made.machine = self.machine
        if self.make_again is not None:
            with paused():
                self.make_again(made)
        return made

    def rewrite(self, net: Net, differentiated: bool = False) -> Net | None:
        """The rewritten and checked Net, or None where the plan changes nothing.

        Args:
          net: the Net.
          differentiated: whether it is a function and the gradient that somebody asked for; such a
            Net is split again, and no loop may hold ops of both halves.
        """
        self.net, self.rewritten = net, None
        try:
            self.rewritten = self._rewritten(net, differentiated)
        except RaceError as error:
            self.leave(str(error))
            self.rewritten = self._rewritten(net, differentiated)
        if not any(True for _ in self.plan.every_loop()) and _trains_in_a_pipeline(net):
            self.plan = dataclasses.replace(self.plan, notes=(*self.plan.notes, _IN_A_PIPELINE))
        if self.left_for:
            self.plan = dataclasses.replace(self.plan, notes=(self.left_for,))
        if self.options.budget is not None and _calls_python(net):
            self.plan = dataclasses.replace(self.plan, notes=(*self.plan.notes, _IN_PYTHON))
        if private.is_compiled(self.concrete):
            held = (_NOT_PREDICTED,) if self.options.budget is None else (_NOT_HELD,)
            self.plan = without_peaks(self.plan)
            self.plan = dataclasses.replace(self.plan, notes=(*self.plan.notes, *held))
        return self.rewritten

    def _rewritten(self, net: Net, differentiated: bool) -> Net | None:
        check_offload(net, self.options, _machine().device)
        compiled, options = private.is_compiled(self.concrete), self.options
        if compiled and options.budget is not None:
            # Peaks are of TensorFlow's executor: they choose among plans, and promise nothing.
            options = dataclasses.replace(options, budget=None, max_slowdown=math.inf)
        saved = self.options.plan
        if saved is not None and differentiated:
            saved = dataclasses.replace(saved, losses=())
        by_chunks = not compiled and not differentiated and self._wants_chunks()
        if _waits_for_gradient(net) and not by_chunks:
            return None
        # Under XLA a list in a branch would be copied whole.
        segments = {"recompute", "segments"} <= set(self.options.allow) and not compiled
        if self.machine is None:
            self.machine = profiled(_machine(), net) if self.options.profile else _machine()
        machine = self.machine
        means = self.options.loop_means
        if compiled:
            means &= RECOMPUTE

        def apply_to(base: Net, plan: Plan, place: Place | None = None) -> Net:
            return apply_plan(base, plan, constant, anchored=not compiled, place=place)

        orders = self._may_order(net) and not differentiated and saved is None

        def turned(base: Net, plan: Plan) -> Plan | None:
            most = dataclasses.replace(self.options, max_slowdown=math.inf)
            found, ordered = in_turns(
                base, plan, _machine(), most, functools.partial(with_turns, base)
            )
            if ordered is None:
                return None
            return dataclasses.replace(found, predicted_peak=counted_peak(ordered))

        def decision(base: Net, place: Place | None = None, **fields) -> Decision:
            return Decision(
                base,
                machine,
                lambda plan: apply_to(base, plan, place),
                segments=segments,
                means=means,
                reads_again=not differentiated,
                variables=None if place is None else place.variables,
                turned=turned if orders and place is None else None,
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
                whole, losses, chunked, decision, options
            )
        else:
            self.decision = decision(net)
            if whole is not net:
                self.decision = decision(whole, beside=self.decision)
            if differentiated:
                self.plan, rewritten = decide(self.decision, options)
            else:
                self.decision, self.plan, rewritten = decide_with_places(
                    self.decision, options, decision, apply_to
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
        if not self.plan.loops:
            return ()
        decision = self.decision or self._again(self.asked).decision
        found = () if decision is None else decision.frontier(self.plan)
        return tuple(map(without_peaks, found)) if private.is_compiled(self.concrete) else found

    def _may_order(self, net: Net) -> bool:
        """Whether large buffers may take turns.

        XLA sees no control edges; a function whose loops are differentiated later is left alone.
        """
        saved = self.options.plan
        wanted = self.options.allows_order if saved is None else bool(saved.turns)
        return wanted and not private.is_compiled(self.concrete) and not _waits_for_gradient(net)

    def order(self, net: Net, rewritten: Net | None) -> Net | None:
        """What `rewrite` gave, with large buffers taking turns where that pays."""
        if not self._may_order(net):
            return rewritten
        saved, options = self.options.plan, self.options
        if options.budget is not None and _is_above(self.plan, options.budget):
            options = dataclasses.replace(options, max_slowdown=math.inf)  # it fits only in turns
        base = net if rewritten is None else rewritten

        def apply(turns: tuple) -> Net:
            ordered = with_turns(base, turns)
            check(net, ordered, chunks=self.cuts_rows, roundings=self.plan.rounds)
            return ordered

        if saved is None:
            self.plan, ordered = in_turns(base, self.plan, _machine(), options, apply)
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
        count = private.result_count(self.concrete)

        def rewritten_by(work: _Work, net: Net) -> Net | None:
            return work.rewrite(without_dead_ops(net), differentiated=True)

        def make_again(work: _Work) -> None:
            def rewrite(net: Net) -> None:  # and nothing is made of it
                rewritten_by(work, net)

            rewrite_gradient(forward, backward, count, rewrite)

        try:
            with paused():
                made = rewrite_gradient(
                    forward, backward, count, functools.partial(rewritten_by, self)
                )
            self.make_again = make_again
            return made
        except Exception as error:
            self.give_up(error)
            return None
        finally:
            if not self.keeps_nets:
                self.forget_nets()

    def plan_gradient(self, function: Any) -> Plan:
        """The plan, for which the gradient of what runs is built if nobody did yet."""
        self.keeps_nets = True
        try:
            private.force_gradient(function)
        except Exception as error:
            self.give_up(error)
        finally:
            self.keeps_nets = False
        return self.plan

    def give_up(self, error: Exception) -> None:
        """The original runs; one warning says why. A promise that cannot be kept is an error."""
        if self.options.verify or isinstance(error, (BudgetError, OptionError, PlanError)):
            raise error
        reason = f"{type(error).__name__}: {error}"
        self.plan, self.make_again = Plan(notes=(reason,)), None
        self.forget_nets()
        name = tf.compat.as_str(self.concrete.name)
        broken = "" if self.options.budget is None else "; the budget is not kept"
        text = f"rnnmem left {name}{self.where} as it was{broken}: {reason}; see docs/errors.md"
        warnings.warn(text, RnnmemWarning, stacklevel=2)


def _is_above(plan: Plan, budget: int) -> bool:
    """Whether more is predicted than may run under a budget."""
    return plan.predicted_peak is not None and budget_for(plan) > budget


def _noted(plan: Plan, notes: list[str]) -> Plan:
    return dataclasses.replace(plan, notes=(*plan.notes, *notes)) if notes else plan


def _net_as_traced(concrete: Any) -> Net:
    return without_dead_ops(inline(net_of(concrete)))


def _line_of(fn: Any) -> str:
    """Where a function was written, in brackets; empty where nobody knows."""
    code = getattr(inspect.unwrap(getattr(fn, "python_function", fn)), "__code__", None)
    if code is None:
        return ""
    return f" ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


def _machine() -> Machine:
    return GPU if tf.config.list_logical_devices("GPU") else CPU
