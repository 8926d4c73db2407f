"""Keras models: ``optimize`` for what ``fit`` runs, and a callback that tells its memory.

Models are those of Keras 3 on TensorFlow, or of Keras 2, which is installed as tf_keras.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import warnings
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from rnnmem import api
from rnnmem.errors import OptionError, RnnmemError, RnnmemWarning
from rnnmem.optimized import Optimized
from rnnmem.planning.options import Options, check_names
from rnnmem.planning.plan import Plan
from rnnmem.reports.api import report_on
from rnnmem.reports.memory_log import MemoryLog
from rnnmem.reports.report import Report
from rnnmem.sizes import MIB
from rnnmem.tf import private
from rnnmem.warn import warn_user

_NOT_APPLIED = "rnnmem.keras.optimize was not applied: the model runs as before, not as after"


def optimize(model: Any, **options: Any) -> Any:
    """Makes a Keras model train in less memory, in place; everything else stays as it is.

    ``fit``, ``train_on_batch``, ``evaluate``, ``predict``, ``save`` and custom ``train_step``
    methods work as before; ``compile`` may come before or after. A model that is loaded from a file
    is a new one: call ``optimize`` on it too. With ``run_eagerly=True`` there is no graph, and
    nothing to rewrite.

    Args:
      model: a ``keras.Model``, or a ``tf_keras.Model``.
      **options: those of :func:`rnnmem.optimize`.

    Returns:
      The model itself.

    Raises:
      OptionError: ``model`` is no Keras model, or one on another backend than TensorFlow; or an
        option is malformed.
    """
    _check(options)
    if isinstance(model, keras.Model) and keras.config.backend() != "tensorflow":
        raise OptionError(
            f"model={type(model).__name__} trains with Keras' backend {keras.config.backend()!r}: "
            "rnnmem rewrites graphs of TensorFlow's; set KERAS_BACKEND=tensorflow before Keras is "
            "imported"
        )
    if _takes_batches_itself(model):
        return _optimize_whole(model, options)
    if not callable(getattr(model, "_make_function", None)):
        raise OptionError(
            f"model={type(model).__name__} is no Keras model that trains with TensorFlow: "
            "pass a keras.Model, or decorate the train step with rnnmem.optimize"
        )
    make = type(model)._make_function.__get__(model)

    def make_function(step: Callable[..., Any]) -> Callable[..., Any]:
        function = make(step)
        cell = private.keras_step_cell(function) if step == model.train_step else None
        if cell is not None and private.is_polymorphic(cell.cell_contents):
            cell.cell_contents = api.optimize(cell.cell_contents, **options)
            runs_it = bool(options.get("verify") or options.get("profile"))
            if runs_it or not model.jit_compile:
                return _first_eagerly(function, cell.cell_contents, runs_it)
        elif step == model.train_step and not model.run_eagerly:
            _say_that_it_is_left()
        return function

    model._make_function = make_function
    model.train_function = None
    return model


def _say_that_it_is_left() -> None:
    warn_user(
        "rnnmem does not know how this Keras makes its train function, and left it as it was; "
        "decorate a train step of your own with rnnmem.optimize"
    )


def _takes_batches_itself(model: Any) -> bool:
    """Whether a model's train function does, as those of Keras 2 and of the first of Keras 3."""
    ours = hasattr(model, "make_train_function") and not hasattr(model, "_make_function")
    return ours and hasattr(model, "train_function")


def _optimize_whole(model: Any, options: dict[str, Any]) -> Any:
    make = type(model).make_train_function.__get__(model)

    def make_train_function(force: bool = False) -> Any:
        make(force)
        function = model.train_function  # what Keras 3 returns is nothing
        if private.is_polymorphic(function):
            function = model.train_function = api.optimize(function, **options)
        elif not isinstance(function, Optimized) and not model.run_eagerly:
            _say_that_it_is_left()
        return function

    model.make_train_function = make_train_function
    model.train_function = None
    return model


class MemoryCallback(keras.callbacks.Callback):
    """The peak of each batch in the logs, the plan, and both in TensorBoard.

    Give it to ``fit``::

        model.fit(x, y, batch_size=32, callbacks=[rnnmem.keras.MemoryCallback("runs/memory")])

    ``logs["memory_peak_mib"]`` of a batch is the most that its step had in use above what was
    resident before it, in MiB; that of an epoch is the largest of its batches, and goes into the
    history.
    In the first batch of a fit the step is traced, so from its end on :attr:`report` tells where
    the memory goes, and what was changed, or would be if :func:`optimize` was not applied to
    the model.

    Args:
      log_dir: folder of TensorBoard's event files: the peak and the resident bytes of each batch,
        with the predicted peak and the budget once they are known, and the report's picture and
        text; None: nothing is written.
      batch_size: stands in the report for a batch dimension that the trace leaves open, as Keras
        does unless the data says that every batch is full; None: that of the first batch, as the
        model's mean loss has counted it.
      device: whose memory, e.g. "GPU:1"; by default the first GPU, else "CPU:0".
      verbose: whether to print the predicted peaks, behind the first epoch's progress bar.

    Attributes:
      peaks: bytes for each batch of all epochs.
      report: the report on the train step, once a batch was run; None where there is no graph, or
        it holds something that is not understood.
      plan: the decisions for it, likewise.

    Raises:
      MeasureError: the device counts no memory; raised when a fit begins.
      OptionError: tensorboard is missing, or an argument is malformed.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike | None = None,
        *,
        batch_size: int | None = None,
        device: str | None = None,
        verbose: bool = True,
    ):
        super().__init__()
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
            raise OptionError(f"batch_size={batch_size!r} must be a count of examples, or None")
        self._log_dir, self._device = log_dir, device
        self._batch_size, self._verbose = batch_size, verbose
        self._kept_log: MemoryLog | None = None
        self._in_epoch: list[int] = []
        self._untold = False
        self.report: Report | None = None

    def _implements_train_batch_hooks(self) -> bool:
        """Whether Keras 2 is to tell it of batches; Keras 3 asks for methods."""
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False

    @property
    def peaks(self) -> list[int]:
        """Peaks of the batches so far, in bytes."""
        return [] if self._kept_log is None else self._kept_log.peaks

    @property
    def plan(self) -> Plan | None:
        """The decisions for the train step."""
        return None if self.report is None else self.report.plan

    @property
    def _log(self) -> MemoryLog:
        assert self._kept_log is not None, "training has not begun"
        return self._kept_log

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Starts to count."""
        self._kept_log = MemoryLog(self._log_dir, self._device)
        self.report = None

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Forgets the batches of the epoch before."""
        self._in_epoch = []
        self._print_peaks()

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Starts a step."""
        self._log.begin()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Ends a step; puts its peak in the logs, and makes the report after the first."""
        peak = self._log.end()
        self._in_epoch.append(peak)
        if logs is not None:
            logs["memory_peak_mib"] = peak / MIB
        if self.report is None and len(self._log.peaks) == 1:
            self._tell()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Puts the largest peak of the epoch in the logs, from where it goes into the history."""
        if logs is not None and self._in_epoch:
            logs["memory_peak_mib"] = max(self._in_epoch) / MIB

    def on_train_end(self, logs: dict | None = None) -> None:
        """Ends the event file."""
        self._print_peaks()
        self._log.close()

    def _tell(self) -> None:
        """Makes the report and writes it."""
        self.report = _report_on_step(self.model, self._batch_size or _batch_size(self.model))
        if self.report is not None:
            self._untold = True
            self._log.report(self.report)

    def _print_peaks(self) -> None:
        """Prints the report's peaks, once, where no progress bar is under way."""
        if self._untold and self._verbose and self.report is not None:
            print(self.report.summary(), end="")
        self._untold = False


def _batch_size(model: Any) -> int | None:
    """Examples of the one batch so far, by which the mean of the losses is weighted; None: unknown.

    A mean that counts batches has counted one.
    """
    means = (one for one in model.metrics if isinstance(one, keras.metrics.Mean))
    count = next((float(one.count) for one in means if one.name == "loss"), 0.0)
    return int(count) if count > 1.0 and count.is_integer() else None


def _report_on_step(model: Any, batch_size: int | None) -> Report | None:
    """The report on what a Keras model runs on a batch; None where that is not understood."""
    if _takes_batches_itself(model):
        step = model.train_function
    else:
        cell = private.keras_step_cell(model.train_function)
        step = None if cell is None else cell.cell_contents
    if step is None or not isinstance(step, Optimized) and not private.is_polymorphic(step):
        return None
    try:
        if isinstance(step, Optimized):
            inspected = step.inspect_all()
        else:
            inspected = [api.optimize(one).inspect() for one in private.traces(step)]
        if not inspected:
            return None
        first = dataclasses.replace(inspected[0], name=f"the train step of {model.name}")
        applied = isinstance(step, Optimized)
        notes = () if applied else (_NOT_APPLIED,)
        told = report_on(first, batch=batch_size, notes=notes)
        return dataclasses.replace(told, applied=applied)
    except RnnmemError as error:
        text = f"rnnmem cannot report on this model's train step: {error}"
        warnings.warn(text, RnnmemWarning, stacklevel=4)
        return None


def _first_eagerly(
    function: Callable[[Any], Any], step: Optimized, always: bool
) -> Callable[[Any], Any]:
    """A train function of Keras whose first steps on batches of a kind run outside of a graph.

    Inside of one, where ``fit`` has them, nothing can run twice, and a batch has no size yet.

    Args:
      function: as Keras makes it; takes an iterator, of TensorFlow or of Python.
      step: what it runs on a batch.
      always: whether that is so where the iterator tells all sizes, too.
    """
    seen = []

    @functools.wraps(function)
    def run(iterator: Any) -> Any:
        if not isinstance(iterator, tf.data.Iterator) or iterator.element_spec in seen:
            return function(iterator)
        seen.append(iterator.element_spec)
        if not always and _tells_sizes(iterator.element_spec):
            return function(iterator)
        first = next(iterator)
        # The trace that the graph will find, its batch dimension as open as the iterator's.
        step._plan_for(iterator.element_spec, first)
        return function(itertools.chain([first], iterator))

    return run


def _tells_sizes(spec: Any) -> bool:
    """Whether elements of a dataset have no open dimension."""
    parts = tf.nest.flatten(spec, expand_composites=True)
    return all(isinstance(one, tf.TensorSpec) and one.shape.is_fully_defined() for one in parts)


def _check(options: dict[str, Any]) -> None:
    """Refuses unknown options now, not when the model first trains."""
    defaults = {
        "budget": None,
        "max_slowdown": 1.1,
        "allow": None,
        "verify": False,
        "plan": None,
        "profile": False,
        "keep": (),
        "recompute": (),
    }
    check_names(options, defaults)
    Options.of(**{**defaults, **options})
