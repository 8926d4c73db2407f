"""``Pipeline``: a model split into stages that train on several devices or processes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rnnmem.errors import MeasureError, OptionError, PipelineError
from rnnmem.pipeline import checkpoint
from rnnmem.pipeline import schedule as schedules
from rnnmem.pipeline.batches import Batch, checked_batches, examples_of, is_stream
from rnnmem.pipeline.devices import is_local, resolve
from rnnmem.pipeline.executor import Queues, Step, WorkerGone, worker_gone, workers_of
from rnnmem.pipeline.heartbeat import patiently, timeout_of
from rnnmem.pipeline.memory import Meter, Requests, Shares, StageMemory, allocator_of, resident_of
from rnnmem.pipeline.optimizers import maker_of
from rnnmem.pipeline.programs import PREDICT, TEST, TRAIN, Prepared, Programs, loss_of
from rnnmem.pipeline.schedule import Schedule, checked_count, make_schedule
from rnnmem.pipeline.states import StageState
from rnnmem.pipeline.tracing import Purpose
from rnnmem.pipeline.wiring import stages_of
from rnnmem.sizes import parse_count


class Pipeline:
    """Trains a model that is split into stages; a stage's memory does not grow with the batch.

    A step cuts the batch into micro-batches, sends them through the stages one forward, one
    backward, sums the gradients over the micro-batches in their order, and updates every stage once
    with the mean, as gradient accumulation does with the model in one piece.

        pipeline = rnnmem.pipeline.Pipeline(
            [keras.layers.LSTM(256, return_sequences=True), keras.layers.LSTM(256), head],
            ["CPU:0", "CPU:1", "CPU:2"],
            micro_batches=8,
            optimizer=keras.optimizers.Adam(),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        loss = pipeline.train_step(x, y)
    """

    def __init__(
        self,
        stages: Iterable[Any],
        devices: Sequence[Any],
        micro_batches: int,
        optimizer: Any,
        schedule: str = schedules.ONE_FORWARD_ONE_BACKWARD,
        *,
        loss: Callable[[Any, Any], Any] | str | None = None,
        recompute: bool | Iterable[int] = False,
        prefetch: bool = False,
        timeout: float | None = 60.0,
    ):
        """Makes a pipeline; the stages' variables are made or moved at the first step.

        Args:
          stages: each a Keras layer, a callable, a builder (a callable without arguments that makes
            one, on the stage's device), a list of those, or a :class:`Stage` that says more. A
            stage gets what the one before returns, a tuple or list spread out where it takes
            several arguments.
          devices: one for each stage: ``"CPU:1"``, ``"GPU:0"``, ``"/job:worker/task:2"``, or
            ``"host:port"`` of a worker process.
          micro_batches: into how many equal parts a batch is cut.
          optimizer: a Keras optimizer, its name, or a callable without arguments that makes one;
            each stage has one of its own.
          schedule: ``"1f1b"``, or ``"forward-then-backward"``, whose memory grows with
            ``micro_batches``.
          loss: (labels, predictions) -> loss, averaged over the micro-batch where it is no scalar;
            or a name that Keras knows. None: the last stage takes the labels as its last argument
            and returns the loss.
          recompute: stages (all: True) that keep only their inputs and run their forward again.
          prefetch: fetch what the next computation reads while one runs; costs one buffer more.
          timeout: seconds after which a worker that does not answer is taken for lost; a worker
            answers while it computes. None waits for ever.

        Raises:
          OptionError: an argument is malformed, there are more stages than devices or too few
            micro-batches, a device is unknown, or nobody listens at a worker's address.
        """
        self._stages = stages_of(stages, recompute)
        self.micro_batches = checked_count(
            schedule, len(self._stages), micro_batches, schedules.TRAINING
        )
        make_optimizer, loss = maker_of(optimizer), loss_of(loss)
        self._schedule_name = schedule
        self._prefetch = bool(prefetch)
        self._timeout = timeout_of(timeout)
        names = resolve(devices, len(self._stages))
        self._states = [StageState(i, s, names[i]) for i, s in enumerate(self._stages)]
        self._queues = [Queues(name) for name in names]
        self._programs = Programs(self._states, loss, make_optimizer, self._make_schedule)
        self._has_run: set[Any] = set()
        self._broken: str | None = None
        self.most_scopes: list[int] = [0] * len(names)

    @property
    def stages(self) -> list[StageState]:
        """The stages: variables, optimizer, gradients and device of each."""
        return list(self._states)

    @property
    def devices(self) -> list[str]:
        """The full name of each stage's device."""
        return [state.device for state in self._states]

    @property
    def variables(self) -> list[tf.Variable]:
        """All variables of all stages, once built."""
        return [variable for state in self._states for variable in state.variables]

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """The trained variables of all stages, once built."""
        return [variable for state in self._states for variable in state.trainable_variables]

    @property
    def gradients(self) -> list[tf.Tensor | None]:
        """The last step's mean gradients, in the order of ``trainable_variables``."""
        return self._ask_workers(
            lambda: [gradient for state in self._states for gradient in state.gradients]
        )

    def get_weights(self) -> list[np.ndarray]:
        """The values of ``variables``."""
        return self._ask_workers(lambda: [variable.numpy() for variable in self.variables])

    @property
    def schedule(self) -> Schedule:
        """The schedule of a training step; before the first, that of a plain chain."""
        return self._programs.training_schedule or self._make_schedule(True, len(self._states))

    def _make_schedule(self, training: bool, topology: Any) -> Schedule:
        name = self._schedule_name if training else schedules.FORWARD_ONLY
        return make_schedule(name, topology, self.micro_batches, prefetch=self._prefetch)

    def build(self, x: Any, y: Any = None) -> None:
        """Makes all that a training step on such a batch needs, and runs nothing.

        Raises:
          OptionError: the batch does not divide, or the stages' shapes do not meet.
        """
        self._programs.of(TRAIN, Batch(x, y, self.micro_batches))

    def train_step(self, x: Any, y: Any = None) -> tf.Tensor:
        """Trains on one batch.

        Args:
          x: an array, or a structure of arrays with the same first axis.
          y: labels, likewise; None where the last stage needs none.

        Returns:
          The mean loss over the micro-batches, a scalar.

        Raises:
          OptionError: as ``build``; nothing has run then.
          PipelineError: a stage failed, or its worker is gone; the text names it. No weight was
            updated unless the failure came in the updates, after all gradients.
        """
        batch, prepared = self._begin(TRAIN, x, y)
        step = self._step(prepared, batch)
        self._run(step)
        self._has_run.add(batch.signature)
        self.most_scopes = step.most_scopes
        return self._mean_loss()

    def evaluate(self, x: Any, y: Any = None, *, batch_size: int | None = None) -> float:
        """The mean loss over examples, forward only.

        Args:
          x: arrays, or an iterable of (x, y).
          y: labels.
          batch_size: examples sent through at once; None sends all. The batch must divide into
            ``micro_batches``.

        Raises:
          OptionError: a batch does not divide, or shapes do not meet; nothing has run then.
        """
        total, count = 0.0, 0
        for one in checked_batches(x, y, batch_size, self.micro_batches):
            batch, prepared = self._begin(TEST, *one)
            self._ask_workers(self._start_losses)
            self._run(self._step(prepared, batch))
            total += float(self._mean_loss()) * batch.size
            count += batch.size
        if not count:
            raise OptionError(f"x={x!r} holds no batch")
        return total / count

    def predict(self, x: Any, *, batch_size: int | None = None) -> Any:
        """What the last stage returns, as arrays.

        Raises:
          OptionError: as ``evaluate``; or the last stage takes labels.
        """
        found = []
        for one, _ in checked_batches(x, None, batch_size, self.micro_batches):
            batch, prepared = self._begin(PREDICT, one, None)
            step = self._step(prepared, batch)
            self._run(step)
            found += step.runners[-1].results
        parts = [np.concatenate(part) for part in zip(*found, strict=True)]
        return tf.nest.map_structure(lambda place: parts[place], prepared.program.structure)

    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        batch_size: int | None = None,
        epochs: int = 1,
        shuffle: bool = False,
        seed: int | None = None,
        validation_data: tuple | None = None,
        callbacks: Iterable[Callable[[int, dict[str, float]], None]] = (),
        checkpoint_path: str | os.PathLike | None = None,
    ) -> dict[str, list[float]]:
        """Trains for some epochs.

        Args:
          x: arrays; or a ``tf.data.Dataset`` or another iterable of (x, y), whole batches.
          y: labels of arrays.
          batch_size: examples in a step; None takes all at once.
          epochs: how often to go through the data.
          shuffle: whether to draw a new order of arrays each epoch.
          seed: of those orders.
          validation_data: (x, y) to evaluate on after each epoch.
          callbacks: each called after an epoch with its number and figures.
          checkpoint_path: where to save after each epoch.

        Returns:
          ``{"loss": [...]}`` by epoch, with ``"val_loss"`` where there is validation data.

        Raises:
          OptionError: an array's last or any batch does not divide; nothing has run then.
        """
        random = np.random.default_rng(seed)
        history: dict[str, list[float]] = {}
        for epoch in range(parse_count(epochs, "epochs")):
            order = None
            if shuffle and not is_stream(x):
                order = random.permutation(examples_of(x))
            logs = {
                "loss": self._epoch(checked_batches(x, y, batch_size, self.micro_batches, order))
            }
            if validation_data is not None:
                logs["val_loss"] = self.evaluate(*validation_data, batch_size=batch_size)
            for name, value in logs.items():
                history.setdefault(name, []).append(value)
            if checkpoint_path is not None:
                self.save(checkpoint_path)
            for callback in callbacks:
                callback(epoch, dict(logs))
        return history

    def save(self, path: str | os.PathLike) -> str:
        """Writes all stages' variables and optimizers as a TensorFlow checkpoint.

        Returns:
          The path, for ``restore``.

        Raises:
          PipelineError: there is nothing to save before the first step or ``build``.
        """
        self._check_usable()
        if self._states[0].optimizer is None:
            raise PipelineError("there is nothing to save yet: train_step or build first")
        return self._ask_workers(lambda: checkpoint.write(self._states, path))

    def restore(self, path: str | os.PathLike) -> None:
        """Puts a checkpoint's values into all stages; before the first step, as soon as it begins.

        Raises:
          OptionError: there is no such checkpoint, or it is of other stages; nothing is changed.
        """
        checkpoint.open_checkpoint(path)
        if self._states[0].optimizer is None:
            self._programs.to_restore = os.fspath(path)
            return
        self._check_usable()
        self._ask_workers(lambda: checkpoint.read(self._states, path))

    def measure(
        self, x: Any, y: Any = None, *, steps: int = 1, requests: bool = False
    ) -> list[StageMemory]:
        """Takes training steps and measures what each stage took.

        A first step on a shape of batch is taken unmeasured before.

        Args:
          x: as for ``train_step``.
          y: as for ``train_step``.
          steps: how many to take; the peak is the largest. TensorFlow's allocator hands out whole
            chunks, so that equal micro-batches differ by some per cent.
          requests: also take a step with TensorFlow's profiler on, which tells exactly what each
            stage asked the allocator for. It takes seconds, and this process' devices only.

        Raises:
          MeasureError: a device counts no memory, or none of this process where ``requests``.
          OptionError: as ``train_step``, or ``steps`` is no count.
        """
        steps = parse_count(steps, "steps")
        batch, prepared = self._begin(TRAIN, x, y)
        meters = [Meter(state.device) for state in self._states]
        if batch.signature not in self._has_run:
            self.train_step(x, y)
        runs = [self._measured(prepared, batch, meters) for _ in range(steps)]
        found = [max(run, key=lambda one: one.peak_bytes) for run in zip(*runs, strict=True)]
        if requests:
            asked = self._requested(prepared, batch)
            found = [dataclasses.replace(one, requested_bytes=asked[one.stage]) for one in found]
        return found

    def _requested(self, prepared: Prepared, batch: Batch) -> list[int]:
        """By stage, the most bytes that it asked its allocator for at once, in a step."""
        for state in self._states:
            if not is_local(state.device):
                raise MeasureError(
                    f"{state.device}: a worker's allocator cannot be traced from here"
                )
        step = self._step(prepared, batch, copy=True)
        asked = Requests(len(self._states))
        try:
            self._run(step, lambda: step.run_in_turn(asked.around))
        finally:
            asked.read()
        return asked.peaks

    def _measured(self, prepared: Prepared, batch: Batch, meters: list[Meter]) -> list:
        resident = resident_of(self._states, meters)
        allocators = {allocator_of(state.device) for state in self._states}
        if len(allocators) == len(meters):
            step = self._step(prepared, batch)
            self._run(step)
            peaks = [meter.read()[1] - resident[i] for i, meter in enumerate(meters)]
        else:
            step = self._step(prepared, batch, copy=True)
            shares = Shares(meters)
            self._run(step, lambda: step.run_in_turn(shares.around))
            peaks = shares.peaks
        self.most_scopes = step.most_scopes
        return [
            StageMemory(i, state.device, resident[i], peaks[i], step.most_scopes[i])
            for i, state in enumerate(self._states)
        ]

    def _epoch(self, batches: Iterable[tuple]) -> float:
        total, count = 0.0, 0
        for one in batches:
            size = examples_of(one[0])
            total += float(self.train_step(*one)) * size
            count += size
        if not count:
            raise OptionError("the data holds no batch")
        return total / count

    def _begin(self, purpose: Purpose, x: Any, y: Any) -> tuple[Batch, Prepared]:
        """Checks everything that can be checked before anything runs."""
        self._check_usable()
        if not tf.executing_eagerly() or tf.inside_function():
            raise PipelineError(
                "a pipeline runs outside of tf.function and of graphs: call it there"
            )
        batch = Batch(x, y, self.micro_batches)
        with self._reaching_workers():
            return batch, self._programs.of(purpose, batch)

    def _check_usable(self) -> None:
        if self._broken is not None:
            raise PipelineError(f"this pipeline is lost: {self._broken}")

    def _step(self, prepared: Prepared, batch: Batch, copy: bool = False) -> Step:
        return Step(
            prepared.schedule,
            prepared.program,
            self._states,
            self._queues,
            batch.part,
            copy,
            self._timeout,
        )

    def _run(self, step: Step, run: Callable[[], None] | None = None) -> None:
        try:
            (run or step.run)()
        except BaseException as error:
            if isinstance(error, WorkerGone) or step.is_stuck:
                self._broken = str(error)
            raise

    def _ask_workers(self, act: Callable[[], Any]) -> Any:
        """What a call gives that reads or writes what workers hold."""
        with self._reaching_workers():
            return patiently(act, workers_of(self._states), self._timeout)

    @contextlib.contextmanager
    def _reaching_workers(self) -> Iterator[None]:
        """Says which stage is lost, where a worker dies between two runs of a schedule."""
        try:
            yield
        except (tf.errors.OpError, TimeoutError) as error:
            gone = worker_gone(self._states)
            if gone is None and not isinstance(error, TimeoutError):
                raise
            gone = gone or WorkerGone(f"{error} (timeout={self._timeout:g})")
            self._broken = str(gone)
            for queues in self._queues:
                queues.retire()
            raise gone from error

    def _start_losses(self) -> None:
        for state in self._states:
            with tf.device(state.device):
                state.start_losses()

    def _mean_loss(self) -> tf.Tensor:
        return self._ask_workers(self._summed_loss)

    def _summed_loss(self) -> tf.Tensor:
        with tf.device("CPU:0"):
            sums = [state.loss_sum() for state in self._states]
            here = [tf.identity(one) for one in sums if one is not None]
            total = here[-1]
            for one in here[:-1]:
                total = total + tf.cast(one, total.dtype)
            return total / tf.cast(self.micro_batches, total.dtype)
