"""Whole numbers that follow from how many rows there are."""

from __future__ import annotations

from rnnmem.analysis.row_rules import Sizes
from rnnmem.ir.builders import Encode, integer, number
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import DType


def times(net: NetEditor, blob: str, factor: int, constant: Encode) -> str:
    """A multiple of a whole number."""
    return blob if factor == 1 else integer(net, "Mul", blob, number(net, factor, constant))


def pack(net: NetEditor, numbers: list[str]) -> str:
    """Whole numbers as a vector."""
    return net.add(
        "Pack",
        numbers,
        (("int32", (len(numbers),)),),
        {"T": DType("int32"), "N": len(numbers), "axis": 0},
        name="rnnmem/pack",
    ).outputs[0]


def written_sizes(
    net: NetEditor, sizes: Sizes, rows: str | int, dtype: str, constant: Encode
) -> str:
    """A blob that holds sizes, where so many rows are."""
    dims = sizes.value if isinstance(sizes.value, tuple) else (sizes.value,)
    if isinstance(rows, int):
        numbers = [dim.at(rows) for dim in dims]
        value = numbers if isinstance(sizes.value, tuple) else numbers[0]
        return number(net, value, constant, dtype=dtype)
    parts = [
        times(net, rows, dim.factor, constant) if dim.rows else number(net, dim.factor, constant)
        for dim in dims
    ]
    found = pack(net, parts) if isinstance(sizes.value, tuple) else parts[0]
    if dtype == "int32":
        return found
    return net.add(
        "Cast",
        (found,),
        ((dtype, (len(dims),) if isinstance(sizes.value, tuple) else ()),),
        {"SrcT": DType("int32"), "DstT": DType(dtype), "Truncate": False},
        name="rnnmem/sizes",
    ).outputs[0]
