"""Lowering of sums with zero and products by one: the original as TensorFlow simplifies it.

    x ─► AddV2(x, 0) ─► y        is        x ─► Reshape ─► y

where x has the result's shape. TensorFlow's ``constant_folding.cc`` does so to the original, a
negative zero included, where its trace tells the shape; a product by one is x whoever tells it.
Where the rewritten Net does so is only a hint, which says where to look.
"""

from __future__ import annotations

import functools

from rnnmem.analysis.shapes import with_known_shapes
from rnnmem.ir.graph import Net, Op, static
from rnnmem.ir.neutral import neutral_operand
from rnnmem.ir.op_table import slots

_UNIT = slots("unit")


def lower_original(original: Net, rewritten: Net) -> Net:
    """The original, with what hands its operand on doing so where that of the rewritten Net does.

    Args:
      original: the Net as imported.
      rewritten: what a rewrite made of it.
    """
    ops: list[Op] = []
    blobs = dict(original.blobs)
    shaped = functools.cache(lambda: with_known_shapes(original).blobs)
    for op in original.ops:
        other = rewritten.op_by_name.get(op.name)
        if other is not None and other is not op:
            nets = {
                label: lower_original(inner, other.nets[label]) if label in other.nets else inner
                for label, inner in op.nets.items()
            }
            if any(nets[label] is not op.nets[label] for label in nets):
                op = op.replace(nets=nets)
            hint = other.type == "Reshape" != op.type
            kinds = shaped() if hint and _UNIT.get(op.type) == 1 else original.blobs
            operand = neutral_operand(original, op, kinds) if hint else None
            shape = None if operand is None else rewritten.producer.get(other.inputs[1])
            known = operand is not None and static(kinds[operand].shape) is not None
            if operand is not None and known and shape is not None and shape.type == "Const":
                (sizes,) = shape.outputs
                ops.append(shape.replace(controls=()))
                blobs[sizes] = rewritten.blobs[sizes]
                inputs = operand, sizes
                op = op.replace(type=other.type, inputs=inputs, attributes=other.attributes)
        ops.append(op)
    same = all(one is before for one, before in zip(ops, original.ops, strict=False))
    return original if same else original.replace(ops=tuple(ops), blobs=blobs)
