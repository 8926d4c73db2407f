"""A softmax loss by chunks of rows with the same bits: what sums over rows is done on the whole."""

from __future__ import annotations

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import APART, ASKS_SHAPE, MATRIX_PRODUCTS, SAME_NUMBERS, column, types
from rnnmem.ir.overwriting import may_be_made_in

COLUMNS = 16
"""Numbers that a row has a multiple of for kernels that finish each row by itself."""
CUTS = types("slices") - APART
"""Types that cut one part out of a blob: the logits of all words but the last, say."""
_FINISHES = types("finishes")
_SAME_BITS = column("bits")
_WHOLE_NUMBERS = ("bool", "int32", "int64")


def keeps_bits(net: Net, op: Op, aligned: bool) -> bool:
    """Whether an op gives by chunks of rows the bits that it gives of all.

    Args:
      net: the Net that it is in.
      op: the op.
      aligned: whether a row is a multiple of what kernels take at once.
    """
    if all(net.blobs[blob].dtype in _WHOLE_NUMBERS for blob in op.outputs):
        return True
    how = _SAME_BITS.get(op.type)
    return how == "" or how == "columns" and aligned


def makers_of_logits(net: Net, op: Op) -> list[Op]:
    """The product, and what finishes its result in its buffer or cuts it out of that, in order."""
    found = [op]
    while True:
        blob = found[-1].outputs[0]
        readers = [one for one in net.readers.get(blob, ()) if one.type not in ASKS_SHAPE]
        if len(readers) != 1 or blob in net.outputs or readers[0].inputs.count(blob) != 1:
            return found
        (reader,) = readers
        others = (one for one in reader.inputs if one != blob)
        small = not any(may_be_made_in(net, reader, one) for one in others)
        if reader.type not in SAME_NUMBERS and not (reader.type in _FINISHES | CUTS and small):
            return found
        found.append(reader)


def finishing_products(net: Net) -> frozenset[str]:
    """Names of the ops that finish a product in its buffer, or cut parts out of that."""
    products = (op for op in net.ops if op.type in MATRIX_PRODUCTS)
    return frozenset(one.name for op in products for one in makers_of_logits(net, op)[1:])
