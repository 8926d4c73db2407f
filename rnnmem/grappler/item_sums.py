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


def keeps_bits(dtype: str, items: int | None, rows: int, inner: int | None, columns: int) -> bool:
    """Whether items ``[rows, inner] @ [inner, columns]`` alone add up to the bits of the batch.

    Args:
      dtype: of the product.
      items: how many there are; None: as many as a run has, `MANY` or more.
      rows: of an item.
      inner: what is summed; None: what a run has, from the first to the last of `inner_sizes`.
      columns: of an item.
    """
    size = rows * columns
    least, most = inner_sizes(rows, columns)
    return (
        dtype in _DTYPES
        and (items is None or items > 1)
        and min(rows, columns) > 1
        and least <= (least if inner is None else inner) <= most
        and ((items is not None and items < MANY) or size % VECTOR == 0)
    )


def inner_sizes(rows: int, columns: int) -> tuple[int, int]:
    """The shortest and the longest axis along which an item is summed as it is among others."""
    size = rows * columns
    return max(2, SMALL // size + 1), size // NARROW


def lanes_of(items: int) -> tuple[tuple[int, int, int], ...]:
    """The sums in their order: first item, end, and step of each; the last goes on with theirs."""
    if items < MANY:
        return ((0, items, 1),)
    whole = items // LANES * LANES
    lanes = tuple((lane, whole, LANES) for lane in range(LANES))
    return (*lanes, (whole, items, 1)) if whole < items else lanes


def held_items(items: int, at_once: int = 1) -> int:
    """How many items exist at once where so many are made at once: sums, and what is added."""
    return 2 * at_once if items < MANY or at_once > 1 else 3
