"""Who holds a tensor: a variable, or places in the user's lists, dicts and attributes.

A holder gives its value, lets go of it, and takes another in its place, so that the objects that
the user knows stay the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rnnmem.tf import private


def device_of(name: str) -> str:
    """The short name of a device: "/job:localhost/.../device:CPU:0" is "CPU:0"."""
    return name.rsplit("device:", 1)[-1] or "CPU:0"


class VariableHolder:
    """One or several Python variables over one resource.

    Attributes:
      variables: ``tf.Variable`` objects that share the handle.
      wrappers: Keras variables around them.
      name: as the user knows it.
      handle: the handle as it was; functions that were traced before captured it.
    """

    def __init__(self, variable: Any, name: str):
        self.variables = [variable]
        self.wrappers: list[Any] = []
        self.name = name
        self.handle = variable.handle
        self._dtype = variable.dtype

    @property
    def dtype(self) -> tf.DType:
        """What the variable holds now."""
        return self.variables[0].dtype

    @property
    def device(self) -> str:
        """Where its value lies now."""
        return device_of(self.variables[0].handle.device)

    def count(self) -> int:
        """How many elements it has."""
        known = self.variables[0].shape.num_elements()
        return int(tf.size(self.read())) if known is None else known

    def is_initialized(self) -> bool:
        """Whether it has a value."""
        try:
            return bool(tf.raw_ops.VarIsInitializedOp(resource=self.handle))
        except tf.errors.OpError:
            return False

    def prepare(self, dtype: tf.DType) -> None:
        """Makes what `release` needs now and once the dtype is another, while there is room."""
        for kind in (self.dtype, dtype):
            _blank(kind, self.variables[0].handle.device)

    def read(self) -> tf.Tensor:
        """The value; it shares the variable's buffer."""
        handle = self.variables[0].handle
        # After a sparse update reads would copy the whole buffer.
        tf.raw_ops.DisableCopyOnRead(resource=handle)
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=self.dtype)

    def release(self) -> None:
        """Frees the buffer; whoever still reads the old resource finds one NaN, or nothing."""
        _empty(self.variables[0].handle, self.dtype)

    def put(self, value: tf.Tensor, device: str) -> None:
        """Takes a value of any dtype on any device, and frees what it held."""
        old, old_dtype = self.variables[0].handle, self.dtype
        if old is self.handle or value.dtype != old_dtype or device != self.device:
            new = private.new_handle(self.variables[0], value.dtype, device)
        else:
            new = old
        tf.raw_ops.AssignVariableOp(resource=new, value=value)
        self._set(new, value.dtype)
        if new is not old:
            _empty(old, old_dtype)

    def abandon(self) -> None:
        """Stays without a value, but ready to be assigned one as it was at the start."""
        self._set(
            private.new_handle(self.variables[0], self._dtype, self.handle.device), self._dtype
        )

    def put_back(self, value: tf.Tensor) -> None:
        """Takes the value that it had at the start, into the resource that it had."""
        current, dtype = self.variables[0].handle, self.dtype
        tf.raw_ops.AssignVariableOp(resource=self.handle, value=value)
        self._set(self.handle, self._dtype)
        if current is not self.handle:
            _empty(current, dtype)

    def _set(self, handle: tf.Tensor, dtype: tf.DType) -> None:
        for variable in self.variables:
            private.set_handle(variable, handle, dtype)
        for wrapper in self.wrappers:
            wrapper._dtype = dtype.name  # noqa: SLF001


class TensorHolder:
    """An eager tensor, which is immutable, in places that can hold another.

    Attributes:
      name: the first place, as the user would write it.
      places: functions that put a tensor, or None meanwhile, into a place.
      dtype: what the tensor holds.
      device: where it lies.
    """

    def __init__(self, tensor: tf.Tensor, name: str):
        self.name = name
        self.places: list[Callable[[tf.Tensor | None], None]] = []
        self.dtype = tensor.dtype
        self.device = device_of(tensor.device)
        self._tensor: tf.Tensor | None = tensor

    def count(self) -> int:
        """How many elements it has."""
        assert self._tensor is not None
        return self._tensor.shape.num_elements()

    def prepare(self, unused_dtype: tf.DType) -> None:
        """Needs nothing."""

    def read(self) -> tf.Tensor:
        """The tensor itself."""
        return self._tensor

    def release(self) -> None:
        """Lets go of it; it is freed once nobody else holds it."""
        self._fill(None)

    def put(self, value: tf.Tensor, unused_device: str) -> None:
        """Takes another tensor."""
        self._fill(value)

    def put_back(self, value: tf.Tensor) -> None:
        """Takes a tensor with the values that it had at the start."""
        self._fill(value)

    def abandon(self) -> None:
        """Stays as it is: None holds its places."""

    def _fill(self, tensor: tf.Tensor | None) -> None:
        for place in self.places:
            place(tensor)
        self._tensor = tensor
        if tensor is not None:
            self.dtype, self.device = tensor.dtype, device_of(tensor.device)


def _empty(handle: tf.Tensor, dtype: tf.DType) -> None:
    tf.raw_ops.AssignVariableOp(resource=handle, value=_blank(dtype, handle.device))


@functools.cache
def _blank(dtype: tf.DType, device: str) -> tf.Tensor:
    """Nothing that looks right by broadcasting; made once, while there is room."""
    with tf.device(device):
        return tf.cast(float("nan"), dtype) if dtype.is_floating else tf.zeros([0], dtype)
