"""Ops whose result TensorFlow takes for one of their operands: times 1, or plus 0."""

from __future__ import annotations

from collections.abc import Mapping

from rnnmem.ir.graph import Blob, Net, Op
from rnnmem.ir.op_table import slots, types
from rnnmem.ir.order import constant_value

_UNIT = slots("unit")
_COMMUTES = types("commutes")


def neutral_operand(net: Net, op: Op, blobs: Mapping[str, Blob]) -> str | None:
    """The blob that TensorFlow hands on instead of the op's result: times 1, or plus 0.

    Args:
      net: the Net of the op.
      op: any op.
      blobs: what is known of the Net's blobs.
    """
    if op.type not in _UNIT:
        return None
    pairs = (op.inputs, op.inputs[::-1]) if op.type in _COMMUTES else (op.inputs,)
    shape = blobs[op.outputs[0]].shape
    return next(
        (
            blob
            for blob, number in pairs
            if blobs[blob].shape == shape and constant_value(net, number) == _UNIT[op.type]
        ),
        None,
    )


def other_factor(net: Net, op: Op) -> str | None:
    """The blob that a product multiplies by the number one, which changes no bit of it."""
    if op.type != "Mul":
        return None
    pairs = op.inputs, op.inputs[::-1]
    return next((blob for blob, number in pairs if _is_one(net, number)), None)


def _is_one(net: Net, blob: str) -> bool:
    return net.blobs[blob].shape == () and constant_value(net, blob) == _UNIT["Mul"]
