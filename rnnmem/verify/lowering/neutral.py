"""Lowering of sums with zero and products by one: the original as TensorFlow simplifies it.

    x ─► AddV2(x, 0) ─► y        is        x ─► Reshape ─► y

where x has the result's shape. TensorFlow's ``constant_folding.cc`` does so to the original, a
negative zero included, where its trace tells the shape; a product by one is x whoever tells it.
Where the rewritten Net does so is only a hint, which says where to look: at that op, and at those
that compute the same and were merged into it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping

from rnnmem.analysis.shapes import with_known_shapes
from rnnmem.ir.graph import Net, Op, static
from rnnmem.ir.neutral import neutral_operand
from rnnmem.ir.op_table import slots
from rnnmem.ir.order import constant_value, topological
from rnnmem.verify.signatures import Signs

_UNIT = slots("unit")


def lower_original(original: Net, rewritten: Net) -> Net:
    """The original, with what hands its operand on doing so where that of the rewritten Net does.

    Args:
      original: the Net as imported.
      rewritten: what a rewrite made of it.
    """
    reshapes = dict(_reshapes(original, rewritten))
    ops: dict[str, Op] = {}
    blobs = dict(original.blobs)
    for op in original.ops:
        other = rewritten.op_by_name.get(op.name)
        if other is not None and other is not op:
            nets = {
                label: lower_original(inner, other.nets[label]) if label in other.nets else inner
                for label, inner in op.nets.items()
            }
            if any(nets[label] is not op.nets[label] for label in nets):
                op = op.replace(nets=nets)
        if op.name in reshapes:
            operand, reshape, shape = reshapes[op.name]
            (sizes,) = shape.outputs
            ops[shape.name] = shape.replace(controls=())
            blobs[sizes] = rewritten.blobs[sizes]
            inputs = operand, sizes
            op = op.replace(type=reshape.type, inputs=inputs, attributes=reshape.attributes)
        ops[op.name] = op
    lowered = tuple(ops.values())
    same = all(one is before for one, before in zip(lowered, original.ops, strict=False))
    return original if same else original.replace(ops=lowered, blobs=blobs)


def _reshapes(original: Net, rewritten: Net) -> Iterator[tuple[str, tuple[str, Op, Op]]]:
    """What each op that is handed on hands on, the Reshape that does so and its constant of sizes.

    Args:
      original: the Net as imported.
      rewritten: what a rewrite made of it.
    """
    found: dict[str, tuple[Op, Op]] = {}
    gone: dict[str, str] = {}
    for op in original.ops:
        other = rewritten.op_by_name.get(op.name)
        unit = _UNIT.get(op.type)
        if unit is None or (other is not None and other.type != "Reshape"):
            continue
        if all(constant_value(original, blob) != unit for blob in op.inputs):
            continue
        kinds = (with_known_shapes(original) if unit == 1 else original).blobs
        operand = neutral_operand(original, op, kinds)
        sizes = None if operand is None else static(kinds[operand].shape)
        if operand is None or sizes is None:
            continue
        if other is None:
            gone[op.outputs[0]] = operand
        elif constant_value(rewritten, other.inputs[1]) == sizes:
            found[op.outputs[0]] = how = other, rewritten.producer[other.inputs[1]]
            yield op.name, (operand, *how)
    if found and gone:
        numbers = original.of_ops(_numbers)
        merged = {numbers[blob]: how for blob, how in found.items()}
        for blob, operand in gone.items():
            if numbers[blob] in merged:
                yield original.producer[blob].name, (operand, *merged[numbers[blob]])


def _numbers(ops: Iterable[Op]) -> Mapping[str, int]:
    """Blob -> a number, which those share that the same ops compute from the same blobs."""
    signs = Signs()
    table: dict[Hashable, int] = {}
    numbers: dict[str, int] = {}
    for op in topological(ops):
        read = tuple([numbers.get(blob, blob) for blob in op.inputs])
        for place, blob in enumerate(op.outputs):
            numbers[blob] = table.setdefault((signs.of(op), read, place), len(table))
    return numbers
