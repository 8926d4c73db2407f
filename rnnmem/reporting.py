"""``report``: where what is planned on Nets and what TensorFlow measures are told together."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rnnmem.api import Optimized, optimize
from rnnmem.errors import MeasureError, NotUnderstood, OptionError
from rnnmem.ir.graph import Op
from rnnmem.ir.op_table import effect
from rnnmem.reports.api import report_on
from rnnmem.reports.inspection import Inspection
from rnnmem.reports.measured import Measured
from rnnmem.reports.report import Report
from rnnmem.spared import spared
from rnnmem.tf.counting import counts_memory, uncounted
from rnnmem.tf.measure import run_measured
from rnnmem.tf.memory_trace import Change, trace_memory
from rnnmem.tf.timing import StepTimer
from rnnmem.warn import warn_user

RUNS = 2
"""Measured runs of each variant; the largest peak counts."""
TIMED_SECONDS = 0.5
"""For about so long the two are run in turn."""
FAR = 0.1
"""Part of the bound on time beyond which a measured time is a reason for a note."""
LONG_SECONDS = 0.25
"""A step that takes longer is measured once."""
TRACED_SECONDS = 10.0
"""Of a step that takes longer, memory over time is not measured: there are too many events."""


def report(
    fn: Callable[..., Any], *args: Any, measure: bool | None = None, **kwargs: Any
) -> Report:
    """Tells where the memory of a function goes, as TensorFlow runs it and as rnnmem does.

    The timeline is that of the simulation which plans are chosen by, so the named parts add up to
    the predicted peak. A loop whose length only a run can tell is run (not its gradient) to count.

    Args:
      fn: what :func:`rnnmem.optimize` takes, or what it returned. A function that it was not
        applied to is described as ``optimize`` with its defaults would run it.
      *args: arguments of one call; where nothing is to be run, ``tf.TensorSpec`` will do.
      measure: whether to run the function as well, some times in either form, and measure its peak
        beside the predicted one, and its time. Variables are put back afterwards. None: where the
        device counts memory, and a run has no effect but on variables.
      **kwargs: keyword arguments of the call.

    Returns:
      The report: ``print`` it, or ``save("report.html")``.

    Raises:
      OptionError: ``fn`` is not callable, ``measure`` is none of True, False and None, or an option
        of ``optimize`` is given here, which ``fn`` does not take.
      MeasureError: ``measure=True`` and the device counts no memory.
      BudgetError: the budget that ``fn`` was optimised under cannot be met.
      NotUnderstood: the function holds something that a Net cannot.
    """
    if measure not in (True, False, None):
        raise OptionError(f"measure={measure!r} must be True, False or None")
    _check_no_options(fn, kwargs)
    start = time.perf_counter()
    optimised = fn if isinstance(fn, Optimized) else optimize(fn)
    inspection = optimised.inspect(*args, **kwargs)
    planned = time.perf_counter()
    specs = [one for one in tf.nest.flatten((args, kwargs)) if isinstance(one, tf.TypeSpec)]
    given = args or kwargs or not _takes_arguments(inspection.original)
    inputs = None
    if given and not specs:
        inputs = optimised.flat_inputs(inspection, args, kwargs)
    before, after = Measured(), Measured()
    notes: list[str] = []
    if measure is not False and inputs is not None:
        before, after = _measured(optimised, inspection, args, kwargs, measure, notes)
        if before.peak is not None and after.peak is not None:
            inspection = _with_time(optimised, inspection, inputs, args, kwargs, notes)
    measured = time.perf_counter()
    made = report_on(inspection, inputs, (before, after), tuple(notes))
    made.seconds.update(
        plan=planned - start,
        measure=measured - planned,
        report=time.perf_counter() - measured,
    )
    return made


def _check_no_options(fn: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Options belong to ``optimize``: here they would be arguments of the call."""
    options = kwargs.keys() & inspect.signature(optimize).parameters.keys()
    try:
        taken = inspect.signature(getattr(fn, "python_function", fn)).parameters.values()
    except (TypeError, ValueError):  # it does not tell
        return
    if any(one.kind is one.VAR_KEYWORD for one in taken):
        return
    for name in sorted(options - {one.name for one in taken}):
        given = f"{name}={kwargs[name]!r}"
        raise OptionError(
            f"{given} is an option of optimize: report(rnnmem.optimize(fn, {given}), ...)"
        )


def _takes_arguments(concrete: Any) -> bool:
    return len(concrete.graph.inputs) > len(concrete.captured_inputs)


def _measured(
    optimised: Optimized,
    inspection: Inspection,
    args: tuple,
    kwargs: dict,
    wanted: bool | None,
    notes: list[str],
) -> tuple[Measured, Measured]:
    """Both variants as the allocator counts them; what is to be said of them is added to notes."""
    nothing = Measured(), Measured()
    if inspection.joint:
        notes.append("nothing was measured: a call does not run the gradient")
        return nothing
    if not counts_memory():
        why = f"nothing was measured: {uncounted()}"
        if wanted:
            raise MeasureError(why)
        notes.append(why)
        return nothing
    if inspection.net is None:
        notes.append("nothing was measured: whether a run has effects is not known")
        return nothing
    effects = sorted({op.type for _, net in inspection.net.walk() for op in net.ops if _acts(op)})
    if effects and wanted is None:
        why = f"a run has effects ({', '.join(effects[:3])}); measure=True runs it all the same"
        notes.append(f"nothing was measured: {why}")
        return nothing
    variables = list(inspection.original.graph.variables)
    values = [np.array(one.numpy()) for one in variables]

    def measured(function: Any) -> Measured:
        def call() -> Any:
            return optimised.call_traced(function, args, kwargs)

        try:
            call()  # variables and kernels are made by the first run
            start = time.perf_counter()
            found = run_measured(call)[1] or 0
            seconds = time.perf_counter() - start
            again = RUNS - 1 if seconds < LONG_SECONDS else 0
            peak = max(found, *(run_measured(call)[1] or 0 for _ in range(again)), 0)
            return Measured(peak or None, _traced(call, seconds, notes))
        finally:
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

    before = measured(inspection.original)
    after = before if inspection.function is inspection.original else measured(inspection.function)
    if None in (before.peak, after.peak):
        notes.append(f"nothing was measured: {uncounted()}")
    return before, after


def _traced(call: Callable[[], Any], seconds: float, notes: list[str]) -> tuple[Change, ...]:
    """Memory over one more run; nothing, and a note, where it cannot be had."""
    why = f"a step takes {seconds:.0f} s, and TensorFlow's profiler keeps every event"
    if seconds < TRACED_SECONDS:
        try:
            return spared("memory over time", lambda: trace_memory(call), (), notes)
        except MeasureError as error:
            why = str(error)
    notes.append(f"memory over time was not measured: {why}")
    return ()


def _with_time(
    optimised: Optimized,
    inspection: Inspection,
    inputs: list[Any],
    args: tuple,
    kwargs: dict,
    notes: list[str],
) -> Inspection:
    """The inspection, whose plan tells the measured factor of step time."""
    plan, original = inspection.plan, inspection.original
    if plan.changes_nothing:
        return inspection
    call = functools.partial(optimised.call_traced, args=args, kwargs=kwargs)
    try:
        ratio = StepTimer(original, call, inputs).ratio(inspection.function, TIMED_SECONDS)
    except NotUnderstood as reason:
        notes.append(f"its time was not measured: {reason}")
        return inspection
    bound = inspection.options.max_slowdown
    if inspection.options.budget is None and ratio > (1 + FAR) * bound:
        told = (
            f"the step took {ratio:.2f}x the original's time, which is above max_slowdown="
            f"{bound:g} ({plan.slowdown:.2f}x was estimated); optimize(profile=True) holds the "
            "plan against measured times"
        )
        notes.append(told)
        warn_user(f"rnnmem: {told}")
    measured = dataclasses.replace(plan, measured_slowdown=ratio)
    return dataclasses.replace(inspection, plan=measured)


def _acts(op: Op) -> bool:
    """Whether running the op can be seen elsewhere than in a variable or a random stream."""
    if not op.stateful or op.nets or op.type == "VarHandleOp":
        return False
    is_random = {"seed", "seed2"} <= op.attributes.keys()
    return not is_random and effect(op.type) not in ("none", "reads", "draws", "variable")
