"""``report``: where what is planned on Nets and what TensorFlow measures are told together."""

from __future__ import annotations

import dataclasses
import functools
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
from rnnmem.reports.report import Report
from rnnmem.tf.counting import counts_memory, uncounted
from rnnmem.tf.measure import run_measured
from rnnmem.tf.timing import StepTimer

RUNS = 2
"""Measured runs of each variant; the largest peak counts."""
TIMED_SECONDS = 0.5
"""For about so long the two are run in turn."""
FAR = 0.1
"""Part of the bound on time beyond which a measured time is a reason for a note."""
LONG_SECONDS = 0.25
"""A step that takes longer is measured once."""


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
      OptionError: ``fn`` is not callable, or ``measure`` is none of True, False and None.
      MeasureError: ``measure=True`` and the device counts no memory.
      BudgetError: the budget that ``fn`` was optimised under cannot be met.
      NotUnderstood: the function holds something that a Net cannot.
    """
    if measure not in (True, False, None):
        raise OptionError(f"measure={measure!r} must be True, False or None")
    start = time.perf_counter()
    optimised = fn if isinstance(fn, Optimized) else optimize(fn)
    inspection = optimised.inspect(*args, **kwargs)
    planned = time.perf_counter()
    specs = [one for one in tf.nest.flatten((args, kwargs)) if isinstance(one, tf.TypeSpec)]
    given = args or kwargs or not _takes_arguments(inspection.original)
    inputs = None
    if given and not specs:
        inputs = optimised.flat_inputs(inspection, args, kwargs)
    peaks: tuple[int | None, int | None] = (None, None)
    notes: list[str] = []
    if measure is not False and inputs is not None:
        peaks, notes = _measured(optimised, inspection, args, kwargs, measure)
        inspection = _with_time(optimised, inspection, inputs, args, kwargs, notes, peaks)
    measured = time.perf_counter()
    made = report_on(inspection, inputs, peaks, tuple(notes))
    made.seconds.update(
        plan=planned - start,
        measure=measured - planned,
        report=time.perf_counter() - measured,
    )
    return made


def _takes_arguments(concrete: Any) -> bool:
    return len(concrete.graph.inputs) > len(concrete.captured_inputs)


def _measured(
    optimised: Optimized, inspection: Inspection, args: tuple, kwargs: dict, wanted: bool | None
) -> tuple[tuple[int | None, int | None], list[str]]:
    """The peaks of both variants, as the allocator counts them; and what is to be said of them."""
    if inspection.joint:
        return (None, None), ["nothing was measured: a call does not run the gradient"]
    if not counts_memory():
        why = f"nothing was measured: {uncounted()}"
        if wanted:
            raise MeasureError(why)
        return (None, None), [why]
    if inspection.net is None:
        return (None, None), ["nothing was measured: whether a run has effects is not known"]
    effects = sorted({op.type for _, net in inspection.net.walk() for op in net.ops if _acts(op)})
    if effects and wanted is None:
        why = f"a run has effects ({', '.join(effects[:3])}); measure=True runs it all the same"
        return (None, None), [f"nothing was measured: {why}"]
    variables = list(inspection.original.graph.variables)
    values = [np.array(one.numpy()) for one in variables]

    def peak(function: Any) -> int | None:
        def call() -> Any:
            return optimised.call_traced(function, args, kwargs)

        try:
            call()  # variables and kernels are made by the first run
            start = time.perf_counter()
            found = run_measured(call)[1] or 0
            again = RUNS - 1 if time.perf_counter() - start < LONG_SECONDS else 0
            return max(found, *(run_measured(call)[1] or 0 for _ in range(again)), 0) or None
        finally:
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

    before = peak(inspection.original)
    after = before if inspection.function is inspection.original else peak(inspection.function)
    told = [f"nothing was measured: {uncounted()}"] if None in (before, after) else []
    return (before, after), told


def _with_time(
    optimised: Optimized,
    inspection: Inspection,
    inputs: list[Any],
    args: tuple,
    kwargs: dict,
    notes: list[str],
    peaks: tuple[int | None, int | None],
) -> Inspection:
    """The inspection, whose plan tells the measured factor of step time where peaks are known."""
    plan, original = inspection.plan, inspection.original
    if None in peaks or plan.changes_nothing:
        return inspection
    call = functools.partial(optimised.call_traced, args=args, kwargs=kwargs)
    try:
        ratio = StepTimer(original, call, inputs).ratio(inspection.function, TIMED_SECONDS)
    except NotUnderstood as reason:
        notes.append(f"its time was not measured: {reason}")
        return inspection
    bound = inspection.options.max_slowdown
    if inspection.options.budget is None and ratio > (1 + FAR) * bound:
        notes.append(
            f"the step took {ratio:.2f}x the original's time, which is above max_slowdown="
            f"{bound:g}; optimize(profile=True) holds the plan against measured times"
        )
    measured = dataclasses.replace(plan, measured_slowdown=ratio)
    return dataclasses.replace(inspection, plan=measured)


def _acts(op: Op) -> bool:
    """Whether running the op can be seen elsewhere than in a variable or a random stream."""
    if not op.stateful or op.nets or op.type == "VarHandleOp":
        return False
    is_random = {"seed", "seed2"} <= op.attributes.keys()
    return not is_random and effect(op.type) not in ("none", "reads", "draws", "variable")
