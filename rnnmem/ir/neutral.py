"""Ops whose result TensorFlow takes for one of their operands: times 1, or plus 0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    shape = blobs[op.outputs[0]].shape
    return next((blob for blob, _ in _neutral(net, op) if blobs[blob].shape == shape), None)


def other_factor(net: Net, op: Op) -> str | None:
    """The blob that a product multiplies by the number one, which changes no bit of it."""
    if op.type != "Mul":
        return None
    pairs = _neutral(net, op)
    return next((blob for blob, number in pairs if net.blobs[number].shape == ()), None)


def _neutral(net: Net, op: Op) -> Iterator[tuple[str, str]]:
    """An operand, and the other one that is the constant which changes nothing."""
    pairs = (op.inputs, op.inputs[::-1]) if op.type in _COMMUTES else (op.inputs,)
    for blob, number in pairs:
        if constant_value(net, number) == _UNIT[op.type]:
            yield blob, number
