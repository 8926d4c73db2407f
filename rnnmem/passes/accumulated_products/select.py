"""Which batched products are added up item by item: large ones, whose sums keep their bits.

    x [n, a, k], y [n, k, b] ─► BatchMatMul ─► [n, a, b] ─► Sum over n ─► [a, b]

That is the gradient of a weight that a tensor of rank three was multiplied with. TensorFlow's
kernels multiply each item by itself, however many there are, unless an item is so small that
several run side by side, or so narrow that one is cut along ``k``.
"""

from __future__ import annotations

from collections.abc import Iterator

from rnnmem.analysis.facts import Fact, vector
from rnnmem.analysis.machine import Machine
from rnnmem.analysis.shapes import KnownNet, filled
from rnnmem.grappler.item_sums import held_items, keeps_bits
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Op
from rnnmem.passes.accumulated_products.decision import AccumulatedProduct

PRODUCT = "BatchMatMulV2"
SUM = "Sum"
LEAST_BYTES = 1 << 20
"""That must be spared for a loop to be written."""
OPS_OF_AN_ITEM = 24
"""Ops that the loop starts for each item, those that TensorFlow makes of a loop among them."""
MOST_STARTING = 0.15
"""Part of the time of the products that starting these may take: a third of that of a step."""


def products_of(known: KnownNet, machine: Machine) -> tuple[AccumulatedProduct, ...]:
    """The products of a Net that are to be added up item by item.

    Args:
      known: the whole step, inlined, with its shapes.
      machine: what estimates of time assume.
    """
    return tuple(one for op in known.net.ops for one in _decided(known, op, machine))


def _decided(known: KnownNet, op: Op, machine: Machine) -> Iterator[AccumulatedProduct]:
    net = known.net
    made = net.producer.get(op.inputs[0]) if op.type == SUM else None
    if made is None or made.type != PRODUCT or net.fan_out(made.outputs[0]) != 1:
        return
    if op.attributes.get("keep_dims") or op.device != made.device:
        return
    shapes = [known.facts.get(blob, Fact()).shape for blob in (*made.inputs, made.outputs[0])]
    sizes = [tuple(one for one in shape or () if one is not None) for shape in shapes]
    if any(len(one) != 3 for one in sizes) or len({one[0] for one in sizes}) > 1:
        return
    if vector(known.facts.get(op.inputs[1], Fact())) != (0,):
        return
    x, _, (items, rows, columns) = sizes
    inner = x[1] if made.attributes.get("adj_x") else x[2]
    dtype = net.blobs[made.outputs[0]].dtype
    if not keeps_bits(dtype, items, rows, inner, columns):
        return
    item = rows * columns * BYTES_PER_ELEMENT[dtype]
    starting = items * OPS_OF_AN_ITEM * machine.launch_seconds
    spared = (items - held_items(items)) * item
    if spared < LEAST_BYTES or starting > MOST_STARTING * machine.seconds(made, filled(known)):
        return
    yield AccumulatedProduct(made.name, op.name, items, items * item, str(op.source or ""))
