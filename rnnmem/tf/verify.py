"""Runs the original beside the optimised function and compares every bit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rnnmem.errors import RnnmemWarning, VerifyError

TOLERANCE = {"float64": 1e-12, "float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}
"""Dtype -> how far numbers may be off, as a part of the largest, where sums have another order."""
ROUNDED = {"float64": 5e-2, "float32": 5e-2, "float16": 1e-1, "bfloat16": 1e-1}
"""The same where gradients are computed from saved copies of bfloat16, of 8 bits."""


def run_verified(
    original: Any,
    optimised: Any,
    call: Callable[[Any], Any],
    tolerance: Mapping[str, float] | None = None,
) -> Any:
    """Runs both functions from the same state; returns the optimised one's results.

    Variables are put back between the runs. What has other side effects (prints, op-level random
    state) has them once more.

    Args:
      original: the function as TensorFlow traced it.
      optimised: the function that runs instead.
      call: calls one or the other on the user's arguments.
      tolerance: dtype -> how far numbers may be off; None: every bit must be the same.

    Raises:
      VerifyError: an output or a variable differs; names it and how far apart the values are.
    """
    variables = list(original.variables)
    before = [tf.identity(variable) for variable in variables]
    expected = _state_after(call, original, variables)
    _restore(variables, before)
    results = call(optimised)
    found = _flat(results), [tf.identity(variable) for variable in variables]
    difference = _difference(expected, found, variables, tolerance)
    if difference is None:
        return results
    after = found[1]
    _restore(variables, before)
    again = _state_after(call, original, variables)
    _restore(variables, after)
    if _difference(expected, again, variables) is not None:
        warnings.warn(
            "rnnmem cannot verify this function: two runs of the original differ from each other "
            "(tf.config.experimental.enable_op_determinism and a seed make them equal)",
            RnnmemWarning,
            stacklevel=3,
        )
        return results
    raise VerifyError(f"the optimised function differs from the original: {difference}")


def _state_after(call, function, variables):
    return _flat(call(function)), [tf.identity(variable) for variable in variables]


def _restore(variables, values) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _flat(results) -> list:
    return [
        leaf
        for leaf in tf.nest.flatten(results, expand_composites=True)
        if isinstance(leaf, tf.Tensor) and leaf.dtype not in (tf.variant, tf.resource)
    ]


def _difference(expected, found, variables, tolerance=None) -> str | None:
    names = [f"output {index}" for index in range(len(expected[0]))]
    names += [f"variable {variable.name}" for variable in variables]
    pairs = zip(names, [*expected[0], *expected[1]], [*found[0], *found[1]], strict=True)
    for name, one, other in pairs:
        one, other = np.asarray(one), np.asarray(other)
        if one.tobytes() == other.tobytes() and one.shape == other.shape:
            continue
        if one.shape != other.shape:
            return f"{name} has the shape {other.shape}, not {one.shape}"
        if one.dtype.kind not in "fcV" and str(one.dtype) not in TOLERANCE:
            return f"{name} has other values"
        gap = np.max(np.abs(one.astype(np.float64) - other.astype(np.float64)))
        if tolerance is not None and gap <= _allowed(one, tolerance):
            continue
        return f"{name} is off by up to {gap:.3g}"
    return None


def _allowed(value: np.ndarray, tolerance: Mapping[str, float]) -> float:
    """How far numbers may be off."""
    largest = np.max(np.abs(value.astype(np.float64)), initial=0.0)
    return tolerance.get(str(value.dtype), 0.0) * largest
