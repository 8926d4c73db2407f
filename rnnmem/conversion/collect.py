"""Walks a target and finds every tensor in it, and the Keras objects whose policies follow.

Sorted by whose state a tensor is, because a model built in the new dtype from the start has some
state in another one: metrics and the optimizer's settings stay in float32 there, and here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from rnnmem.conversion.holders import TensorHolder, VariableHolder
from rnnmem.errors import ConvertError, OptionError
from rnnmem.tf import private

METRIC = "metrics keep their dtype, as in a model built in the new one"
SETTING = "a setting of the optimizer, in float32 in a model built in the new dtype too"
COUNTER = "Keras counts with it"
SEED = "the state of a random generator"

_ROOMS = (keras.layers.Layer, keras.optimizers.Optimizer, keras.metrics.Metric, keras.losses.Loss)
# What they hold is their own business: tables, data sets and their state.
_CLOSED = (type, tf.saved_model.experimental.TrackableResource, tf.data.Dataset, tf.data.Iterator)
# An optimizer's trainable variables are the model's, not its own.
_SKIPPED = ("_tracker", "_inbound_nodes", "_outbound_nodes")
_SKIPPED_OF_OPTIMIZER = (*_SKIPPED, "_trainable_variables")


@dataclasses.dataclass
class Found:
    """What a target holds.

    Attributes:
      holders: every tensor, each buffer once, in the order found.
      reasons: id of a holder -> why its dtype stays, where it is Keras' own state.
      layers: Keras layers, models included.
      deferred: Keras variables whose value is not made yet.
      result: the target, or what stands for it where it is an immutable tuple or a tensor.
    """

    holders: list[VariableHolder | TensorHolder] = dataclasses.field(default_factory=list)
    reasons: dict[int, str] = dataclasses.field(default_factory=dict)
    layers: list[Any] = dataclasses.field(default_factory=list)
    deferred: list[Any] = dataclasses.field(default_factory=list)
    result: Callable[[], Any] = lambda: None


def collect(target: Any) -> Found:
    """Finds everything that a conversion of the target concerns.

    Args:
      target: a Keras model, layer, optimizer or metric, a ``tf.Module``, any other object that
        TensorFlow tracks, a variable, an eager tensor, or lists, tuples and dicts of them.

    Raises:
      OptionError: it holds nothing of the kind.
      ConvertError: it holds a variable that cannot be converted.
    """
    walk = _Walk()
    walk.visit_root(target)
    found = walk.found
    if not (found.holders or found.layers or found.deferred or _is_container(target)):
        raise OptionError(
            f"target={type(target).__name__} holds nothing to convert: pass a Keras model, layer "
            "or optimizer, a tf.Module, or a list of variables"
        )
    for holder in found.holders:
        if isinstance(holder, VariableHolder) and not holder.is_initialized():
            raise ConvertError(
                f"variable {holder.name!r} has no value: it was deleted or never initialized. "
                "Take it out of the target; nothing was changed"
            )
    return found


def _is_container(target: Any) -> bool:
    return isinstance(target, (*_ROOMS, tf.Module)) or (
        isinstance(target, list | tuple | dict | set) and not target
    )


class _Walk:
    def __init__(self):
        self.found = Found()
        self._seen: dict[int, Any] = {}
        self._by_handle: dict[int, VariableHolder] = {}
        self._by_tensor: dict[int, TensorHolder] = {}

    def visit_root(self, target: Any) -> None:
        box = [target]
        self._visit(target, "target", None, _Place(box, 0))
        self.found.result = lambda: box[0]

    def _visit(self, value: Any, name: str, reason: str | None, place: _Place | None) -> None:
        if isinstance(value, keras.Variable):
            self._keras_variable(value, reason)
        elif private.is_distributed(value):
            raise ConvertError(
                f"variable {_name_of(value, name)!r} is distributed over several devices: convert "
                "the model outside of its tf.distribute strategy; nothing was changed"
            )
        elif isinstance(value, tf.Variable):
            self._variable(value, _name_of(value, name), reason)
        elif isinstance(value, tf.Tensor | tf.IndexedSlices | tf.SparseTensor | tf.RaggedTensor):
            self._tensors(value, name, reason, place)
        elif isinstance(value, str | bytes | int | float) or value is None:
            return
        elif isinstance(value, tuple):  # the same tuple may lie in several places
            for index, item in enumerate(value):
                inner = place and _TuplePlace(place, index)
                self._visit(item, f"{name}[{index}]", reason, inner)
        elif id(value) not in self._seen:
            self._seen[id(value)] = value
            self._enter(value, name, reason, place)

    def _enter(self, value: Any, name: str, reason: str | None, place: _Place | None) -> None:
        if isinstance(value, dict):
            for key, item in list(value.items()):
                self._visit(item, f"{name}[{key!r}]", reason, _Place(value, key))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                self._visit(item, f"{name}[{index}]", reason, _Place(value, index))
        elif isinstance(value, set | frozenset):
            for item in value:
                self._visit(item, name, reason, None)
        else:
            self._object(value, name, reason)

    def _object(self, value: Any, name: str, reason: str | None) -> None:
        if isinstance(value, keras.random.SeedGenerator | tf.random.Generator):
            reason = SEED
        elif isinstance(value, keras.metrics.Metric) and name != "target":
            reason = METRIC
        elif isinstance(value, keras.optimizers.Optimizer):
            self._optimizer(value, reason)
            return
        elif isinstance(value, keras.layers.Layer):
            self.found.layers.append(value)
            name = value.name
        elif not isinstance(value, (*_ROOMS, tf.Module)) and not _is_trackable(value):
            return
        self._attributes(value, name, reason)

    def _attributes(self, value: Any, name: str, reason: str | None) -> None:
        for attribute, item in _attributes_of(value):
            place = _AttributePlace(value, attribute)
            self._visit(item, f"{name}.{attribute}", reason, place)

    def _optimizer(self, optimizer: Any, reason: str | None) -> None:
        inner = getattr(optimizer, "inner_optimizer", None)
        for variable in optimizer._variables:  # noqa: SLF001
            why = COUNTER if variable is optimizer._iterations else reason  # noqa: SLF001
            if why is None and not _is_slot(variable, inner or optimizer):
                why = SETTING
            self._visit(variable, variable.path, why, None)
        self._attributes(optimizer, optimizer.name, reason)

    def _keras_variable(self, variable: Any, reason: str | None) -> None:
        value = variable._value  # noqa: SLF001
        if value is None:
            if id(variable) not in self._seen:
                self._seen[id(variable)] = variable
                self.found.deferred.append(variable)
            return
        if private.is_distributed(value):
            self._visit(value, variable.path, reason, None)
        holder = self._variable(value, variable.path, reason)
        if not any(known is variable for known in holder.wrappers):
            holder.wrappers.append(variable)

    def _variable(self, variable: tf.Variable, name: str, reason: str | None) -> VariableHolder:
        if not private.is_resource_variable(variable) or private.is_graph_variable(variable):
            raise ConvertError(
                f"variable {name!r} ({type(variable).__name__}) belongs to a graph of TensorFlow "
                "1: only variables made eagerly can be converted; nothing was changed"
            )
        holder = self._by_handle.get(id(variable.handle))
        if holder is None:
            holder = self._by_handle[id(variable.handle)] = VariableHolder(variable, name)
            self.found.holders.append(holder)
            if reason is not None:
                self.found.reasons[id(holder)] = reason
        elif not any(known is variable for known in holder.variables):
            holder.variables.append(variable)
        return holder

    def _tensors(self, value: Any, name: str, reason: str | None, place: _Place | None) -> None:
        if place is None or reason is not None:
            return
        if isinstance(value, tf.Tensor):
            self._tensor(value, name, place)
            return
        composite = _ValuesPlace(place, value)
        self._tensor(composite.values, f"{name}.values", composite)

    def _tensor(self, tensor: tf.Tensor, name: str, place: _Place) -> None:
        if not hasattr(tensor, "numpy") or tensor.dtype in (tf.resource, tf.variant, tf.string):
            return  # symbolic, or nothing that has bytes to convert
        holder = self._by_tensor.get(id(tensor))
        if holder is None:
            holder = self._by_tensor[id(tensor)] = TensorHolder(tensor, name)
            self._seen[id(tensor)] = tensor
            self.found.holders.append(holder)
        holder.places.append(place.put)


class _Place:
    """An item of a list or a dict."""

    def __init__(self, container: Any, key: Any):
        self.container = container
        self.key = key

    def get(self) -> Any:
        return self.container[self.key]

    def put(self, value: Any) -> None:
        self.container[self.key] = value


class _AttributePlace(_Place):
    """An attribute of an object."""

    def get(self) -> Any:
        return getattr(self.container, self.key)

    def put(self, value: Any) -> None:
        setattr(self.container, self.key, value)


class _TuplePlace(_Place):
    """An item of a tuple that lies in another place; a new tuple takes its place there."""

    def __init__(self, outer: _Place, index: int):
        self.outer = outer
        self.index = index

    def get(self) -> Any:
        return self.outer.get()[self.index]

    def put(self, value: Any) -> None:
        old = self.outer.get()
        items = [*old[: self.index], value, *old[self.index + 1 :]]
        self.outer.put(type(old)(*items) if hasattr(old, "_fields") else tuple(items))


class _ValuesPlace(_Place):
    """The values of sparse or ragged tensors; their indices stay."""

    def __init__(self, outer: _Place, value: Any):
        self.outer = outer
        if isinstance(value, tf.RaggedTensor):
            self.values, splits = value.flat_values, value.nested_row_splits
            self._make = lambda values: tf.RaggedTensor.from_nested_row_splits(values, splits)
        elif isinstance(value, tf.SparseTensor):
            self.values, indices, shape = value.values, value.indices, value.dense_shape
            self._make = lambda values: tf.SparseTensor(indices, values, shape)
        else:
            self.values, indices, shape = value.values, value.indices, value.dense_shape
            self._make = lambda values: tf.IndexedSlices(values, indices, shape)

    def put(self, value: Any) -> None:
        self.values = None
        self.outer.put(None if value is None else self._make(value))


def _attributes_of(value: Any) -> Iterator[tuple[str, Any]]:
    skipped = _SKIPPED_OF_OPTIMIZER if isinstance(value, keras.optimizers.Optimizer) else _SKIPPED
    for name, item in list(getattr(value, "__dict__", {}).items()):
        # TensorFlow's own lists of what depends on an object.
        if name not in skipped and not name.startswith("_self_"):
            yield name, item


def _is_trackable(value: Any) -> bool:
    """Whether TensorFlow saves what depends on the object: ``tf.train.Checkpoint`` and the like."""
    if private.is_polymorphic(value) or private.is_concrete(value) or isinstance(value, _CLOSED):
        return False
    return callable(getattr(value, "_trackable_children", None))


def _is_slot(variable: Any, optimizer: Any) -> bool:
    """Whether Keras made it in the likeness of a model's variable, and not as a setting."""
    if variable.shape.rank:
        return True
    of = (getattr(v, "path", v.name) for v in optimizer._trainable_variables)  # noqa: SLF001
    return any(variable.name.startswith(str(path).replace("/", "_") + "_") for path in of)


def _name_of(variable: Any, fallback: str) -> str:
    return str(getattr(variable, "name", fallback)).removesuffix(":0")
