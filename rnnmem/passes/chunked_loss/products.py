"""Products that make logits, and the blobs whose rows may be cut for one."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rnnmem.analysis.shapes import KnownNet
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import MATRIX_PRODUCTS, SAME_NUMBERS, TABLE, OpFacts, Work, types
from rnnmem.ir.order import reached
from rnnmem.passes.chunked_loss.exact import CUTS

LOSSES = types("softmax") | types("cross_entropy")
"""Types that make a projection one onto a vocabulary."""
BY_HAND = LOSSES | {"Exp"}
"""The same, where a softmax may be written out."""
_PRODUCTS = MATRIX_PRODUCTS | types("sums_products")
_MOST_SOURCES = 4


def projections(net: Net, readers: Collection[str] = LOSSES) -> Iterator[Op]:
    """Products of a Net whose result, as it is or shaped otherwise, goes to such readers."""
    for op in net.ops:
        if op.type in _PRODUCTS and len(op.inputs) == 2 and _reaches(net, op, readers):
            yield op


def _reaches(net: Net, op: Op, types: Collection[str]) -> bool:
    """Whether one of the types reads the product through ops that keep its elements, or some."""

    def read_from(blob: str) -> Iterator[str]:
        for reader in net.readers.get(blob, ()):
            if is_elementwise(reader) or (reader.type in CUTS and reader.inputs[0] == blob):
                yield from reader.outputs

    read = reached(op.outputs[:1], read_from)
    return any(reader.type in types for blob in read for reader in net.readers.get(blob, ()))


def is_elementwise(op: Op) -> bool:
    """Whether each number that the op gives is made of one that it reads, and as many are."""
    known = TABLE.get(op.type, OpFacts())
    return op.type in SAME_NUMBERS or op.type == "BiasAdd" or known.work is Work.POINTWISE


def sources(known: KnownNet, op: Op) -> list[str]:
    """Blobs whose rows might be cut for a product, the nearest first."""
    net, blob = known.net, op.inputs[0]
    found = [blob]
    while len(found) < _MOST_SOURCES:
        producer = net.producer.get(blob)
        if producer is None or not (
            producer.type in SAME_NUMBERS or producer.type == "Cast" or producer.type == "Transpose"
        ):
            break
        if producer.type == "Transpose":
            order = known.facts[producer.inputs[1]].value
            if not isinstance(order, tuple) or order != tuple(range(len(order))):
                break
        blob = producer.inputs[0]
        found.append(blob)
    return found
