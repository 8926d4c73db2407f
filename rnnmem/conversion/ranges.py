"""Finds values that the new dtype cannot hold, before anything is changed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from rnnmem.conversion.floats import out_of_range, safe_bound
from rnnmem.sizes import counted

_CHUNK_ELEMENTS = 1 << 20
# Where a chunk must be made wider first, which takes memory.
_CHUNK_ELEMENTS_WIDENED = 1 << 18
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
        return f"{self.name} ({counted(self.count, 'value')}, up to {self.magnitude:.6g})"


def excess_of(value: tf.Tensor, name: str, after: str, device: str) -> Excess | None:
    """The values that would silently become infinite or NaN, None where there are none.

    Args:
      value: an eager tensor of numbers; it is read once, or a second time if that does not settle
        it.
      name: what to call it.
      after: the new dtype's name.
      device: where it lies.
    """
    before = value.dtype.name
    bound = safe_bound(before, after)
    if math.isinf(bound):
        return None
    if before in _SUMMABLE and _is_within(value, bound, device):
        return None
    count, magnitude = 0, 0.0
    for chunk in _chunks(value, device):
        if _is_within(chunk, bound, device):
            continue
        values = np.asarray(chunk)
        outside = values[out_of_range(values, before, after)]
        if outside.size:
            count += outside.size
            magnitude = max(magnitude, float(np.max(np.abs(outside.astype(np.float64)))))
    return Excess(name, count, magnitude) if count else None


def _is_within(value: tf.Tensor, bound: float, device: str) -> bool:
    """Whether all elements are in range for certain: none exceeds the Euclidean norm.

    One pass; where the dtype is one that TensorFlow sums in, it takes no memory.
    """
    try:
        with tf.device(device):
            if value.dtype.name not in _SUMMABLE:
                value = tf.cast(value, tf.float32 if value.dtype.is_floating else tf.float64)
            norm = math.sqrt(2 * float(tf.nn.l2_loss(value)))
    except tf.errors.ResourceExhaustedError:
        return False
    return norm <= bound * _ROUNDING  # NaN is not


def _chunks(value: tf.Tensor, device: str) -> Iterator[tf.Tensor]:
    """The elements, some at a time; on a CPU they share the buffer."""
    summable = value.dtype.name in _SUMMABLE
    size = _CHUNK_ELEMENTS if summable else _CHUNK_ELEMENTS_WIDENED
    with tf.device(device):
        flat = tf.reshape(value, [-1])
    for start in range(0, flat.shape[0], size):
        with tf.device(device):
            chunk = flat[start : start + size]
        yield chunk
