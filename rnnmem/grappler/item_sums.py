"""In which order TensorFlow's CPU kernels add up the items of a batched product, and when.

``Sum`` over the first axis adds up few items one after another. From 16 on it has four sums, of
every fourth item each, which are added up in turn, and then what is left over
(``TensorReduction.h``, ``InnerMostDimPreserver``); so it is for whole vectors of columns.
``BatchMatMulV2`` multiplies each item by itself (``matmul_op_impl.h``, ``LaunchBatchMatMul``);
items small enough run side by side, and narrow ones may be cut along the axis that is summed.
"""

from __future__ import annotations

LANES = 4
MANY = 16
"""Items from which on there are so many sums."""
VECTOR = 16
"""Numbers that a vector of columns has at most."""
SMALL = 128 * 128
"""Multiplications of an item up to which several items run side by side."""
NARROW = 64
"""So many times larger an item must be than the axis is long that is summed."""
_DTYPES = ("float32", "float64")  # halves are rounded elsewhere


def keeps_bits(dtype: str, items: int, rows: int, inner: int, columns: int) -> bool:
    """Whether items ``[rows, inner] @ [inner, columns]`` alone add up to the bits of the batch."""
    size = rows * columns
    return (
        dtype in _DTYPES
        and items > 1
        and min(rows, inner, columns) > 1
        and size * inner > SMALL
        and size >= NARROW * inner
        and (items < MANY or size % VECTOR == 0)
    )


def lanes_of(items: int) -> tuple[tuple[int, int, int], ...]:
    """The sums in their order: first item, end, and step of each; the last goes on with theirs."""
    if items < MANY:
        return ((0, items, 1),)
    whole = items // LANES * LANES
    lanes = tuple((lane, whole, LANES) for lane in range(LANES))
    return (*lanes, (whole, items, 1)) if whole < items else lanes


def held_items(items: int) -> int:
    """How many items exist at once where they are added up so: two sums, and an item."""
    return 2 if items < MANY else 3
