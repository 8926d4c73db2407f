"""Runs a program and its optimised twin from the same state, and keeps what came of it."""

from __future__ import annotations

import dataclasses
import functools
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import rnnmem
from rnnmem.ir.graph import Net
from rnnmem.ir.inline import inline
from rnnmem.ir.order import without_dead_ops
from rnnmem.passes.normalise.gradient_loops import without_dead_gradients
from rnnmem.simulate.interval import Interval, peak_interval
from rnnmem.tf.device import executor_threads
from rnnmem.tf.functions import net_of
from tests.allocations import asked_for
from tests.conformance.expectations import CELLS, WHOLE_TABLE
from tests.conformance.programs import PROGRAMS, Case, Program, train_step

KIB = 1024
STEPS = 3
ASKS_PREDICTIONS = bool(os.environ.get(WHOLE_TABLE) or os.environ.get(CELLS))
"""Whether predicted peaks are held against measured ones."""
MEASURED = 2 if ASKS_PREDICTIONS else 1
"""How often a peak is measured."""
MEASURED_AGAIN = 12
"""How many times as often it is measured before a rise is believed."""
SLACK = 16 * KIB
"""Bytes by which what is asked for may rise, beside a fiftieth."""
LARGE = 16 * KIB * KIB
"""Bytes above which a prediction must be narrow."""
WIDEST = 1.2
"""How many times its lowest peak the highest one of such a prediction may be."""
EVERYTHING = 1e9
"""A slowdown at which whatever can be recomputed is."""

FUSIONS = ("arithmetic_optimization", "constant_folding", "remapping")


@dataclasses.dataclass(frozen=True)
class Run:
    """What ``STEPS`` steps left behind.

    Attributes:
      results: of each step: loss, outputs, gradients, then all variables.
      effects: side effects that the steps had.
      peaks: bytes above the resident state, of some more steps; empty where none was measured.
      asked: the same without what the allocator's chunks are larger than the buffers.
    """

    results: list[list[Any]]
    effects: Any
    peaks: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()


class Subject:
    """One freshly built program that is run in several ways, each time from its first state."""

    def __init__(self, case: Case, step: Callable[..., Any] | None = None, **options: Any):
        self.case = case
        self.options = options
        self.function = tf.function(step or train_step(case), **options)
        traced = self.function.get_concrete_function(*case.inputs)
        found = [*case.variables, *case.state, *traced.graph.variables]
        self.variables = list({id(one): one for one in found}.values())
        self.start = [one.numpy() for one in self.variables]

    def reset(self) -> None:
        for variable, value in zip(self.variables, self.start, strict=True):
            variable.assign(value)

    def run(
        self,
        function: Callable[..., Any],
        *,
        measured: bool = False,
        inputs: tuple[Any, ...] | None = None,
    ) -> Run:
        """Runs a function from the first state, on the case's own inputs where none are given."""
        self.reset()
        inputs = self.case.inputs if inputs is None else inputs
        before = self.case.effects()
        results = []
        for _ in range(STEPS):
            returned = function(*inputs)
            leaves = tf.nest.flatten(returned, expand_composites=True)
            results.append([one.numpy() for one in [*leaves, *self.variables]])
        after = self.case.effects()
        effects = after - before if isinstance(after, int) else after
        peaks, asked = [], []
        for _ in range(MEASURED if measured else 0):
            self.reset()
            peaks.append(rnnmem.measure(function, *inputs, repeats=1).peak_bytes)
            with tempfile.TemporaryDirectory() as folder:
                asked.append(asked_for(function, inputs, folder))
        return Run(results, effects, tuple(peaks), tuple(asked))

    def prediction(self, plan: rnnmem.Plan | None = None) -> Interval | None:
        """Between which bytes the peak is predicted to lie: of the original, or by a plan."""
        if plan is not None and is_improved(plan):
            return plan.predicted_interval
        return peak_interval(self.net, executor_threads())

    @functools.cached_property
    def net(self) -> Net:
        """The original as it is planned on."""
        traced = self.function.get_concrete_function(*self.case.inputs)
        return without_dead_gradients(without_dead_ops(inline(net_of(traced))))

    def optimised(self, slowdown: float = EVERYTHING) -> tuple[Any, rnnmem.Plan]:
        """The optimised function and its plan; an error in planning is raised."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", rnnmem.RnnmemWarning)
            function = rnnmem.optimize(self.function, max_slowdown=slowdown)
            if ASKS_PREDICTIONS:
                return function, function.plan(*self.case.inputs)
            return function, function._trace_of(self.case.inputs, {}).plan()  # no intervals

    def compare(self, slowdown: float = EVERYTHING) -> str:
        """The first difference between the original and the optimised function, in words."""
        function, _ = self.optimised(slowdown)
        return difference(self.run(self.function), self.run(function))


def higher(original: Run, run: Run) -> str:
    """In words where the peak rose; which of several ready ops runs first is a race, so a little.

    What was asked for depends on that race only, and decides alone; chunks are a race as well, so
    there the rise must be larger, and in both.
    """
    pairs = (original.peaks, run.peaks), (original.asked, run.asked)
    if all(min(after) > 1.02 * max(before) + 64 * KIB for before, after in pairs):
        return f"{run.peaks} bytes, not {original.peaks}"
    if min(run.asked) > 1.02 * max(original.asked) + SLACK:
        return f"{run.asked} bytes asked for, not {original.asked}"
    return ""


def rose(
    subject: Subject,
    function: Callable[..., Any],
    original: Run,
    run: Run,
    inputs: tuple[Any, ...] | None = None,
) -> str:
    """As :func:`higher`; a rise is believed only once both were measured several times more.

    Which of several ready ops runs first may go one way in all runs of a trace, and the other way
    in those of the next, so each time both are traced again.

    Args:
      subject: the program.
      function: optimised.
      original: a run of the program as it is.
      run: the same of the function.
      inputs: what both were run on; None: the case's own.
    """
    for _ in range(MEASURED_AGAIN):
        if not higher(original, run):
            return ""
        anew = tf.function(subject.function.python_function, **subject.options)
        again = rnnmem.Optimized(anew, function._options)
        original = _with(original, subject.run(anew, measured=True, inputs=inputs))
        run = _with(run, subject.run(again, measured=True, inputs=inputs))
    return higher(original, run)


def _with(run: Run, more: Run) -> Run:
    return dataclasses.replace(run, peaks=run.peaks + more.peaks, asked=run.asked + more.asked)


def grows_faster(original: Sequence[Run], runs: Sequence[Run]) -> str:
    """In words where more trips take more memory than they took.

    Args:
      original: at few trips and at many.
      runs: the same of the optimised function.
    """
    few, many = (min(run.asked) for run in runs)
    fewer, more = (max(run.asked) for run in original)
    if many - few > max(0, more - min(original[0].asked)) * 1.02 + SLACK:
        return f"{few} to {many} bytes asked for, not {fewer} to {more}"
    return ""


def outside(predicted: Interval | None, run: Run) -> str:
    """In words where a measured peak is outside of its prediction, or that is too wide to be one.

    Args:
      predicted: between which bytes.
      run: what was measured, several times: which ops meet in memory is a race.
    """
    if predicted is None:
        return "no prediction: a size or a trip count is unknown"
    (low, high), (least, most) = predicted, (min(run.peaks), max(run.peaks))
    if not low <= least <= most <= high:
        return f"predicted {low} to {high} bytes, measured {least} to {most}"
    if low > LARGE and high > WIDEST * low:
        return f"predicted {low} to {high} bytes, which is too wide"
    return ""


def set_fusions(on: bool) -> None:
    """Switches the three passes that fuse by neighbourhood."""
    tf.config.optimizer.set_experimental_options(dict.fromkeys(FUSIONS, on))


def difference(original: Run, optimised: Run) -> str:
    """The first result whose bits differ, in words; empty where none does."""
    for step, (before, after) in enumerate(zip(original.results, optimised.results, strict=True)):
        gap = first_gap(before, after)
        if gap:
            return f"step {step}: {gap}"
    return ""


def first_gap(before: list, after: list) -> str:
    """The first of two lists of arrays whose bits differ, in words."""
    for index, (one, other) in enumerate(zip(before, after, strict=True)):
        one, other = np.asarray(one), np.asarray(other)
        where = f"result {index} of {len(before)}"
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"{where} is {other.dtype}{other.shape}, not {one.dtype}{one.shape}"
        if one.dtype == object:
            if one.tolist() != other.tolist():
                return f"{where} has another text"
        elif one.tobytes() != other.tobytes():
            return f"{where} is off by up to {distance(one, other):.3g}"
    return ""


def distance(one, other) -> float:
    """The largest difference of two arrays of numbers."""
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    return float(np.max(np.abs(one.astype(wide) - other.astype(wide))))


def reasons(plan: rnnmem.Plan) -> tuple[str, ...]:
    """Why loops were left as they were; one entry a loop, or what the plan notes."""
    loops = tuple(plan.every_loop())
    left = tuple(loop.closed for loop in loops if loop.closed)
    found = loops or plan.at_every_depth("straight_line")
    return left or plan.notes or (() if found else ("no loop pair was found",))


def is_improved(plan: rnnmem.Plan) -> bool:
    """Whether any loop was rewritten."""
    return not plan.changes_nothing


def chosen(some: Sequence[str], fits: Callable[[Program], bool] = lambda _: True) -> Sequence[str]:
    """The rows of a column: some of them, and all that it fits where the whole table is asked."""
    if not os.environ.get(WHOLE_TABLE):
        return some
    return [name for name, program in PROGRAMS.items() if fits(program)]
