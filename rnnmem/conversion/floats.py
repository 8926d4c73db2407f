"""The floating-point dtypes that conversion knows, and what is lost from one to another."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from rnnmem.errors import OptionError

FLOATS = ("float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32", "float64")
MIXED = {"mixed_float16": "float16", "mixed_bfloat16": "bfloat16"}
"""Keras policies whose variables are float32, and the dtype that they compute in."""

_ALIASES = {"half": "float16", "float": "float32", "double": "float64"}


def parse_dtype(dtype: Any) -> str:
    """Reads a dtype as people give it.

    Args:
      dtype: a name ("float16", "half"), a TensorFlow or NumPy dtype, or a Keras policy with its
        name ("mixed_float16").

    Returns:
      One of ``FLOATS`` or of ``MIXED``.

    Raises:
      OptionError: it is none of them.
    """
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if not isinstance(name, str):
        try:
            name = np.dtype(dtype).name
        except TypeError:
            name = ""
    name = _ALIASES.get(name.strip().lower(), name.strip().lower())
    if name not in FLOATS and name not in MIXED:
        known = ", ".join([*FLOATS, *MIXED])
        raise OptionError(f"dtype={dtype!r} is not a floating-point dtype: choose from {known}")
    return name


def numpy_dtype(name: str) -> np.dtype:
    """NumPy's dtype for one of ``FLOATS``, and for integers."""
    return np.dtype(getattr(ml_dtypes, name, None) or name)


@functools.cache
def is_exact(before: str, after: str) -> bool:
    """Whether every value of ``before`` is one of ``after``, so that a way back loses nothing."""
    if before == after:
        return True
    if before not in FLOATS or after not in FLOATS:
        return False
    old, new = _info(before), _info(after)
    return (
        new.nmant >= old.nmant
        and float(new.max) >= float(old.max)
        and float(new.smallest_subnormal) <= float(old.smallest_subnormal)
        and (_has_infinity(after) or not _has_infinity(before))
    )


@functools.cache
def largest(name: str) -> float:
    """The largest finite value of a dtype."""
    return float(_info(name).max)


def out_of_range(values: np.ndarray, before: str, after: str) -> np.ndarray:
    """Which values would silently become infinite or, where there is no infinity, NaN.

    Args:
      values: an array of dtype ``before``.
      before: its dtype's name, of integers too.
      after: the name of one of ``FLOATS``.

    Returns:
      Booleans of the same shape. An infinity that stays one, and NaN, are in range.
    """
    with np.errstate(all="ignore"):
        converted = values.astype(numpy_dtype(after))
    was = np.isfinite(values) if _has_infinity(after) else ~np.isnan(values)
    return was & ~np.isfinite(converted)


@functools.cache
def safe_bound(before: str, after: str) -> float:
    """Values up to this magnitude are in range for certain; infinity where all values are.

    Args:
      before: the old dtype's name, of integers too.
      after: the name of one of ``FLOATS``.
    """
    if before == "bool" or is_exact(before, after):
        return float("inf")
    bound = largest(after)
    if before not in FLOATS and ml_dtypes.iinfo(numpy_dtype(before)).max <= bound:
        return float("inf")
    return bound


@functools.cache
def _has_infinity(name: str) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.isinf(np.array([np.inf]).astype(numpy_dtype(name)))[0])


def _info(name: str) -> Any:
    return ml_dtypes.finfo(numpy_dtype(name))
