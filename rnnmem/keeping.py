"""``keep`` and ``recompute``: what a user asks of values that the gradient reads."""

from __future__ import annotations

from typing import Any, TypeVar

import tensorflow as tf

from rnnmem.ir.marks import REQUEST
from rnnmem.ir.requests import KEEP, RECOMPUTE
from rnnmem.tf import private

T = TypeVar("T")
_HANDLES = (tf.resource, tf.variant, tf.string)
"""Dtypes of which nothing is ever saved for its bytes."""


@tf.autograph.experimental.do_not_convert
def keep(value: T) -> T:
    """Asks that a value, where the gradient reads it, stays saved and is not computed again.

    Use it inside of an optimised function: in a loop's body, a Keras layer's ``call``, or outside
    of loops. It changes no bit and nothing that TensorFlow fuses; elsewhere it does nothing. What
    cannot be had as it is asked is told in the plan's notes.

    Args:
      value: a tensor, or a nested structure of tensors as ``tf.nest`` has them.

    Returns:
      The same object.
    """
    return _asked(value, KEEP)


@tf.autograph.experimental.do_not_convert
def recompute(value: T) -> T:
    """Asks that a value, where the gradient reads it, is computed again and not saved.

    It is an order, whatever time it takes; see :func:`keep`.

    Args:
      value: a tensor, or a nested structure of tensors as ``tf.nest`` has them.

    Returns:
      The same object.
    """
    return _asked(value, RECOMPUTE)


def _asked(value: Any, request: str) -> Any:
    for leaf in tf.nest.flatten(value, expand_composites=True):
        if tf.is_symbolic_tensor(leaf) and leaf.dtype not in _HANDLES:
            private.mark(leaf, REQUEST, request.encode())
    return value
