"""Results of two runs, compared bit by bit: numbers, strings, lists, optionals, handles."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

Leaf = tuple[str, Any]
"""A name, and numbers of any shape, or a list of what ``==`` compares; None: not to be read."""


def leaves(results: Any, name: str = "output") -> Iterator[Leaf]:
    """Everything that a function returned, under the names ``output 0``, ``output 1``, ..."""
    for i, one in enumerate(tf.nest.flatten(results, expand_composites=False)):
        if one is not None:
            yield from _leaves(f"{name} {i}", one)


def leaves_of(name: str, values: tuple[tf.Tensor, ...]) -> Iterator[Leaf]:
    """The tensors behind one handle, under its name."""
    for value in values:
        yield from _leaves(name, value)


def unread(results: Any) -> list[str]:
    """Names of the outputs that nobody can look into: datasets and other opaque variants."""
    return list(dict.fromkeys(name for name, value in leaves(results) if value is None))


def differences(
    expected: Iterable[Leaf],
    found: Iterable[Leaf],
    tolerance: Mapping[str, float] | None = None,
) -> dict[str, str]:
    """The leaves that differ, by name, and how far apart their values are.

    Args:
      expected: leaves of the one run.
      found: leaves of the other.
      tolerance: dtype -> how far numbers may be off, as a part of the largest; None: no bit may be.
    """
    wrong: dict[str, str] = {}
    for one, other in itertools.zip_longest(expected, found, fillvalue=("nothing", None)):
        if one[0] != other[0]:
            wrong.setdefault(other[0], f"stands where {one[0]} was")
            break
        told = _difference(one[1], other[1], tolerance)
        if told is not None:
            wrong.setdefault(one[0], told)
    return wrong


def _leaves(name: str, value: Any) -> Iterator[Leaf]:
    if isinstance(value, tf.experimental.Optional):
        full = bool(value.has_value())
        yield name, [full]
        if full:
            for one in tf.nest.flatten(value.get_value(), expand_composites=False):
                yield from _leaves(name, one)
    elif not isinstance(value, tf.Tensor):
        for part in tf.nest.flatten(value, expand_composites=True):
            yield from _leaves(name, part) if isinstance(part, tf.Tensor) else ((name, None),)
    elif value.dtype == tf.resource:
        yield name, [repr(value)]
    elif value.dtype == tf.variant:
        yield from _of_variant(name, value)
    elif value.dtype == tf.string:
        yield name, [value.shape.as_list(), tf.reshape(value, [-1]).numpy().tolist()]
    else:
        yield name, np.asarray(value.numpy())


def _of_variant(name: str, value: tf.Tensor) -> Iterator[Leaf]:
    """The elements of a list; other variants cannot be looked into."""
    if "<TensorList>" not in repr(value):
        yield name, None
        return
    length = int(tf.raw_ops.TensorListLength(input_handle=value))
    yield name, [length]
    for index in range(length):
        item = _item(value, index)
        if isinstance(item, tf.Tensor):
            yield from _leaves(name, item)
        else:
            yield name, item


def _item(value: tf.Tensor, index: int) -> tf.Tensor | list | None:
    """An element of a list; a word where there is none, and None where it cannot be read."""
    # What a list holds is told by no op: asked for another dtype, it says so.
    for dtype in _ELEMENTS:
        try:
            return tf.raw_ops.TensorListGetItem(
                input_handle=value, index=index, element_shape=-1, element_dtype=dtype
            )
        except tf.errors.InvalidArgumentError as error:
            if "uninitialized" in error.message:
                return ["no element"]
    return None


_ELEMENTS = (
    *(tf.float32, tf.int32, tf.int64, tf.bool, tf.bfloat16, tf.float16, tf.float64, tf.variant),
    *(tf.string, tf.int8, tf.uint8, tf.int16, tf.uint16, tf.uint32, tf.uint64),
    *(tf.complex64, tf.complex128, tf.resource),
)


def _difference(one: Any, other: Any, tolerance: Mapping[str, float] | None) -> str | None:
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        same = type(one) is type(other) and one == other
        return None if same else "has other values"
    if one.dtype != other.dtype:
        return f"is of {other.dtype}, not {one.dtype}"
    if one.shape != other.shape:
        return f"has the shape {other.shape}, not {one.shape}"
    changed = _changed(one, other)
    if not changed.any():
        return None
    if not _is_inexact(one):
        return "has other values"
    count = f"{changed.sum()} of {changed.size} elements"
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    a, b = one[changed].astype(wide), other[changed].astype(wide)
    if (np.isnan(a) != np.isnan(b)).any():
        return f"is NaN where it was not, or the other way round ({count})"
    with np.errstate(invalid="ignore"):
        gaps = np.where((a == b) | np.isnan(a), 0.0, np.abs(a - b))
    gap = float(np.max(gaps))
    if tolerance is not None and gap <= _allowed(one, tolerance):
        return None
    if gap == 0.0:
        return f"has zeros of another sign, or other NaNs ({count})"
    return f"is off by up to {gap:.3g} ({count})"


def _changed(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Which elements differ in any bit; of the arrays' shape."""
    size = one.dtype.itemsize
    a, b = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (one, other))
    return (a.reshape(-1, size) != b.reshape(-1, size)).any(axis=1).reshape(one.shape)


def _is_inexact(value: np.ndarray) -> bool:
    """Whether the numbers are rounded ones; NumPy knows those of machine learning by name alone."""
    return value.dtype.kind in "fc" or "float" in str(value.dtype)


def _allowed(value: np.ndarray, tolerance: Mapping[str, float]) -> float:
    """How far numbers may be off."""
    sizes = np.abs(value.astype(np.complex128 if value.dtype.kind == "c" else np.float64))
    return tolerance.get(str(value.dtype), 0.0) * float(
        np.max(sizes[np.isfinite(sizes)], initial=0.0)
    )
