"""Makes a tensor's new form: on a device by TensorFlow, or on the host chunk by chunk."""

from __future__ import annotations

import ctypes

import numpy as np
import tensorflow as tf

from rnnmem.conversion.floats import largest, numpy_dtype
from rnnmem.conversion.plan import Tensor

NO_ROOM_OR_NO_KERNEL = (
    tf.errors.ResourceExhaustedError,
    tf.errors.UnimplementedError,
    tf.errors.NotFoundError,
)

_CHUNK_ELEMENTS = 1 << 18


def on_device(value: tf.Tensor, tensor: Tensor) -> tf.Tensor:
    """The new form, made by the devices; the smaller form is what travels."""
    if tensor.moves and tensor.bytes_after >= tensor.bytes_before:
        value = _moved(value, tensor.device_after)
        return _cast(value, tensor.dtype_after, tensor.device_after)
    value = _cast(value, tensor.dtype_after, tensor.device_before)
    return _moved(value, tensor.device_after) if tensor.moves else value


def to_host(value: tf.Tensor) -> np.ndarray:
    """A copy in host memory that shares nothing with the device."""
    return np.asarray(value).copy()


def from_host(values: np.ndarray, device: str) -> tf.Tensor:
    """A copy on the device.

    Raises:
      tf.errors.ResourceExhaustedError: the device has no room for it.
    """
    with tf.device(device):
        # TensorFlow turns an array into a tensor without asking whether a CPU has room for it, and
        # the process dies if it has not. An op that makes a tensor asks.
        return _filled(values) if device.startswith("CPU:") else tf.convert_to_tensor(values)


def on_host(values: np.ndarray, dtype: str, *, clip: bool) -> np.ndarray:
    """The new form in host memory.

    Args:
      values: the old one; it is left as it is.
      dtype: the new dtype's name.
      clip: whether values outside its range become the nearest one in it.
    """
    if values.dtype == numpy_dtype(dtype):
        return values
    flat = values.reshape(-1)
    result = np.empty(flat.shape, numpy_dtype(dtype))
    for start in range(0, flat.size, _CHUNK_ELEMENTS):
        part = slice(start, start + _CHUNK_ELEMENTS)
        result[part] = _cast_chunk(clipped(flat[part], dtype) if clip else flat[part], dtype)
    return result.reshape(values.shape)


def clipped(values: np.ndarray, dtype: str) -> np.ndarray:
    """Values outside the range of ``dtype`` become the nearest one in it; NaN stays."""
    bound = min(largest(dtype), float(np.finfo(np.float64).max))
    narrow = values.dtype != np.float64 and not np.issubdtype(values.dtype, np.integer)
    wide = values.astype(np.float32 if narrow else np.float64)
    return np.clip(wide, -bound, bound)


def _cast_chunk(values: np.ndarray, dtype: str) -> np.ndarray:
    """TensorFlow's kernels are many times faster than NumPy's, where there is room for them."""
    try:
        with tf.device("CPU:0"):
            return np.asarray(tf.cast(_filled(values), dtype))
    except NO_ROOM_OR_NO_KERNEL:
        with np.errstate(all="ignore"):
            return values.astype(numpy_dtype(dtype))


def _filled(values: np.ndarray) -> tf.Tensor:
    """A fresh tensor on the CPU of the current scope, with these values."""
    values = np.ascontiguousarray(values)
    known = tf.as_dtype(values.dtype)
    # No op makes a float8 tensor of bytes; the room that one of bytes found is free again at once.
    bytewise = known.name.startswith("float8")
    made = tf.raw_ops.Empty(shape=values.shape, dtype=tf.uint8 if bytewise else known)
    view = np.asarray(made)
    if values.size and not bytewise and np.shares_memory(view, np.asarray(made)):
        ctypes.memmove(view.ctypes.data, values.ctypes.data, values.nbytes)
        return made
    del made, view
    return tf.convert_to_tensor(values)


def _cast(value: tf.Tensor, dtype: str, device: str) -> tf.Tensor:
    if value.dtype.name == dtype:
        return value
    with tf.device(device):
        return tf.cast(value, dtype)


def _moved(value: tf.Tensor, device: str) -> tf.Tensor:
    with tf.device(device):
        return tf.identity(value)
