"""Ops that give elements another shape, repeat them, or make new ones of a shape."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Sequence

from rnnmem.analysis.facts import (
    SHAPES,
    UNKNOWN,
    Dim,
    Fact,
    Rule,
    Value,
    broadcast,
    of_value,
    to_shape,
    vector,
    without_symbols,
)
from rnnmem.analysis.row_values import (
    ONE,
    ROW,
    ROWS,
    Given,
    Rows,
    RowValue,
    broadcast_rows,
    followed,
    has_rows,
    numbers,
    product,
    resolved,
    whole_numbers,
)
from rnnmem.ir.graph import Op
from rnnmem.ir.op_table import slots


@SHAPES.of("Reshape")
def _reshape(op: Op, ins: list[Fact]) -> list[Fact]:
    wanted, shape = ins[1].value, ins[0].shape
    if not isinstance(wanted, tuple):
        return [Fact(value=ins[0].value)]
    found = list(to_shape(wanted))
    open_axes = [axis for axis, size in enumerate(found) if size is None]
    if len(open_axes) == 1 and shape is not None and None not in shape:
        rest = math.prod(size for size in found if size is not None)
        if rest and not math.prod(shape) % rest:
            found[open_axes[0]] = math.prod(shape) // rest
    rows, value = ins[0].matrix, ins[0].value
    if rows and len(found) == 1:
        return [Fact(tuple(found), sum(rows, ()))]
    column = None
    if isinstance(value, tuple) and found == [len(value), 1]:
        column = tuple((one,) for one in without_symbols(value))
    return [Fact(tuple(found), _reshaped(value, len(found)), matrix=column)]


def _reshaped(value: Value, rank: int) -> Value:
    if rank == 0 and isinstance(value, tuple) and len(value) == 1:
        return value[0]
    return (value,) if rank == 1 and isinstance(value, int | Dim) else value


@SHAPES.of("ExpandDims")
def _expand_dims(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, axis = ins[0].shape, vector(ins[1])
    if shape is None or axis is None or axis[0] is None:
        return []
    at = axis[0] if axis[0] >= 0 else axis[0] + len(shape) + 1
    grown = (*shape[:at], 1, *shape[at:])
    return [Fact(grown, _reshaped(ins[0].value, len(grown)))]


@SHAPES.of("Squeeze")
def _squeeze(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = ins[0].shape
    axes = op.attributes.get("squeeze_dims") or ()
    if shape is None or (not axes and None in shape):
        return []
    axes = {axis % len(shape) for axis in axes} if axes else None
    kept = tuple(
        size
        for axis, size in enumerate(shape)
        if (axis not in axes if axes is not None else size != 1)
    )
    return [Fact(kept, _reshaped(ins[0].value, len(kept)))]


@SHAPES.of("ConjugateTranspose", "Transpose")
def _transpose(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, order = ins[0].shape, ins[1].value
    if shape is None or not isinstance(order, tuple) or None in order:
        return []
    if len(order) != len(shape):
        return []
    rows = ins[0].matrix
    turned = tuple(zip(*rows, strict=True)) if rows and order == (1, 0) else rows
    return [Fact(tuple(shape[axis] for axis in order), matrix=turned)]


@SHAPES.of("InvertPermutation")
def _invert_permutation(op: Op, ins: list[Fact]) -> list[Fact]:
    order = ins[0].value
    if not isinstance(order, tuple) or None in order or sorted(order) != list(range(len(order))):
        return []
    places = {axis: place for place, axis in enumerate(order)}
    return [of_value(tuple(places[axis] for axis in range(len(order))))]


@SHAPES.of("RaggedTensorToTensor")
def _padded(op: Op, ins: list[Fact]) -> list[Fact]:
    """Rows of unequal lengths, one axis of them, as long as the longest or as they shall be."""
    asked, values, _, *parts = ins
    kinds = op.attributes.get("row_partition_types") or ()
    told = parts[-1].value if parts else None
    if not isinstance(told, tuple) or None in told or not values.shape:
        return []
    if tuple(kinds) == (b"ROW_SPLITS",) and told:
        count = len(told) - 1
        longest = max((end - start for start, end in itertools.pairwise(told)), default=0)
    elif tuple(kinds) == (b"FIRST_DIM_SIZE", b"VALUE_ROWIDS"):
        count, longest = parts[0].value, max(Counter(told).values(), default=0)
    else:
        return []
    found = (count, longest, *values.shape[1:])
    if asked.value == -1:
        return [Fact(found)]
    wanted = asked.value
    if not isinstance(wanted, tuple) or len(wanted) != len(found):
        return []
    pairs = zip(wanted, found, strict=True)
    return [Fact(tuple(size if one == -1 else one for one, size in pairs))]


@SHAPES.of("Tile")
def _tile(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, times = ins[0].shape, ins[1].value
    if shape is None or not isinstance(times, tuple):
        return []
    return [
        Fact(
            tuple(
                None if a is None or b is None else a * b for a, b in zip(shape, times, strict=True)
            )
        )
    ]


@SHAPES.of("MatrixDiagV3")
def _diagonal(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = ins[0].shape
    beside = ins[1].value
    square = ins[2].value == -1 and ins[3].value == -1
    if not shape or shape[-1] is None or not isinstance(beside, int) or not square:
        return []
    size = shape[-1] + abs(beside)
    return [Fact((*shape[:-1], size, size))]


@SHAPES.of("MatrixDiagPartV3")
def _diagonal_of(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, above = ins[0].shape, ins[1].value
    if shape is None or len(shape) < 2 or not isinstance(above, int):
        return []
    *rest, rows, columns = shape
    if rows is None or columns is None:
        return [Fact((*rest, None))]
    return [Fact((*rest, min(rows + min(above, 0), columns - max(above, 0))))]


@SHAPES.of("LogMatrixDeterminant", "MatrixDeterminant")
def _of_each_matrix(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = ins[0].shape
    return [] if shape is None or len(shape) < 2 else [Fact(shape[:-2])] * len(op.outputs)


@SHAPES.of("Lu", "SelfAdjointEigV2")
def _factors(op: Op, ins: list[Fact]) -> list[Fact]:
    """A number for each row of a matrix, and another matrix."""
    shape = ins[0].shape
    if not shape or op.attributes.get("compute_v") is False:
        return []
    found = [Fact(shape[:-1]), Fact(shape)]
    return found if op.type == "SelfAdjointEigV2" else found[::-1]


@SHAPES.of("LinSpace")
def _evenly_spaced(op: Op, ins: list[Fact]) -> list[Fact]:
    count = ins[2].value
    return [Fact((count,))] if isinstance(count, int) else []


@SHAPES.of("Fill")
def _fill(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = to_shape(ins[0].value)
    value = ins[1].value
    if shape == ():
        return [Fact((), value)]
    if shape is not None and len(shape) == 1 and isinstance(value, int) and shape[0] is not None:
        return [Fact(shape, (value,) * shape[0] if shape[0] <= 32 else None)]
    return [Fact(shape)]


def _shape_from(position: int) -> Rule:
    return lambda op, ins: [Fact(to_shape(ins[position].value))]


@SHAPES.of("Range")
def _range(op: Op, ins: list[Fact]) -> list[Fact]:
    if not all(isinstance(one.value, int) for one in ins) or not ins[2].value:
        return []
    found = range(*(one.value for one in ins))
    return [Fact((len(found),), tuple(found) if len(found) <= _LONGEST else None)]


_LONGEST = 4096
"""Whole numbers of a range up to which they are followed one by one."""


@SHAPES.of("OneHot")
def _one_hot(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, depth = ins[0].shape, ins[1].value
    if shape is None or not isinstance(depth, int):
        return []
    axis = op.attributes.get("axis", -1)
    at = len(shape) if axis == -1 else axis
    return [Fact((*shape[:at], depth, *shape[at:]))]


@SHAPES.of("Shape", "ShapeN")
def _shape(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact() if one.shape is None else of_value(tuple(one.shape)) for one in ins]


@SHAPES.of("Size")
def _size(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = ins[0].shape
    return [Fact((), None if shape is None or None in shape else math.prod(shape))]


@SHAPES.of("Rank")
def _rank(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact((), None if ins[0].shape is None else len(ins[0].shape))]


@SHAPES.of("BroadcastArgs")
def _broadcast_args(op: Op, ins: list[Fact]) -> list[Fact]:
    shapes = [vector(one) for one in ins]
    found = None if None in shapes else broadcast(shapes)
    return [] if found is None else [of_value(found)]


@SHAPES.of("BroadcastGradientArgs")
def _broadcast_gradient(op: Op, ins: list[Fact]) -> list[Fact]:
    """Which axes either side of a broadcast is summed over, or 1 wide on, which sums nothing.

    Where a size with symbols is 1 in a run, TensorFlow names its axis too. A sum over one row is
    that row, and its readers bring it into shape again.
    """
    left, right = (vector(one) for one in ins)
    if left is None or right is None:
        return []
    rank = max(len(left), len(right))
    padded = [(1,) * (rank - len(one)) + one for one in (left, right)]
    pairs = list(zip(*padded, strict=True))
    if any(None not in pair and pair[0] != pair[1] and 1 not in pair for pair in pairs):
        return []
    if left == right and None not in left:
        return [of_value(())] * 2
    if len(left) == len(right) and all(a == b or None in (a, b) for a, b in pairs):
        return []  # no axis is named where the shapes are equal
    return [
        UNKNOWN if None in one else of_value(tuple(i for i in range(rank) if one[i] == 1))
        for one in padded
    ]


ROWS.of("BroadcastArgs", "BroadcastGradientArgs", "Shape", "ShapeN", "Size")(followed)


@ROWS.of("Reshape")
def _reshape_rows(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    held, wanted = values[0], whole_numbers(values[1])
    if not isinstance(held, Rows) or not isinstance(wanted, tuple) or None in wanted:
        return None
    shape = resolved(product(held.shape), wanted)
    if shape is None or not has_rows(shape) or shape[0].over(ROW) is None:
        return None
    if held.ramp is None:
        return [Rows(shape)]
    # Rows that are counted must stay the same rows.
    same = shape[0] == held.shape[0] and product(shape[1:]) == product(held.shape[1:])
    return [dataclasses.replace(held, shape=shape)] if same else None


@ROWS.of("ExpandDims")
def _expand(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    held, axis = values[0], numbers(values[1])
    if axis is None:
        return None
    if not isinstance(held, Rows):
        return None
    at = axis[0] % (len(held.shape) + 1)
    shape = (*held.shape[:at], ONE, *held.shape[at:])
    return [dataclasses.replace(held, shape=shape)] if at else None


@ROWS.of("Squeeze")
def _squeeze_rows(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    (held,) = values
    axes = op.attributes.get("squeeze_dims") or ()
    dropped = {axis % len(held.shape) for axis in axes}
    if not dropped or 0 in dropped:
        return None
    shape = tuple(dim for axis, dim in enumerate(held.shape) if axis not in dropped)
    return [dataclasses.replace(held, shape=shape)]


@ROWS.of("Transpose")
def _transpose_rows(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    held, order = values[0], numbers(values[1])
    if not isinstance(held, Rows) or held.ramp is not None or order is None or not order:
        return None
    if order[0] != 0 or sorted(order) != list(range(len(held.shape))):
        return None
    return [Rows(tuple(held.shape[axis] for axis in order))]


@ROWS.of("BroadcastTo")
def _broadcast_to(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    held, wanted = values[0], whole_numbers(values[1])
    if not isinstance(wanted, tuple) or None in wanted or not has_rows(wanted):
        return None
    fits = broadcast_rows(wanted, held)
    if fits != wanted or (isinstance(held, Rows) and held.ramp is not None):
        return None
    return [Rows(wanted)]


@ROWS.of("Fill")
def _fill_rows(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    wanted = whole_numbers(values[0])
    if not isinstance(wanted, tuple) or None in wanted or not isinstance(values[1], Given):
        return None
    return [Rows(wanted)] if has_rows(wanted) else None


@ROWS.of("Tile")
def _tile_rows(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    held, times = values[0], whole_numbers(values[1])
    if isinstance(held, Given) and isinstance(times, tuple) and None not in times:
        shape = held.fact.shape
        if not shape or shape[0] != 1 or len(shape) != len(times) or None in shape:
            return None
        return [Rows(tuple(Dim(size) * time for size, time in zip(shape, times, strict=True)))]
    if not isinstance(held, Rows) or held.ramp is not None or not isinstance(times, tuple):
        return None
    if None in times or times[0] != ONE or any(one.rows for one in times):
        return None
    return [Rows(tuple(dim * time for dim, time in zip(held.shape, times, strict=True)))]


@ROWS.of("Range")
def _range_rows(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    start, limit, step = (whole_numbers(value) for value in values)
    if start != Dim(0) or step != ONE or not isinstance(limit, Dim) or limit.rows != 1:
        return None
    return [Rows((limit,), ONE)]


@ROWS.of("OneHot")
def _one_hot_rows(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    indices, depth = values[0], whole_numbers(values[1])
    if not isinstance(indices, Rows) or indices.ramp is not None or not isinstance(depth, Dim):
        return None
    axis = op.attributes.get("axis", -1)
    at = len(indices.shape) if axis == -1 else axis
    if at < 1 or depth.rows or not all(isinstance(one, Given) for one in values[2:]):
        return None
    return [Rows((*indices.shape[:at], depth, *indices.shape[at:]))]


for _name, _slot in slots("sized").items():
    SHAPES.setdefault(_name, _shape_from(_slot))
