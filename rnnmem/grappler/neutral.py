"""Sums with zero and products by one, which TensorFlow hands on instead of computing them.

``constant_folding.cc`` (``SimplifyArithmeticOperations``) makes an ``Identity`` of ``x + 0`` and of
``x * 1``; in a graph with an op that writes over its input (``ModifiesInputsInPlace``), as loops
over chunks have, a ``Snapshot``. That has the same bits and another name, and by names TensorFlow
sorts what a sum adds up: the total of several losses that began with 0, say. So where ops that
write over their input are added, such an op becomes the ``Identity`` that it was.
"""

from __future__ import annotations

from collections.abc import Mapping

from rnnmem.ir.graph import Blob, DType, Net, Op, static
from rnnmem.ir.op_table import OVERWRITES, slots, types
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


def handed_on(net: Net) -> Net:
    """The Net in which such ops are the Identity that they were; itself where nothing overwrites.

    Args:
      net: a rewritten Net, to which ops were added that write over their input.
    """
    overwrites = any(op.type == OVERWRITES for _, inner in net.walk() for op in inner.ops)
    return _handed_on(net) if overwrites else net


def _handed_on(net: Net) -> Net:
    ops = []
    for op in net.ops:
        nets = {label: _handed_on(inner) for label, inner in op.nets.items()}
        if any(nets[label] is not op.nets[label] for label in nets):
            op = op.replace(nets=nets)
        operand = neutral_operand(net, op, net.blobs)
        if operand is not None and static(net.blobs[operand].shape) is not None:
            kind = {"T": DType(net.blobs[operand].dtype)}
            op = op.replace(type="Identity", inputs=(operand,), attributes=kind)
        ops.append(op)
    changed = any(one is not other for one, other in zip(ops, net.ops, strict=True))
    return net.replace(ops=tuple(ops)) if changed else net
