"""Sums with zero and products by one, which TensorFlow hands on instead of computing them.

``constant_folding.cc`` (``SimplifyArithmeticOperations``) makes an ``Identity`` of ``x + 0`` and of
``x * 1``; in a graph with an op that writes over its input (``ModifiesInputsInPlace``), as loops
over chunks have, a ``Snapshot``. That has the same bits and another name, and by names TensorFlow
sorts what a sum adds up: the total of several losses that began with 0, say. So where ops that
write over their input are added, such an op becomes one that TensorFlow hands on as before.
"""

from __future__ import annotations

from rnnmem.ir.builders import INT, Encode, number
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import DType, Net, static
from rnnmem.ir.neutral import neutral_operand
from rnnmem.ir.op_table import OVERWRITES


def as_simplified(net: Net, constant: Encode) -> Net:
    """The Net in which such ops hand their operand on; itself where nothing overwrites.

    A Reshape to the shape that there is becomes an ``Identity`` when ``x + 0`` does, and is one of
    a sum's addends until then, as that is; an ``Identity`` would have gone before.

    Args:
      net: a rewritten Net, to which ops were added that write over their input.
      constant: encodes a number as the exporter wants it: (value, dtype) -> Constant.
    """
    overwrites = any(op.type == OVERWRITES for _, inner in net.walk() for op in inner.ops)
    return _simplified(net, constant) if overwrites else net


def _simplified(net: Net, constant: Encode) -> Net:
    editor = NetEditor(net)
    for op in net.ops:
        nets = {label: _simplified(inner, constant) for label, inner in op.nets.items()}
        if any(nets[label] is not op.nets[label] for label in nets):
            editor.ops[op.name] = op.replace(nets=nets)
        operand = neutral_operand(net, op, net.blobs)
        sizes = None if operand is None else static(net.blobs[operand].shape)
        if operand is not None and sizes is not None:
            shape = number(editor, list(sizes), constant)
            kinds = {"T": DType(net.blobs[operand].dtype), "Tshape": DType(INT)}
            editor.ops[op.name] = op.replace(
                type="Reshape", inputs=(operand, shape), attributes=kinds
            )
    same = all(editor.ops.get(op.name) is op for op in net.ops)
    return net if same else editor.net()
