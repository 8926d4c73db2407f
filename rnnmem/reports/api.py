"""``report``: where what is planned on Nets and what TensorFlow measures are told together."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rnnmem.analysis.shape_rules import Fact
from rnnmem.analysis.shapes import KnownNet, filled, known_net
from rnnmem.api import Inspection, Optimized, optimize
from rnnmem.errors import MeasureError, OptionError
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import effect
from rnnmem.reports.data import Side
from rnnmem.reports.kinds import Kinds
from rnnmem.reports.moments import side
from rnnmem.reports.report import Report
from rnnmem.reports.resident import resident, weight_kinds
from rnnmem.reports.stepnets import graphs
from rnnmem.simulate.timeline import Record, record
from rnnmem.spared import spared
from rnnmem.tf import private
from rnnmem.tf.counting import counts_memory, uncounted
from rnnmem.tf.gc import paused
from rnnmem.tf.measure import run_measured
from rnnmem.tf.trips import observed_trips

RUNS = 2
"""Measured runs of each variant; the largest peak counts."""
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
        applied to is told of as ``optimize`` with its defaults would run it.
      *args: arguments of one call; where nothing is to be run, ``tf.TensorSpec`` will do.
      measure: whether to run the function as well, two or three times in either form, and measure
        its peak beside the predicted one. Variables are put back afterwards. None: where the device
        counts memory, and a run has no effect but on variables.
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
    peaks, notes = (None, None), []
    if measure is not False and inputs is not None:
        peaks, notes = _measured(optimised, inspection, args, kwargs, measure)
    measured = time.perf_counter()
    made = report_on(inspection, inputs, peaks, tuple(notes))
    made.seconds.update(
        plan=planned - start,
        measure=measured - planned,
        report=time.perf_counter() - measured,
    )
    return made


def report_on(
    inspection: Inspection,
    inputs: Sequence[Any] | None = None,
    peaks: tuple[int | None, int | None] = (None, None),
    notes: tuple[str, ...] = (),
    batch: int | None = None,
) -> Report:
    """The report on a function that was traced and planned already; runs nothing but its loops.

    Args:
      inspection: from ``Optimized.inspect``.
      inputs: tensors for the inputs of its Net, or None where there are none.
      peaks: what was measured before and after.
      notes: more to be told.
      batch: where ``inputs`` is None, stands for a first dimension that an input leaves open.
    """
    notes = list(notes)
    with paused():
        plan = inspection.plan
        variables = inspection.original.graph.variables
        weights = spared(
            "which variables are weights", lambda: weight_kinds(variables), frozenset()
        )
        facts = spared("the arguments' shapes", lambda: _facts(inspection, inputs, batch), None)
        observed = _observed(inspection, inputs, facts, notes)

        def told(name: str, net: Net | None, peak: int | None) -> tuple[Side, Net | None]:
            """One variant's timeline, and its Net with all shapes that are known."""
            known = spared(f"the shapes {name}", lambda: _known(net, facts, observed), None, notes)
            unknown = Side(name, None, peak, unknown=("the function",))
            if known is None:
                return unknown, None
            whole = spared(f"the Net {name}", lambda: filled(known), None, notes)
            if whole is None:
                return unknown, None

            def timeline() -> Side:
                first = whole if original is None else original
                kinds = Kinds(whole, first, plan, weights)
                return side(name, _recorded(known, compiled), kinds, peak)

            return spared(f"the timeline {name}", timeline, unknown, notes), whole

        compiled = private.is_compiled(inspection.original)
        original = None
        before, original = told("before", inspection.net, peaks[0])
        after, rewritten = _renamed(before, "after"), original
        if inspection.rewritten is not None:
            after, rewritten = told("after", inspection.rewritten, peaks[1])
        drawn = ()
        if original is not None and rewritten is not None:
            draw = functools.partial(graphs, original, rewritten, plan)
            drawn = spared("the step nets", draw, (), notes)
    if inspection.joint:
        notes.append("told of is the function together with its gradient")
    for path, trips in observed.items():
        notes.append(f"loop {path} ran {trips} iterations on these arguments")
    tensors = inputs or inspection.original.graph.inputs
    held = spared("what is resident", lambda: resident(inspection.original, tensors), (), notes)
    return Report(
        name=inspection.name,
        before=before,
        after=after,
        plan=plan,
        resident=held,
        budget=inspection.options.budget,
        graphs=drawn,
        notes=(*plan.notes, *_left(plan), *notes),
        seconds={},
    )


def _recorded(known: KnownNet, compiled: bool) -> Record:
    """A simulated run; of a function that XLA compiles it is not known what the buffers are."""
    found = record(known)
    if not compiled:
        return found
    return dataclasses.replace(found, unknown=("the buffers that XLA lays out",))


def _known(
    net: Net | None, facts: list[Fact] | None, observed: Mapping[str, int]
) -> KnownNet | None:
    return None if net is None else known_net(net, facts, None, observed)


def _observed(
    inspection: Inspection,
    inputs: Sequence[Any] | None,
    facts: list[Fact] | None,
    notes: list[str],
) -> Mapping[str, int]:
    """The iterations of loops whose number only a run tells."""
    net = inspection.net
    if not inputs or net is None:
        return {}
    run = functools.partial(observed_trips, net=net, inputs=inputs)
    return spared("the iterations of loops", lambda: run(known_net(net, facts)), {}, notes)


def _takes_arguments(concrete: Any) -> bool:
    return len(concrete.graph.inputs) > len(concrete.captured_inputs)


def _facts(
    inspection: Inspection, inputs: Sequence[Any] | None, batch: int | None
) -> list[Fact] | None:
    """What the inputs of a Net are in this call."""
    if inspection.net is None:
        return None
    count = len(inspection.net.inputs)
    if inputs is None and batch is None:
        return None
    if inputs is None:
        inputs = inspection.original.graph.inputs
    known = [_fact(one, batch) if _is_dense(one) else Fact() for one in inputs]
    return known[:count] + [Fact()] * (count - len(known))


def _fact(value: Any, batch: int | None) -> Fact:
    shape = tuple(value.shape)
    if shape and shape[0] is None:
        shape = batch, *shape[1:]
    return Fact(shape=shape)


def _is_dense(value: Any) -> bool:
    return value.dtype not in (tf.resource, tf.variant) and value.shape.rank is not None


def _left(plan) -> list[str]:
    """Loops that were left as they were, with the line and the reason."""
    found = []
    for loop in (loop for loop in plan.every_loop() if loop.closed):
        where = f" ({loop.source})" if loop.source else ""
        found.append(f"loop {'/'.join(loop.path)}{where} is left as it was: {loop.closed}")
    return found


def _renamed(side: Side, name: str) -> Side:
    return dataclasses.replace(side, name=name)


def _measured(
    optimised: Optimized, inspection: Inspection, args: tuple, kwargs: dict, wanted: bool | None
) -> tuple[tuple[int | None, int | None], list[str]]:
    """The peaks of both variants, as the allocator counts them; and what is to be told of it."""
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

    def peak(with_plan: bool) -> int | None:
        def call() -> Any:
            return optimised.call_variant(inspection, with_plan, args, kwargs)

        try:
            call()  # variables and kernels are made by the first run
            start = time.perf_counter()
            found = run_measured(call)[1] or 0
            again = RUNS - 1 if time.perf_counter() - start < LONG_SECONDS else 0
            return max(found, *(run_measured(call)[1] or 0 for _ in range(again)), 0) or None
        finally:
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

    before = peak(False)
    after = before if inspection.function is inspection.original else peak(True)
    told = [f"nothing was measured: {uncounted()}"] if None in (before, after) else []
    return (before, after), told


def _acts(op: Op) -> bool:
    """Whether running the op can be seen elsewhere than in a variable or a random stream."""
    if not op.stateful or op.nets or op.type == "VarHandleOp":
        return False
    is_random = {"seed", "seed2"} <= op.attributes.keys()
    return not is_random and effect(op.type) not in ("none", "reads", "draws", "variable")
