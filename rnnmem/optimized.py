"""What ``optimize`` makes of a function."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import os
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import tensorflow as tf

from rnnmem.errors import BudgetError, RnnmemWarning
from rnnmem.ir.graph import Net
from rnnmem.ir.inline import inline
from rnnmem.ir.order import without_pruned_ops
from rnnmem.planning.intervals import SEEN
from rnnmem.planning.options import Options
from rnnmem.planning.plan import Plan
from rnnmem.reports.explain import Explanation, explain
from rnnmem.reports.inspection import Inspection
from rnnmem.reports.notebook import Signature, function_parts, options_given
from rnnmem.reports.resident import kind_of
from rnnmem.sizes import counted, format_bytes
from rnnmem.spared import spared
from rnnmem.tables import as_html
from rnnmem.tf import private
from rnnmem.tf.counting import uncounted
from rnnmem.tf.functions import net_of
from rnnmem.tf.measure import run_measured
from rnnmem.tf.trips import facts_in_call
from rnnmem.tf.verify import ROUNDED, TOLERANCE, run_verified, verify_differentiated
from rnnmem.time_bound import held_to_bound
from rnnmem.traced import Trace, trace_of
from rnnmem.warn import warn_user

P = ParamSpec("P")
R = TypeVar("R")
_Unbound = ParamSpec("_Unbound")
_Self = TypeVar("_Self")
_Method = TypeVar("_Method")


def _unconverted(method: _Method) -> _Method:
    """Has AutoGraph leave a method as it is; type checkers see nothing behind TensorFlow's own."""
    return tf.autograph.experimental.do_not_convert(method)


class Optimized(Generic[P, R]):
    """A function that ``optimize`` was applied to; call it like the original."""

    def __init__(self, fn: Callable[P, R], options: Options):
        self.__wrapped__ = fn
        functools.update_wrapper(self, fn, updated=())
        self._options = options
        self._where = _line_of(fn)
        self._lock = threading.RLock()
        self._traces: dict[int, Trace] = {}
        self._verified: set[int] = set()
        self._unverified: set[int] = set()
        self._stepped_down: set[int] = set()
        self._timed: set[int] = set()
        self._peaks: dict[int, int] = {}
        self._bound: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._concrete: Any = fn if private.is_concrete(fn) else None
        # TensorFlow asks for a rewritten gradient only of a call inside a graph: for an eager call
        # under a tape, the outer function is that graph.
        self._base: Any = None
        self._outer: Any = None
        if self._concrete is None:
            self._base = fn if private.is_polymorphic(fn) else tf.function(fn)
            self._outer = private.function_like(self._base, self._run_traced)

    @property
    def _as_it_was(self) -> Any:
        """What TensorFlow runs without rnnmem: the original as a function of graphs."""
        return self._base or self._concrete

    def __repr__(self) -> str:
        """What it is: the function, its options, and how many signatures were planned."""
        given = [
            f"{name}={'...' if value is ... else repr(value)}"
            for name, value in options_given(self._options).items()
        ]
        name = self._name
        traced = f"{counted(len(self._traces), 'signature')} planned"
        return f"<rnnmem.optimize({', '.join([name, *given])}){self._where}, {traced}>"

    def _repr_html_(self) -> str:
        """The same in a notebook, with what is known of each signature; nothing is worked out."""
        with self._lock:
            planned = [self._signature(trace) for trace in self._traces.values()]
        return as_html(function_parts(self._name, self._where, self._options, planned))

    def _signature(self, trace: Trace) -> Signature:
        plan = trace.work.plan
        given = tf.nest.flatten(trace.original.structured_input_signature, expand_composites=True)
        tensors = [one for one in given if isinstance(one, tf.TensorSpec)]
        return Signature(
            [kind_of(one) for one in tensors],
            plan,
            trace.gradient_only and plan.changes_nothing and not plan.notes,
            self._peaks.get(id(trace.original)),
        )

    @_unconverted
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
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
        inputs = functools.partial(private.flat_inputs, self._base, trace.original, args, kwargs)
        if tf.executing_eagerly():
            trace.work.see(inputs)
        trace.work.forget_nets()
        if private.a_tape_is_active():
            if trace.taped_as_it_was or self._may_be_differentiated_twice(trace, args, kwargs):
                return self._as_it_was(*args, **kwargs)
            if tf.executing_eagerly() and self._outer is not None:
                if verifies:
                    self._verify_gradient(trace, args, kwargs)
                return private.call(self._base, trace.function, args, kwargs)

        call = functools.partial(self.call_traced, args=args, kwargs=kwargs)
        if not private.a_tape_is_active():
            if self._options.holds_time and tf.executing_eagerly():
                trace = self._within_time(trace, call, inputs)
            if trace.untaped is not None:
                trace = dataclasses.replace(trace, function=trace.untaped, gradient_only=False)
        if not tf.executing_eagerly():
            if verifies:
                self._leave_unverified(trace, _IN_A_GRAPH)
            return call(trace.called_with(inputs()))
        return self._run_first(trace, call, inputs()) if verifies else call(trace.function)

    def _within_time(self, trace: Trace, call: Callable, inputs: Callable[[], list]) -> Trace:
        """What runs within the bound on time as measured, once, and kept for all later calls."""
        key = id(trace.original)
        if key not in self._timed:
            held = held_to_bound(trace, self._options, self._where, call, inputs())
            with self._lock:
                self._timed.add(key)
                self._traces[key] = held
        return self._traces[key]

    def _leave_unverified(self, trace: Trace, reason: str) -> None:
        """Says once that what was rewritten is not verified, and why."""
        if trace.function is trace.original or id(trace.original) in self._unverified:
            return
        self._unverified.add(id(trace.original))
        name = tf.compat.as_str(trace.original.name)
        warn_user(f"rnnmem did not verify {name}{self._where}: {reason}")

    def _run_first(self, trace: Trace, call: Callable[[Any], Any], inputs: list[Any]) -> Any:
        """Runs the optimised function and the original; holds the peak against the budget."""
        peaks: list[int | None] = []
        budget = self._options.budget

        def measured(function):
            if function is not trace.function or budget is None:
                return call(function)
            results, peak = run_measured(lambda: call(function))
            peaks.append(peak)
            return results

        kept = trace.original.variables if budget is not None else ()
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
        if peak is not None:
            self._peaks[id(trace.original)] = peak
        if peaks and peak is None:
            warn_user(f"the budget is not held against a measured peak: {uncounted()}")
        if peak is not None and budget is not None and peak > budget:
            self._step_down(trace, peak, before)
        else:
            self._verified.add(id(trace.original))
        return results

    def _verify_gradient(self, trace: Trace, args: tuple, kwargs: dict[str, Any]) -> None:
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

    def _step_down(self, trace: Trace, peak: int, before: list[tf.Tensor]) -> None:
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
        warnings.warn(f"{error}; the step continues with this plan", RnnmemWarning, stacklevel=4)

    def _smaller(self, trace: Trace, peak: int) -> Trace | None:
        """What runs under a plan that fits if it is as far off as this one; None: there is none."""
        budget, predicted = self._options.budget, trace.plan().predicted_peak
        if budget is None or predicted is None or trace.function is trace.original:
            return None
        if SEEN in trace.work.plan.notes and not trace.work.is_for_call:
            return None  # without sizes there is no other plan to be chosen
        stricter = dataclasses.replace(self._options, budget=min(predicted, budget**2 // peak))
        try:
            return trace_of(trace.original, stricter, self._where, trace.work.given)
        except BudgetError:  # of a budget that the user never wrote
            return None

    def _may_be_differentiated_twice(self, trace: Trace, args: tuple, kwargs: dict) -> bool:
        """Whether tapes could ask for a gradient of the gradient, which is left to TensorFlow.

        It would be summed in another order through a recomputation, and differ in its last bits.
        """
        flat = tf.nest.flatten((args, kwargs), expand_composites=True)
        tensors = [leaf for leaf in flat if isinstance(leaf, tf.Tensor)]
        return private.higher_gradients_are_possible(trace.original, tensors)

    def __deepcopy__(self, memo: dict[int, Any]) -> Optimized:
        """A function of its own, with the same options, that traces and plans again."""
        fn = self.__wrapped__
        return Optimized(
            fn if self._concrete is not None else copy.deepcopy(fn, memo), self._options
        )

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Optimized[P, R]: ...

    @overload
    def __get__(
        self: Optimized[Concatenate[_Self, _Unbound], R], instance: _Self, owner: Any = None
    ) -> Optimized[_Unbound, R]: ...

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

    @property
    def _name(self) -> str:
        """The function's name; one that was traced already, or loaded, has that of its graph."""
        graph = getattr(self._concrete, "graph", None)
        return str(getattr(self, "__name__", None) or getattr(graph, "name", "function"))

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """The decisions for these arguments; traces, but runs nothing.

        Without arguments, where a call needs some: those for the signature that was traced last.

        Raises:
          TypeError: the arguments are not those of a call.
        """
        return self._told(self._trace_asked_for(args, kwargs))

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """A report that prints as tables: each saved blob, what is decided and why; other plans.

        It is of the arguments that :meth:`plan` takes.
        """
        trace = self._trace_asked_for(args, kwargs)
        name = self._name
        plan = self._told(trace)
        notes: list[str] = []
        frontier = spared("other plans", trace.work.frontier, (), notes)
        return explain(_noted(plan, notes), name=name, frontier=frontier)

    def _told(self, trace: Trace) -> Plan:
        """The plan of a trace, with the intervals of its peaks."""
        plan = trace.plan()
        return spared("the intervals of its peaks", trace.work.told, plan)

    def inspect(self, *args: Any, **kwargs: Any) -> Inspection:
        """The function for these arguments before and after, as Nets; traces, but runs nothing.

        They are those that :meth:`plan` takes.

        Raises:
          NotUnderstood: the function holds something that a Net cannot.
        """
        return self._inspect(self._trace_asked_for(args, kwargs))

    def inspect_all(self) -> list[Inspection]:
        """Every signature that the function was called with so far; see :meth:`inspect`."""
        with self._lock:
            traces = list(self._traces.values())
        return [self._inspect(trace) for trace in traces]

    def call_traced(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Calls the function of an inspection, or the original behind it, as a user would."""
        return private.call(self._base, function, args, kwargs)

    def flat_inputs(self, inspection: Inspection, args: tuple, kwargs: dict) -> list[Any]:
        """The tensors that the inputs of an inspection's Net stand for, in order."""
        return private.flat_inputs(self._base, inspection.original, args, kwargs)

    def _inspect(self, trace: Trace) -> Inspection:
        plan = self._told(trace)
        net, rewritten = trace.work.nets()
        notes: list[str] = []
        if net is None:
            net = spared("the function", lambda: _net_as_traced(trace.original), None, notes)
        return Inspection(
            name=self._name,
            original=trace.original,
            function=trace.without_tape,
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

    def _plan_for(self, spec: Any, argument: Any) -> None:
        """Plans for an argument as open as a specification, at the sizes of one that fits it."""
        concrete = private.trace(self._base, (spec,), {})
        self._trace(concrete, (argument,), {})

    def _trace_asked_for(self, args: tuple, kwargs: dict[str, Any]) -> Trace:
        """The trace for these arguments; for none, where a call needs some, the last one."""
        if args or kwargs or not self._needs_arguments:
            return self._trace_of(args, kwargs)
        with self._lock:
            known = list(self._traces.values())
        if not known:
            raise TypeError(
                f"{self._name} was not called yet and takes arguments: "
                "give those of a call, such as plan(batch)"
            )
        return known[-1]

    @property
    def _needs_arguments(self) -> bool:
        """Whether nothing can be traced before somebody gives arguments."""
        if self._concrete is not None or self._base.input_signature is not None:
            return False
        try:
            inspect.signature(self._base.python_function).bind()
        except TypeError:
            return True
        return False

    def _trace_of(self, args: tuple, kwargs: dict[str, Any]) -> Trace:
        concrete = self._concrete
        if concrete is None:
            concrete = private.trace(self._base, args, kwargs)
        return self._trace(concrete, args, kwargs)

    @tf.autograph.experimental.do_not_convert
    def _run_traced(self, *args: Any, **kwargs: Any) -> Any:
        """What the outer tf.function traces: the optimised function, called."""
        trace = self._trace_of(args, kwargs)
        reordered = trace.taped_as_it_was and private.a_tape_is_active()
        function = trace.original if reordered else trace.function
        return private.call(self._base, function, args, kwargs)

    def _trace(self, concrete: Any, args: tuple, kwargs: dict[str, Any]) -> Trace:
        with self._lock:
            if id(concrete) not in self._traces:
                given = facts_in_call(self._base, concrete, args, kwargs)
                self._traces[id(concrete)] = trace_of(concrete, self._options, self._where, given)
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


def within_budget(function: Optimized, budget: int) -> Optimized:
    """The same function, planned anew for the least time within so many bytes, or its own fewer."""
    options = function._options
    least = budget if options.budget is None else min(budget, options.budget)
    return Optimized(
        function.__wrapped__, dataclasses.replace(options, budget=least, plan=None, profile=0.0)
    )


_IN_A_GRAPH = (
    "it is called inside of another tf.function, where nothing runs twice; decorate the outermost "
    "function to have it verified"
)


def _tolerance(plan: Plan) -> dict[str, float] | None:
    """How far numbers may be off under a plan; None where no bit may be."""
    if plan.rounds:
        return ROUNDED
    return TOLERANCE if plan.sums_by_chunks else None


def _noted(plan: Plan, notes: list[str]) -> Plan:
    return dataclasses.replace(plan, notes=(*plan.notes, *notes)) if notes else plan


def _net_as_traced(concrete: Any) -> Net:
    return without_pruned_ops(inline(net_of(concrete)))


def _line_of(fn: Any) -> str:
    """Where a function was written, in brackets; empty where nobody knows."""
    code = getattr(inspect.unwrap(getattr(fn, "python_function", fn)), "__code__", None)
    if code is None:
        return ""
    return f" ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
