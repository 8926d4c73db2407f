"""Variables: their handles, and what stands behind those."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import sharded_variable as _sharded_variable
from tensorflow.python.ops import handle_data_util as _handle_data_util
from tensorflow.python.ops import resource_variable_ops as _resource_variable_ops


def move_keras_variable(variable: Any) -> Any:
    """Gives a Keras variable a new tf.Variable, of the same value, on the current device.

    Returns:
      The old tf.Variable; ``put_back`` takes it.
    """
    old = variable._value
    variable._value = tf.Variable(
        old.read_value(),
        dtype=old.dtype,
        trainable=old.trainable,
        name=old.name.split(":")[0],
        aggregation=old.aggregation,
        synchronization=old.synchronization,
    )
    return old


def put_back(variable: Any, old: Any) -> None:
    """Undoes ``move_keras_variable``."""
    variable._value = old


def is_resource_variable(value: Any) -> bool:
    """Whether ``value`` is a variable behind one resource handle."""
    return isinstance(value, _resource_variable_ops.BaseResourceVariable)


def is_distributed(value: Any) -> bool:
    """Whether ``value`` stands for several variables, one for each replica or shard."""
    kinds = (tf.distribute.DistributedValues, _sharded_variable.ShardedVariableMixin)
    return isinstance(value, kinds)


def is_graph_variable(variable: Any) -> bool:
    """Whether the variable lives in a graph of TensorFlow 1."""
    return bool(getattr(variable, "_in_graph_mode", False))


def new_handle(variable: Any, dtype: tf.DType, device: str) -> tf.Tensor:
    """A handle of a fresh resource, which nothing was assigned to, for a variable that exists.

    Args:
      variable: its name, shape and marks are taken.
      dtype: what the resource will hold.
      device: where it will lie.
    """
    old = variable._handle
    name = variable._handle_name.partition(":")[0]
    with tf.device(device):
        handle = _resource_variable_ops._variable_handle_from_shape_and_dtype(
            variable.shape, dtype, None, name, False
        )
    # The parent, the name, the unique id: whatever TensorFlow or Keras wrote on the old one.
    handle.__dict__.update(old.__dict__)
    return handle


def set_handle(variable: Any, handle: tf.Tensor, dtype: tf.DType) -> None:
    """Puts another resource behind a variable; the Python object stays the same."""
    variable._handle = handle
    variable._dtype = dtype
    if getattr(variable, "_cached_value", None) is not None:
        with tf.device(variable._caching_device):
            variable._cached_value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)


def copy_handle_data(source: tf.Tensor, target: tf.Tensor) -> None:
    """Tells ``target`` what the resource or variant behind ``source`` holds."""
    _handle_data_util.copy_handle_data(source, target)


def handle_shape(tensor: tf.Tensor) -> tuple[int | None, ...] | None:
    """The shape of the variable behind a resource; None where that is not known."""
    data = _handle_data_util.get_resource_handle_data(tensor)
    if not data.is_set or len(data.shape_and_type) != 1:
        return None
    shape = tf.TensorShape(data.shape_and_type[0].shape)
    return None if shape.rank is None else tuple(shape)


def handle_dtype(tensor: tf.Tensor) -> tf.DType | None:
    """The dtype of the variable behind a resource; None where that is not known."""
    data = _handle_data_util.get_resource_handle_data(tensor)
    if not data.is_set or len(data.shape_and_type) != 1:
        return None
    return tf.as_dtype(data.shape_and_type[0].dtype)
