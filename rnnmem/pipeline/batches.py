"""What a step is given: checked, described, and cut into micro-batches."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from rnnmem.errors import OptionError
from rnnmem.pipeline.tracing import feeds_of
from rnnmem.sizes import parse_count


class Batch:
    """One batch, x and y, that is cut along its first axis.

    Attributes:
      feeds: "x" and "y" as structures of places in the flat parts.
      specs: of the parts of one micro-batch.
      size: examples in the batch.
    """

    def __init__(self, x: Any, y: Any, micro_batches: int):
        """Checks a batch.

        Raises:
          OptionError: a part is no array, the parts do not agree, or the batch does not divide.
        """
        self.feeds, flat = feeds_of(_arrays(x), _arrays(y))
        if self.feeds["x"] is None or not flat:
            raise OptionError(f"x={x!r} holds no array")
        self._flat = [_array(part) for part in flat]
        sizes = {int(part.shape[0]) for part in self._flat}
        if len(sizes) > 1:
            raise OptionError(
                f"x and y hold {', '.join(map(str, sorted(sizes)))} examples: "
                "the first axis of all parts must be the same batch"
            )
        self.size = sizes.pop()
        if self.size == 0 or self.size % micro_batches:
            raise OptionError(
                f"a batch of {self.size} examples does not divide into micro_batches="
                f"{micro_batches}: pass a multiple of {micro_batches}, or other micro_batches"
            )
        self._each = self.size // micro_batches
        self.specs = [
            tf.TensorSpec([self._each, *part.shape[1:]], part.dtype) for part in self._flat
        ]

    @property
    def signature(self) -> tuple:
        """Equal for batches that one program serves."""
        shapes = tuple((tuple(spec.shape), spec.dtype) for spec in self.specs)
        return shapes, repr(self.feeds)

    def part(self, place: int, micro_batch: int) -> Any:
        """One micro-batch of one part."""
        start = micro_batch * self._each
        return self._flat[place][start : start + self._each]


def _batches_of(
    x: Any, y: Any, size: int | None, order: np.ndarray | None = None
) -> Iterator[tuple]:
    """Cuts arrays into batches.

    Args:
      x: a structure of arrays.
      y: the same, or None.
      size: examples in a batch; None makes one batch of all.
      order: the examples' numbers in the order to take them.
    """
    x, y = _arrays(x), _arrays(y)
    count = examples_of(x)
    size = count if size is None else size
    for start in range(0, count, size):
        rows = slice(start, start + size) if order is None else order[start : start + size]
        yield tuple(
            None if part is None else tf.nest.map_structure(lambda one, r=rows: _rows(one, r), part)
            for part in (x, y)
        )


def checked_batches(
    x: Any, y: Any, size: Any, micro_batches: int, order: np.ndarray | None = None
) -> Iterable[tuple]:
    """Batches of arrays, checked all at once, or those of a stream as they come."""
    size = None if size is None else parse_count(size, "batch_size")
    if is_stream(x):
        if y is not None or size is not None:
            raise OptionError("x already gives batches: pass neither y nor batch_size")
        return (one if isinstance(one, tuple) and len(one) == 2 else (one, None) for one in x)
    found = list(_batches_of(x, y, size, order))
    for inputs, targets in found:
        Batch(inputs, targets, micro_batches)
    return found


def examples_of(x: Any) -> int:
    """How many examples a structure of arrays holds."""
    flat = [_array(part) for part in tf.nest.flatten(_arrays(x))]
    if not flat:
        raise OptionError(f"x={x!r} holds no array")
    return int(flat[0].shape[0])


def is_stream(data: Any) -> bool:
    """Whether data gives batches by itself, one (x, y) after the other."""
    if isinstance(data, tf.data.Dataset):
        return True
    array = isinstance(data, (np.ndarray, tf.Tensor, list, tuple, dict))
    return not array and isinstance(data, Iterable)


def _arrays(given: Any) -> Any:
    """A structure of arrays; nested lists of numbers are one array."""
    if given is None:
        return None
    flat = tf.nest.flatten(given)
    if isinstance(given, (list, tuple)) and all(isinstance(one, numbers.Number) for one in flat):
        return np.asarray(given)
    return given


def _array(part: Any) -> Any:
    if isinstance(part, (tf.RaggedTensor, tf.SparseTensor)):
        raise OptionError(f"a {type(part).__name__} cannot be cut into micro-batches: pad it first")
    if not isinstance(part, (np.ndarray, tf.Tensor)):
        try:
            part = np.asarray(part)
        except (TypeError, ValueError) as error:
            raise OptionError(f"{type(part).__name__} is no array") from error
        if part.dtype == object:
            raise OptionError(f"{part!r} is no array of numbers or texts")
    if len(part.shape) == 0:
        raise OptionError(f"{part!r} has no first axis to cut into micro-batches")
    return part


def _rows(part: Any, rows: Any) -> Any:
    part = _array(part)
    if isinstance(rows, slice):
        return part[rows]
    return tf.gather(part, rows) if isinstance(part, tf.Tensor) else part[rows]
