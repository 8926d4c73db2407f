"""Ops that only mark a value: nobody reads them, and TensorFlow prunes them."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2 as _attr_value_pb2
from tensorflow.python.eager import record as _record

_SCOPE = "rnnmem_marks/"
"""Marks are named so, lest the user's ops get other names: sums are sorted by these."""


def mark(tensor: tf.Tensor, attribute: str, value: bytes) -> None:
    """Adds an Identity of the tensor, with an attribute, to the tensor's own graph."""
    graph = tensor.graph
    with graph.as_default(), graph.name_scope(_SCOPE), _record.stop_recording():
        made = tf.raw_ops.Identity(input=tensor)
    made.op._set_attr(attribute, _attr_value_pb2.AttrValue(s=value))
