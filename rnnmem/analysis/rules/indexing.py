"""Ops that cut, pick and join."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rnnmem.analysis.facts import (
    LEADING,
    SHAPES,
    Dim,
    Fact,
    Value,
    of_value,
    to_shape,
    vector,
    without_symbols,
)
from rnnmem.analysis.row_values import (
    ROWS,
    Rows,
    RowValue,
    counts_rows,
    followed,
    numbers,
)
from rnnmem.ir.graph import Op, Shape
from rnnmem.ir.marks import PART


@SHAPES.of("Concat", "ConcatV2")
def _concat(op: Op, ins: list[Fact]) -> list[Fact]:
    *parts, axis = ins if op.type == "ConcatV2" else [*ins[1:], ins[0]]
    shapes = [part.shape for part in parts]
    if not isinstance(axis.value, int) or any(shape is None for shape in shapes):
        return []
    if axis.value == 0 and any(isinstance(part.value, tuple) for part in parts):
        if all(len(shape) == 1 and shape[0] is not None for shape in shapes):
            values = (vector(part) or (None,) * part.shape[0] for part in parts)
            return [of_value(sum(values, ()))]
    if len({len(shape) for shape in shapes}) > 1:
        return []
    at = axis.value % len(shapes[0])
    sizes = [shape[at] for shape in shapes]
    total = None if None in sizes else sum(sizes)
    rest = [
        next((shape[i] for shape in shapes if shape[i] is not None), None)
        for i in range(len(shapes[0]))
    ]
    matrices = [part.matrix for part in parts if part.matrix is not None]
    found = (*rest[:at], total, *rest[at + 1 :])
    if len(matrices) < len(parts):
        return [Fact(found)]
    beside = zip(*matrices, strict=False) if at else ((row,) for one in matrices for row in one)
    return [Fact(found, matrix=tuple(sum(rows, ()) for rows in beside))]


@SHAPES.of("ConcatOffset")
def _concat_offset(op: Op, ins: list[Fact]) -> list[Fact]:
    """Where each of what is joined begins."""
    axis, shapes = ins[0].value, [one.value for one in ins[1:]]
    if not isinstance(axis, int) or not all(isinstance(one, tuple) and one for one in shapes):
        return []
    rank = len(shapes[0])
    sizes = [one[axis % rank] if len(one) == rank else None for one in shapes]
    if not all(isinstance(size, int) for size in sizes):
        return []
    starts = itertools.accumulate(sizes[:-1], initial=0)
    return [of_value(tuple(start * (at == axis % rank) for at in range(rank))) for start in starts]


@SHAPES.of("Pack")
def _pack(op: Op, ins: list[Fact]) -> list[Fact]:
    axis = op.attributes.get("axis", 0)
    if ins[0].shape is None:
        return []
    if ins[0].shape == ():
        scalars = all(one.shape == () for one in ins)
        return [Fact((len(ins),), tuple(one.value for one in ins) if scalars else None)]
    at = axis % (len(ins[0].shape) + 1)
    shape = (*ins[0].shape[:at], len(ins), *ins[0].shape[at:])
    rows = [_numbers(one) for one in ins]
    if len(shape) != 2 or None in rows:
        return [Fact(shape)]
    return [Fact(shape, matrix=tuple(zip(*rows, strict=True) if at else rows))]


def _numbers(vector: Fact) -> tuple[int | None, ...] | None:
    if vector.shape is None or len(vector.shape) != 1 or not isinstance(vector.value, tuple):
        return None
    return without_symbols(vector.value)


@SHAPES.of("Unpack")
def _unpack(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = ins[0].shape
    if shape is None:
        return []
    at = op.attributes.get("axis", 0) % len(shape)
    value = ins[0].value
    if isinstance(value, tuple):
        return [of_value(one) if one is not None else Fact(()) for one in value]
    return [Fact((*shape[:at], *shape[at + 1 :]))] * len(op.outputs)


@SHAPES.of("Split", "SplitV")
def _split(op: Op, ins: list[Fact]) -> list[Fact]:
    axis, held = (ins[0], ins[1]) if op.type == "Split" else (ins[2], ins[0])
    if held.shape is None or not isinstance(axis.value, int):
        return []
    at = axis.value % len(held.shape)
    sizes = [None] * len(op.outputs)
    if op.type == "SplitV":
        sizes = _with_rest(to_shape(ins[1].value) or sizes, held.shape[at])
    elif held.shape[at] is not None:
        sizes = [held.shape[at] // len(op.outputs)] * len(op.outputs)
    if isinstance(held.value, tuple) and None not in sizes:
        ends = (*itertools.accumulate(sizes),)
        parts = zip(ends, sizes, strict=True)
        return [Fact((size,), held.value[end - size : end]) for end, size in parts]
    return [Fact((*held.shape[:at], size, *held.shape[at + 1 :])) for size in sizes]


def _with_rest(sizes: Sequence[Dim | int | None], whole: Dim | int | None) -> Sequence:
    """Sizes of parts, of which one may be told by the others."""
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) != len(sizes) - 1 or not isinstance(whole, int):
        return sizes
    return [whole - sum(known) if size is None else size for size in sizes]


@SHAPES.of("Slice")
def _slice(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, begin, size = ins[0].shape, ins[1].value, ins[2].value
    if shape is None or not isinstance(size, tuple):
        return []
    if PART in op.attributes:
        return [Fact(shape)]
    begin = begin if isinstance(begin, tuple) else (None,) * len(size)
    if not len(begin) == len(size) == len(shape):
        return []
    found = tuple(
        (None if a is None or b is None else b - a) if c == -1 else c
        for a, b, c in zip(begin, shape, size, strict=True)
    )
    value = None
    if isinstance(ins[0].value, tuple) and begin[0] is not None and found[0] is not None:
        value = ins[0].value[begin[0] : begin[0] + found[0]]
    return [Fact(found, value)]


@SHAPES.of("StridedSlice")
def _strided_slice(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = ins[0].shape
    begin, end, stride = map(_bounds, ins[1:4])
    if shape is None or begin is None or end is None or stride is None:
        return []
    if not len(begin) == len(end) == len(stride):
        return []
    axes, masks = sliced_axes(op, len(begin), len(shape)), _masks(op)
    if axes is None:
        return []
    found = tuple(
        1
        if axis is None
        else shape[axis]
        if place is None
        else _sliced_size(shape[axis], begin[place], end[place], stride[place], masks, place)
        for axis, place in axes
    )
    if ins[0].matrix is not None:
        return [_cut_out(ins[0].matrix, begin, end, stride, masks, found)]
    return [Fact(found, _sliced_value(ins[0].value, begin, end, stride, masks))]


def _bounds(fact: Fact) -> tuple | None:
    """A StridedSlice's bounds, as far as they are known; None: not even how many are."""
    if isinstance(fact.value, tuple):
        return fact.value
    shape = fact.shape
    return None if shape is None or shape[0] is None else (None,) * shape[0]


def sliced_axes(op: Op, count: int, rank: int) -> list[tuple[int | None, int | None]] | None:
    """Of each axis of a StridedSlice's result: of which axis it is a part, by which of its bounds.

    Args:
      op: the StridedSlice.
      count: how many bounds it has.
      rank: of what it reads.

    Returns:
      A pair for each; None for the axis: it is new; None for the bounds: all of the axis is there.
      None in place of them all: there are bounds for more axes than it reads.
    """
    masks = _masks(op)
    found: list[tuple[int | None, int | None]] = []
    at = 0
    for place in range(count):
        if masks["ellipsis"] >> place & 1:
            named = sum(not masks["new_axis"] >> i & 1 for i in range(place + 1, count))
            found += ((axis, None) for axis in range(at, rank - named))
            at = rank - named
        elif masks["new_axis"] >> place & 1:
            found.append((None, None))
        elif at >= rank:
            return None
        else:
            if not masks["shrink_axis"] >> place & 1:
                found.append((at, place))
            at += 1
    return [*found, *((axis, None) for axis in range(at, rank))]


def _masks(op: Op) -> dict[str, int]:
    return {name: int(op.attributes.get(f"{name}_mask") or 0) for name in _MASKS}


def _sliced_size(
    size: int | None,
    begin: int | None,
    end: int | None,
    stride: int | None,
    masks: dict[str, int],
    place: int,
) -> int | None:
    """How many elements of an axis are between its bounds."""
    start, stop = (
        (None if masks[name] >> place & 1 else bound)
        for name, bound in (("begin", begin), ("end", end))
    )
    open_start = start is None and not masks["begin"] >> place & 1
    open_stop = stop is None and not masks["end"] >> place & 1
    if size is None or open_start or open_stop or not stride:
        return None
    return len(range(size)[slice(start, stop, stride)])


def _cut_out(matrix, begin, end, stride, masks, shape: Shape) -> Fact:
    """What a slice leaves of a matrix: a matrix, a vector, or a number of it."""
    numbers = (*begin, *end, *stride)
    plain = not masks["ellipsis"] and not masks["new_axis"] and len(begin) <= 2
    if not plain or 0 in stride or not all(isinstance(one, int) for one in numbers):
        return Fact(shape)
    places = [range(len(matrix)), range(len(matrix[0]) if matrix else 0)]
    for axis, (first, last, step) in enumerate(zip(begin, end, stride, strict=True)):
        bit = 1 << axis
        first, last = None if masks["begin"] & bit else first, None if masks["end"] & bit else last
        one = masks["shrink_axis"] & bit
        places[axis] = places[axis][begin[axis] :][:1] if one else places[axis][first:last:step]
    rows = tuple(tuple(matrix[row][column] for column in places[1]) for row in places[0])
    if len(shape or ()) == 2:
        return Fact(shape, matrix=rows)
    flat = sum(rows, ())
    if shape == ():
        return Fact(shape, flat[0] if len(flat) == 1 else None)
    return Fact(shape, flat)


_MASKS = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")


def _sliced_value(value: Value, begin, end, stride, masks) -> Value:
    if not isinstance(value, tuple) or len(begin) != 1 or masks["ellipsis"] or masks["new_axis"]:
        return None
    if masks["shrink_axis"]:
        at = begin[0]
        return value[at] if at is not None and -len(value) <= at < len(value) else None
    unknown = (begin[0] is None and not masks["begin"]) or (end[0] is None and not masks["end"])
    if unknown or not stride[0]:
        return None
    start = None if masks["begin"] else begin[0]
    stop = None if masks["end"] else end[0]
    return value[slice(start, stop, stride[0])]


@SHAPES.of("GatherV2")
def _gather(op: Op, ins: list[Fact]) -> list[Fact]:
    held, indices = ins[0], ins[1]
    axis = ins[2].value if len(ins) > 2 else 0
    if isinstance(held.value, tuple) and indices.value is not None and axis == 0:
        picked = vector(indices)
        if None not in picked and all(-len(held.value) <= i < len(held.value) for i in picked):
            found = tuple(held.value[i] for i in picked)
            return [of_value(found if isinstance(indices.value, tuple) else found[0])]
    if held.shape is None or indices.shape is None or not isinstance(axis, int):
        return []
    at = axis % len(held.shape)
    shared = op.attributes.get("batch_dims") or 0
    shared += len(indices.shape) if shared < 0 else 0
    return [Fact((*held.shape[:at], *indices.shape[shared:], *held.shape[at + 1 :]))]


@SHAPES.of("GatherNd")
def _gather_nd(op: Op, ins: list[Fact]) -> list[Fact]:
    held, indices = ins[0].shape, ins[1].shape
    if held is None or not indices or indices[-1] is None:
        return []
    return [Fact((*indices[:-1], *held[indices[-1] :]))]


@LEADING.of("ResourceGather")
def _lookup(op: Op, ins: list[Fact]) -> Shape:
    return ins[1].shape


@LEADING.of("ResourceGatherNd")
def _lookup_nd(op: Op, ins: list[Fact]) -> Shape:
    return None if not ins[1].shape else ins[1].shape[:-1]


@SHAPES.of("TopKV2")
def _top(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, count = ins[0].shape, ins[1].value
    if not shape:
        return []
    return [Fact((*shape[:-1], count if isinstance(count, int) else None))] * 2


@SHAPES.of("Multinomial", "StatelessMultinomial")
def _drawn(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, count = ins[0].shape, ins[1].value
    return [Fact((shape[0] if shape else None, count if isinstance(count, int) else None))]


@SHAPES.of(
    "AllCandidateSampler",
    "FixedUnigramCandidateSampler",
    "LearnedUnigramCandidateSampler",
    "LogUniformCandidateSampler",
    "ThreadUnsafeUnigramCandidateSampler",
    "UniformCandidateSampler",
)
def _candidates(op: Op, ins: list[Fact]) -> list[Fact]:
    sampled = Fact((op.attributes["num_sampled"],))
    return [sampled, Fact(ins[0].shape), sampled]


@SHAPES.of("DynamicStitch")
def _stitch(op: Op, ins: list[Fact]) -> list[Fact]:
    half = len(ins) // 2
    placed: dict[int, int | None] = {}
    rows: list[Shape] = []
    for where, what in zip(ins[:half], ins[half:], strict=True):
        indices, values = vector(where), vector(what)
        if indices is None or None in indices or what.shape is None or where.shape is None:
            return []
        rows.append(what.shape[len(where.shape) :])
        if values is None or len(values) != len(indices):
            values = (None,) * len(indices)
        placed.update(zip(indices, values, strict=True))
    if not placed or sorted(placed) != list(range(len(placed))):
        return []
    if any(rows):  # whole rows, not numbers
        return [Fact((len(placed), *max(rows, key=lambda row: row.count(None) == 0)))]
    return [of_value(tuple(placed[i] for i in range(len(placed))))]


@ROWS.of("GatherV2")
def _gather_rows(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    held, indices, axis = values[0], values[1], numbers(values[2])
    if axis is None:
        return None
    shared = op.attributes.get("batch_dims") or 0
    if not isinstance(held, Rows) or not isinstance(indices, Rows) or counts_rows(values):
        return None
    at = axis[0] % len(held.shape)
    if not 1 <= shared <= at or held.shape[:shared] != indices.shape[:shared]:
        return None
    return [Rows((*held.shape[:at], *indices.shape[shared:], *held.shape[at + 1 :]))]


@ROWS.of("Slice")
def _slice_rows(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    held, begin, size = values[0], numbers(values[1]), numbers(values[2])
    if begin is None or size is None:
        return None
    if not isinstance(held, Rows) or held.ramp is not None or begin[0] or size[0] != -1:
        return None
    shape = [held.shape[0]]
    for dim, first, count in zip(held.shape[1:], begin[1:], size[1:], strict=True):
        if count == -1 and dim.number is None:
            return None
        shape.append(Dim(dim.factor - first if count == -1 else count))
    return [Rows(tuple(shape))]


ROWS.of("ConcatV2", "DynamicStitch", "Pack", "StridedSlice", "Unpack")(followed)
