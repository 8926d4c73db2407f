"""One stage on its device: its variables, its optimizer, and what it computes."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from rnnmem.errors import OptionError, PipelineError, RnnmemWarning
from rnnmem.pipeline.calling import holds_its_layers, is_builder, layers_of, may_be_moved
from rnnmem.pipeline.devices import is_alive, is_local, worker_of
from rnnmem.pipeline.tracing import Traced
from rnnmem.pipeline.wiring import Stage
from rnnmem.tf import private


class Scope:
    """All that a stage keeps of one forward until the backward of the same micro-batch.

    Attributes:
      kept: what the backward reads.
      loss: the stage's loss or penalty, or None.
    """

    __slots__ = ("__weakref__", "kept", "loss")

    def __init__(self, kept: list[tf.Tensor], loss: tf.Tensor | None):
        self.kept = kept
        self.loss = loss


@dataclasses.dataclass
class _Saved:
    """What a stage that is recomputed keeps instead: the variables that its forward wrote."""

    values: list[tf.Tensor]


class StageState:
    """One stage of a pipeline, on its device.

    Attributes:
      index: its number.
      name: for errors and reports.
      device: full name of the device that it runs on.
      stage: the user's stage.
      optimizer: its optimizer, which it shares with no other stage; None before the first step.
    """

    def __init__(self, index: int, stage: Stage, device: str):
        self.index = index
        self.name = stage.name
        self.device = device
        self.stage = stage
        self.optimizer: Any = None
        self._variables: list[tf.Variable] = []
        self._trainable: list[Any] = []
        self._sums: list[tf.Variable] = []
        self._loss_sum: tf.Variable | None = None
        self._connected: list[bool] | None = None
        self._functions: dict[tuple, Any] = {}
        self._count = 0

    @property
    def variables(self) -> list[tf.Variable]:
        """All variables of the stage, those that are not trained included."""
        return list(self._variables)

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """The variables that are trained, in the order of ``gradients``."""
        return [_tf_variable(variable) for variable in self._trainable]

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """The Keras layers that the stage is made of."""
        return layers_of(self.stage.fn)

    @property
    def gradients(self) -> list[tf.Tensor | None]:
        """The gradients of the last step: the mean over its micro-batches; None as a tape says."""
        if self._connected is None:
            raise PipelineError("no step has been taken, so there is no gradient: train_step first")
        with tf.device(self.device):
            return [
                self._mean(total) if connected else None
                for total, connected in zip(self._sums, self._connected, strict=True)
            ]

    def make(self) -> None:
        """Calls the builder, where the stage is one, on the stage's device."""
        if not is_builder(self.stage.fn):
            return
        try:
            with tf.device(self.device):
                made = self.stage.fn()
        except Exception as error:
            raise OptionError(
                f"stages[{self.index}] ({self.name}) is a builder that failed: "
                f"{type(error).__name__}: {error}"
            ) from error
        if isinstance(made, Stage) or not callable(made):
            raise OptionError(
                f"stages[{self.index}] ({self.name}) is a builder that returned {made!r}: it must "
                "return a layer or a callable"
            )
        self.stage = dataclasses.replace(self.stage, fn=made)

    def fetch_variables(self, used: Sequence[Any] = ()) -> list[tuple[Any, Any]]:
        """Moves variables of Keras layers that were built elsewhere to the stage's device.

        Args:
          used: references of the variables that a trace of the stage reads. Before there is a trace
            only the stage's very own layers are moved, not what its closure happens to hold.

        Returns:
          What was moved, for ``private.put_back``; a trace made before reads the old variables.
        """
        own = holds_its_layers(self.stage.fn)
        if own == bool(used) or not may_be_moved(self.stage.fn):
            return []
        moved = []
        with tf.device(self.device):
            for variable in {id(v): v for layer in self.layers for v in layer.variables}.values():
                held = vars(variable).get("_value")
                if held is None or held.device in ("", self.device):
                    continue
                if own or held.ref() in used:
                    moved.append((variable, self._moved(variable, held.device)))
        return moved

    def _moved(self, variable: Any, device: str) -> Any:
        gone = PipelineError(
            f"stage {self.index} ({self.name}): {variable.path} was on {device}, which is gone; "
            "pass builders or new layers, then restore a checkpoint"
        )
        if not is_local(device) and not is_alive(worker_of(device)):
            raise gone
        try:
            return private.move_keras_variable(variable)
        except tf.errors.OpError as error:
            raise gone from error

    def adopt(self, functions: Sequence[Any]) -> None:
        """Finds the stage's variables in its traces; a later trace must show no new ones."""
        read: dict[Any, Any] = {}
        for function in functions:
            read.update(_variables_of(function))
        known = {
            variable.value.ref(): variable for layer in self.layers for variable in layer.variables
        }
        chosen = {
            variable.value.ref() for layer in self.layers for variable in layer.trainable_variables
        }
        # A layer's variables in its own order, then others in the order of their first use.
        own = holds_its_layers(self.stage.fn)
        found = {ref: v.value for ref, v in known.items() if own or ref in read} | read
        trained = [
            known.get(ref, variable)
            for ref, variable in found.items()
            if (ref in chosen if ref in known else variable.trainable)
        ]
        if self.optimizer is None:
            self._variables, self._trainable = list(found.values()), trained
            return
        new = [v.name for ref, v in found.items() if ref not in {v.ref() for v in self._variables}]
        if new:
            raise OptionError(
                f"stages[{self.index}] ({self.name}) makes new variables for another shape of "
                f"batch: {', '.join(new)}"
            )

    def warn_of_strays(self) -> None:
        """Says which variables are read from another device at every use."""
        strays = [v.name for v in self._variables if v.device not in ("", self.device)]
        if strays:
            warnings.warn(
                f"stage {self.index} ({self.name}) runs on {self.device}, and its variables "
                f"{', '.join(strays)} stay elsewhere and are read from there; pass a builder, a "
                "callable without arguments that makes the stage, to have them on its device",
                RnnmemWarning,
                stacklevel=4,
            )

    def prepare(self, make_optimizer: Any, loss_dtype: tf.DType | None) -> None:
        """Makes the optimizer and the sums of gradients and losses, once."""
        with tf.device(self.device):
            if self.optimizer is None:
                self.optimizer = make_optimizer()
                self.optimizer.build(self._trainable)
                self._sums = [
                    tf.Variable(tf.zeros(v.shape, v.dtype), trainable=False, name="gradient_sum")
                    for v in self.trainable_variables
                ]
            if self._loss_sum is None and loss_dtype is not None:
                self._loss_sum = tf.Variable(tf.zeros([], loss_dtype), trainable=False, name="loss")

    @property
    def state(self) -> dict[str, list[tf.Variable]]:
        """What a checkpoint holds of the stage."""
        slots = [] if self.optimizer is None else self.optimizer.variables
        return {"variables": self.variables, "optimizer": [_tf_variable(slot) for slot in slots]}

    @property
    def resident_bytes(self) -> int:
        """Bytes of the variables, the optimizer and the sums of gradients."""
        held = [*self._variables, *self.state["optimizer"], *self._sums]
        return sum(variable.dtype.size * (variable.shape.num_elements() or 0) for variable in held)

    def forward(self, traced: Traced, inputs: list[tf.Tensor]) -> tuple[Any, list[tf.Tensor]]:
        """Runs a forward that a backward will follow.

        Returns:
          What the backward needs, and the tensors for other stages.
        """
        saved = _Saved([variable.read_value() for variable in traced.restored])
        scope, results = self._run(traced, inputs)
        return saved if self.stage.recompute else scope, results

    def forward_only(self, traced: Traced, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Runs a forward without a gradient; a loss or penalty is added to the step's."""
        results = list(traced.function(*inputs))
        self._settle(results)
        return results

    def backward(
        self,
        traced: Traced,
        kept: Any,
        inputs: list[tf.Tensor] | None,
        gradients: list[list[tf.Tensor]],
        first: bool,
    ) -> list[tf.Tensor | None]:
        """Runs a backward, and adds its gradients and loss to the step's sums.

        Args:
          traced: the stage.
          kept: what the forward kept.
          inputs: what the forward read, where it runs again.
          gradients: by result, the gradients that came back, the last stage's first.
          first: whether this is the step's first micro-batch.

        Returns:
          By input the gradient, or None.
        """
        scope = kept if isinstance(kept, Scope) else self._run_again(traced, kept, inputs or [])
        gradient, loss = traced.its_gradient, scope.loss
        found: Iterator[tf.Tensor] = iter(())
        if gradient.halves is not None:
            upstream = [_sum(gradients[place]) for place in gradient.places]
            if traced.has_loss:
                upstream.append(tf.ones_like(loss))
            made = gradient.halves.backward(upstream, scope.kept)
            del upstream
            found = iter([one for one in made if one is not None])
            del made
        scope.kept, scope.loss = [], None
        back = [next(found) if connected else None for connected in gradient.reads]
        self._accumulate(gradient.trained, list(found), loss, first)
        self._settle([one for one in back if one is not None])
        return back

    def update(self, count: int) -> None:
        """Applies the mean of the summed gradients."""
        self._count = count
        if any(self._connected or ()):
            update = self._function(("update",), self._apply, [tf.TensorSpec([], tf.int64)])
            update(tf.constant(count, tf.int64))
        self._settle([])

    def loss_sum(self) -> tf.Tensor | None:
        """The sum of the step's losses, or None where the stage has none."""
        return None if self._loss_sum is None else self._loss_sum.read_value()

    def start_losses(self) -> None:
        """Forgets the losses of the step before."""
        if self._loss_sum is not None:
            self._loss_sum.assign(tf.zeros([], self._loss_sum.dtype))

    def add_loss(self, loss: tf.Tensor) -> None:
        """Adds a loss that no gradient follows."""
        assert self._loss_sum is not None
        self._loss_sum.assign_add(tf.cast(loss, self._loss_sum.dtype))

    def _run(self, traced: Traced, inputs: list[tf.Tensor]) -> tuple[Scope, list[tf.Tensor]]:
        halves = traced.its_gradient.halves
        kept: list[tf.Tensor] = []
        if halves is None:
            results = list(traced.function(*inputs))
        else:
            results, kept = halves.forward(inputs)
        self._settle(results)
        loss = results.pop() if traced.has_loss else None
        return Scope(kept, loss), results

    def _run_again(self, traced: Traced, saved: _Saved, inputs: list[tf.Tensor]) -> Scope:
        now = [variable.read_value() for variable in traced.restored]
        for variable, value in zip(traced.restored, saved.values, strict=True):
            variable.assign(value)
        scope, _ = self._run(traced, inputs)
        for variable, value in zip(traced.restored, now, strict=True):
            variable.assign(value)
        return scope

    def _accumulate(
        self, connected: list[bool], gradients: list[Any], loss: tf.Tensor | None, first: bool
    ) -> None:
        if first:
            self._connected = connected
        sums = [one for one, used in zip(self._sums, connected, strict=True) if used]
        parts = gradients
        if loss is not None:
            sums, parts = [*sums, self._loss_sum], [*gradients, loss]
        if not parts:
            return

        def add(*parts):
            for total, part in zip(sums, parts, strict=True):
                part = tf.cast(part, total.dtype)
                total.assign(part) if first else total.assign_add(part)

        specs = [tf.TensorSpec(one.shape, one.dtype) for one in parts]
        self._function(("add", first, loss is not None), add, specs)(*parts)

    def _function(self, key: tuple, body: Any, specs: list[tf.TensorSpec]) -> Any:
        """A trace on the stage's device, one for each set of variables that have a gradient."""
        key = (*key, *(self._connected or ()))
        if key not in self._functions:
            with tf.device(self.device):
                traced = tf.function(body, autograph=False).get_concrete_function(*specs)
            self._functions[key] = traced
        return self._functions[key]

    def _mean(self, total: tf.Variable, count: tf.Tensor | None = None) -> tf.Tensor:
        count = tf.constant(self._count) if count is None else count
        return total / tf.cast(count, total.dtype)

    def _apply(self, count: tf.Tensor) -> None:
        pairs = zip(self._sums, self._trainable, self._connected or (), strict=True)
        used = [(self._mean(total, count), variable) for total, variable, on in pairs if on]
        self.optimizer.apply([mean for mean, _ in used], [variable for _, variable in used])

    def _settle(self, tensors: list[tf.Tensor]) -> None:
        """Waits until a worker has computed the tensors; here they are there on return."""
        if is_local(self.device):
            return
        settled = _settled(*tensors) if tensors else tf.constant(0) + 0
        settled.numpy()


@tf.function(autograph=False, reduce_retracing=False)
def _settled(*tensors: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies(tensors):
        return tf.zeros([], tf.int32)


def land(tensors: list[tf.Tensor], device: str, copy: bool = False) -> list[tf.Tensor]:
    """Copies tensors to a device, and waits until they are there.

    Args:
      tensors: from anywhere.
      device: full name; the caller has entered its scope.
      copy: whether devices that share memory get a copy all the same.
    """
    landed = [tf.identity(one) for one in tensors]
    if copy:
        landed = [tf.raw_ops.DeepCopy(x=one) if _is_plain(one.dtype) else one for one in landed]
    if landed and not is_local(device):
        _settled(*landed).numpy()
    return landed


def _variables_of(function: Any) -> dict[Any, tf.Variable]:
    """The variables that a trace reads, by reference, in the order of their first use."""
    by_handle = {id(variable.handle): variable for variable in function.graph.variables}
    used = [by_handle.get(id(outside)) for outside, _ in function.graph.captures]
    return {variable.ref(): variable for variable in used if variable is not None}


def _tf_variable(variable: Any) -> tf.Variable:
    return variable.value if isinstance(variable, keras.Variable) else variable


def _is_plain(dtype: tf.DType) -> bool:
    return dtype.is_floating or dtype.is_complex or dtype.is_integer or dtype.is_bool


def _sum(gradients: list[tf.Tensor]) -> tf.Tensor:
    return gradients[0] if len(gradients) == 1 else tf.add_n(gradients)
