"""Finds values that the new dtype cannot hold, before anything is changed."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import tensorflow as tf

from rnnmem.conversion.floats import out_of_range, safe_bound

_CHUNK_ELEMENTS = 1 << 20
# Dtypes that TensorFlow sums in at full speed.
_SUMMABLE = ("float32", "float64")
_ROUNDING = 0.9


@dataclasses.dataclass(frozen=True)
class Excess:
    """Values of one tensor outside the new dtype's range.

    Attributes:
      name: the tensor's.
      count: how many.
      magnitude: the largest absolute value.
    """

    name: str
    count: int
    magnitude: float

    def __str__(self) -> str:
        """Prints e.g. "dense/kernel (3 values, up to 1e+06)"."""
        values = "value" if self.count == 1 else "values"
        return f"{self.name} ({self.count} {values}, up to {self.magnitude:.6g})"


def excess_of(value: tf.Tensor, name: str, after: str, device: str) -> Excess | None:
    """The values that would silently become infinite or NaN, None where there are none.

    Args:
      value: an eager tensor; it is read once, or a second time if that does not settle it.
      name: what to call it.
      after: the new dtype's name.
      device: where it lies.
    """
    before = value.dtype.name
    bound = safe_bound(before, after)
    if math.isinf(bound) or _norm(value, before, device) <= bound * _ROUNDING:
        return None
    count, magnitude = 0, 0.0
    for values in _chunks(value, device):
        outside = values[out_of_range(values, before, after)]
        if outside.size:
            count += outside.size
            magnitude = max(magnitude, float(np.max(np.abs(outside.astype(np.float64)))))
    return Excess(name, count, magnitude) if count else None


def _norm(value: tf.Tensor, dtype: str, device: str) -> float:
    """The Euclidean norm, which no element exceeds; one pass and no memory. NaN settles nothing."""
    if dtype not in _SUMMABLE:
        return math.inf
    with tf.device(device):
        norm = math.sqrt(2 * float(tf.nn.l2_loss(value)))
    return math.inf if math.isnan(norm) else norm


def _chunks(value: tf.Tensor, device: str):
    if device.startswith("CPU:"):
        flat = np.asarray(value).reshape(-1)  # shares the buffer
    else:
        with tf.device(device):
            flat = tf.reshape(value, [-1])
    size = int(np.prod(value.shape.as_list(), dtype=np.int64))
    for start in range(0, size, _CHUNK_ELEMENTS):
        with tf.device(device):
            yield np.asarray(flat[start : start + _CHUNK_ELEMENTS])
