"""Which kernels run an op here, where some ask for more memory than others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from rnnmem.ir.devices import kind_of
from rnnmem.ir.graph import DType
from rnnmem.tf import private

_OF_ONEDNN = frozenset({"float32", "bfloat16", "float16"})
"""Dtypes of which oneDNN has kernels."""


def runs(attributes: Mapping[str, Any], device: str) -> bool:
    """Whether an op's kernel is TensorFlow's own.

    Args:
      attributes: of the op; ``T``: its dtype.
      device: where it runs; empty: a GPU where there is one.
    """
    dtype = attributes.get("T")
    served = private.has_onednn() and isinstance(dtype, DType) and dtype.name in _OF_ONEDNN
    return not served and not on_gpu(device)


def is_primitive(attributes: Mapping[str, Any], device: str) -> bool:
    """Whether an op that oneDNN has a kernel for is run by that; arguments as of `runs`."""
    return not runs(attributes, device) and not on_gpu(device)


def on_gpu(device: str) -> bool:
    """Whether an op runs on a GPU; ``device``: its own, empty: a GPU where there is one."""
    return (kind_of(device) or _kind_here()) == "GPU"


def _kind_here() -> str:
    return "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
