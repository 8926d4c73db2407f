"""Which ops of a loop over chunks of rows may give other last bits than of all rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rnnmem.analysis.row_rules import Rows, Value, product
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import OVERWRITES, REDUCES, UNWRAP, column, types

_WHOLE_NUMBERS = ("bool", "int32", "int64", "variant")
_SAME_BITS = column("bits")
_HAND_ON = (OVERWRITES, UNWRAP)
_EACH_ROW = REDUCES | types("softmax") | types("cross_entropy")
"""Types that make a few numbers of each row, and take several of those at once, too."""
_ALIGNED, _COLUMNS = 64, 16
"""Numbers of a chunk, and of a row, that there must be a multiple of."""


def other_bits(body: Net, values: Mapping[str, Value], length: int) -> Iterator[Op]:
    """The ops of a loop's body that are not known to keep their bits in chunks of so many rows.

    Args:
      body: the loop's body.
      values: of its blobs.
      length: rows of the source in a chunk; the last may have fewer.
    """
    for op in body.ops:
        found = [values.get(blob) for blob in op.outputs]
        whole = all(body.blobs[blob].dtype in _WHOLE_NUMBERS for blob in op.outputs)
        if whole or op.type in _HAND_ON or not any(isinstance(one, Rows) for one in found):
            continue
        read, how = [values.get(blob) for blob in op.inputs], _SAME_BITS.get(op.type)
        each = [one for one in read if isinstance(one, Rows) and op.type in _EACH_ROW]
        sizes = [product(one.shape[:-1]) for one in each if len(one.shape) > 1]
        sizes += [product(one.shape) for one in (*read, *found) if isinstance(one, Rows)]
        rows = [size.at(length) for size in sizes if size.symbols == ("n",)]
        aligned = len(rows) == len(sizes) and not any(one is None or one % _ALIGNED for one in rows)
        wide = [one for one in (*read, *found) if isinstance(one, Rows) and len(one.shape) > 1]
        lasts = [one.shape[-1].factor for one in wide if one.shape[-1].factor > 1]
        columns = how != "columns" or not any(last % _COLUMNS for last in lasts)
        if how is None or not aligned or not columns:
            yield op
