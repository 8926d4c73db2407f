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
from rnnmem.errors import OptionError, RnnmemWarning
from rnnmem.net.cost import CPU, GPU, Machine
from rnnmem.net.inline import inline
from rnnmem.net.order import without_dead_ops
from rnnmem.options import Options
from rnnmem.plan import Plan
from rnnmem.recompute.planner import plan_net
from rnnmem.report.explain import Explanation, explain
from rnnmem.rewrite.net import apply_plan
from rnnmem.tf import private
from rnnmem.tf.attributes import constant
from rnnmem.tf.functions import function_of, net_of
from rnnmem.tf.verify import run_verified

DISABLE = "RNNMEM_DISABLE"
"""Set to 1 in the environment, every function runs as TensorFlow runs it."""


def optimize(
    fn: Callable[..., Any] | None = None,
    *,
    budget: int | str | None = None,
    max_slowdown: float = 1.1,
    allow: tuple[str, ...] | None = None,
    verify: bool = False,
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
        the least time.
      max_slowdown: without a budget, spend at most this factor of step time for the least memory.
      allow: which means may be used; all exact ones by default.
      verify: on the first call of each signature also run the original and raise if any bit of an
        output or a variable differs. An error in planning is raised then, not warned of.

    Returns:
      A callable like ``fn``, with ``plan(*args)``, ``explain(*args)`` and
      ``get_concrete_function(*args)``.

    Raises:
      OptionError: an option is malformed, or ``fn`` is not callable.
    """
    options = Options.of(budget, max_slowdown, allow, verify)
    if fn is None:
        return functools.partial(
            optimize, budget=budget, max_slowdown=max_slowdown, allow=allow, verify=verify
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
      plan: the decisions.
    """

    original: Any
    function: Any
    plan: Plan


class Optimized:
    """A function that ``optimize`` was applied to; call it like the original."""

    def __init__(self, fn: Callable[..., Any], options: Options):
        self.__wrapped__ = fn
        functools.update_wrapper(self, fn, updated=())
        self._options = options
        self._lock = threading.RLock()
        self._traces: dict[int, _Trace] = {}
        self._verified: set[int] = set()
        self._bound: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._concrete = fn if private.is_concrete(fn) else None
        self._base = None
        if self._concrete is None:
            self._base = fn if private.is_polymorphic(fn) else tf.function(fn)
            self._function = private.function_like(self._base, self._run_traced)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the optimised function on the same arguments as the original."""
        if self._options.verify and tf.executing_eagerly():
            trace = self._trace_of(args, kwargs)
            if id(trace.original) not in self._verified and trace.function is not trace.original:
                results = run_verified(
                    trace.original,
                    trace.function,
                    lambda function: private.call(self._base, function, args, kwargs),
                )
                self._verified.add(id(trace.original))
                return results
        try:
            if self._concrete is not None:
                return self._trace(self._concrete).function(*args, **kwargs)
            return self._function(*args, **kwargs)
        except TypeError:
            self._raise_as_original(args, kwargs)
            raise

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
        return self._trace_of(args, kwargs).plan

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """A report that prints as a table: each saved blob, what becomes of it, and why."""
        trace = self._trace_of(args, kwargs)
        return explain(trace.plan, name=getattr(self, "__name__", "function"))

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> Any:
        """The optimised ConcreteFunction for these arguments."""
        return self._trace_of(args, kwargs).function

    def _trace_of(self, args: tuple, kwargs: dict[str, Any]) -> _Trace:
        if self._concrete is not None:
            return self._trace(self._concrete)
        return self._trace(self._base.get_concrete_function(*args, **kwargs))

    @tf.autograph.experimental.do_not_convert
    def _run_traced(self, *args: Any, **kwargs: Any) -> Any:
        """What the outer tf.function traces: the optimised function, called."""
        return private.call(self._base, self._trace_of(args, kwargs).function, args, kwargs)

    def _trace(self, concrete: Any) -> _Trace:
        with self._lock:
            if id(concrete) not in self._traces:
                self._traces[id(concrete)] = _optimized(concrete, self._options)
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


def _optimized(concrete: Any, options: Options) -> _Trace:
    """Plans and rewrites one traced function; whatever fails, the original runs."""
    if os.environ.get(DISABLE, "") not in ("", "0"):
        return _Trace(concrete, concrete, Plan(notes=(f"{DISABLE} is set",)))
    try:
        net = without_dead_ops(inline(net_of(concrete)))
        plan = plan_net(net, _machine(), options.max_slowdown)
        if plan.changes_nothing:
            return _Trace(concrete, concrete, plan)
        rewritten = apply_plan(net, plan, constant, anchored=not private.is_compiled(concrete))
        check(net, rewritten)
        return _Trace(concrete, function_of(rewritten, concrete), plan)
    except Exception as error:
        if options.verify:
            raise
        reason = f"{type(error).__name__}: {error}"
        name = tf.compat.as_str(concrete.name)
        warnings.warn(f"rnnmem left {name} as it was: {reason}", RnnmemWarning, stacklevel=2)
        return _Trace(concrete, concrete, Plan(notes=(reason,)))


def _machine() -> Machine:
    return GPU if tf.config.list_logical_devices("GPU") else CPU
