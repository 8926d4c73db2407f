"""Products, sums along axes, and losses."""

from __future__ import annotations

from collections.abc import Sequence

from rnnmem.analysis.facts import (
    SHAPES,
    Dim,
    Fact,
    broadcast,
    of_value,
    small,
    vector,
)
from rnnmem.analysis.row_values import (
    ONE,
    ROWS,
    Given,
    Partial,
    Rows,
    RowValue,
    broadcast_rows,
    counts_rows,
    dims,
    numbers,
    rank_of,
    shape_of,
    whole_numbers,
)
from rnnmem.analysis.trip_count import REDUCTIONS
from rnnmem.ir.graph import Op
from rnnmem.ir.op_table import MATRIX_PRODUCTS, REDUCES, einsum_terms


@SHAPES.of(*MATRIX_PRODUCTS)
def _matmul(op: Op, ins: list[Fact]) -> list[Fact]:
    left, right = ins[0].shape, ins[1].shape
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return []
    flip_left = op.attributes.get("transpose_a") or op.attributes.get("adj_x")
    flip_right = op.attributes.get("transpose_b") or op.attributes.get("adj_y")
    batch = broadcast([left[:-2], right[:-2]])
    if batch is None:
        return []
    return [Fact((*batch, left[-1 if flip_left else -2], right[-2 if flip_right else -1]))]


@SHAPES.of("Einsum")
def _einsum(op: Op, ins: list[Fact]) -> list[Fact]:
    terms = einsum_terms(op)
    if terms is None or any("." in labels for labels in (*terms[0], terms[1])):
        return []
    given, result = terms
    sizes: dict[str, int | None] = {}
    for axes, one in zip(given, ins, strict=True):
        if one.shape is None or len(one.shape) != len(axes):
            return []
        # An axis has one size in all operands: nothing is broadcast along a letter.
        sizes |= {
            axis: size for axis, size in zip(axes, one.shape, strict=True) if size is not None
        }
    return [Fact(tuple(sizes.get(axis) for axis in result))]


@SHAPES.of("EuclideanNorm", *REDUCES)
def _reduce(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, axes = ins[0].shape, vector(ins[1])
    value = ins[0].value
    if isinstance(value, int | Dim):
        return [Fact((), value)]
    if shape is None or axes is None or None in axes:
        return []
    if op.type in REDUCTIONS and axes and isinstance(value, tuple) and value and None not in value:
        total = small(REDUCTIONS[op.type](value))
        return [of_value((total,) if op.attributes.get("keep_dims") else total)]
    dropped = {axis % len(shape) for axis in axes} if shape else set()
    if op.attributes.get("keep_dims"):
        return [Fact(tuple(1 if i in dropped else size for i, size in enumerate(shape)))]
    return [Fact(tuple(size for i, size in enumerate(shape) if i not in dropped))]


@SHAPES.of("ArgMax", "ArgMin")
def _argument(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, axis = ins[0].shape, vector(ins[1])
    if not shape or axis is None or axis[0] is None:
        return []
    at = axis[0] % len(shape)
    return [Fact((*shape[:at], *shape[at + 1 :]))]


@SHAPES.of("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_cross_entropy(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact(ins[1].shape), Fact(ins[0].shape)]


@SHAPES.of("SoftmaxCrossEntropyWithLogits")
def _cross_entropy(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = broadcast([ins[0].shape, ins[1].shape])
    return [Fact(None if shape is None else shape[:1]), Fact(shape)]


@SHAPES.of("CTCLoss", "CTCLossV2")
def _ctc(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = ins[0].shape  # [frames, batch, classes]
    return [Fact(None if shape is None else shape[1:2]), Fact(shape)]


@SHAPES.of("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd", "UnsortedSegmentSum")
def _segment_sum(op: Op, ins: list[Fact]) -> list[Fact]:
    data, ids, count = ins[0].shape, ins[1].shape, ins[2].value
    if data is None or ids is None:
        return []
    return [Fact((count if isinstance(count, int) else None, *data[len(ids) :]))]


@SHAPES.of("SegmentMax", "SegmentMean", "SegmentMin", "SegmentProd", "SegmentSum")
def _sum_of_segments(op: Op, ins: list[Fact]) -> list[Fact]:
    data, labels = ins[0].shape, ins[1].value
    last = labels[-1] if isinstance(labels, tuple) and labels else None
    return [] if not data else [Fact((None if last is None else last + 1, *data[1:]))]


@SHAPES.of("L2Loss")
def _half_square(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact(())]


@SHAPES.of("BiasAddGrad")
def _bias_gradient(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact(None if ins[0].shape is None else ins[0].shape[-1:])]


@ROWS.of(*MATRIX_PRODUCTS)
def _matmul_rows(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    left, right = values[:2]
    flips = tuple(
        bool(op.attributes.get(names[0]) or op.attributes.get(names[1]))
        for names in (("transpose_a", "adj_x"), ("transpose_b", "adj_y"))
    )
    if isinstance(left, Rows) and len(left.shape) == 2:
        return _product_of_two(left, right, *flips)
    ranks = [rank_of(value) for value in (left, right)]
    if None in ranks or max(ranks) < 3:
        return None
    rank = max(ranks)
    batch: Dim | None = None
    for value, own in zip((left, right), ranks, strict=True):
        if isinstance(value, Rows):
            if own != rank or batch not in (None, value.shape[0]):
                return None
            batch = value.shape[0]
        elif not isinstance(value, Given) or (own == rank and value.fact.shape[0] != 1):
            return None
    shapes = [shape_of(name, value) for name, value in zip(op.inputs, (left, right), strict=False)]
    middle = max((shape[:-2] for shape in shapes), key=len)[1:]
    for shape in shapes:
        if len(shape) == rank and shape[1:-2] != middle:
            return None
    across = shapes[0][-1 if flips[0] else -2], shapes[1][-2 if flips[1] else -1]
    return [Rows((batch, *middle, *across))]


def _product_of_two(left: Rows, right: RowValue, flip_left: bool, flip_right: bool):
    if left.ramp is not None:
        return None
    if isinstance(right, Given) and not flip_left:
        shape = right.fact.shape
        if shape is None or len(shape) != 2:
            return None
        return [Rows((left.shape[0], dims("columns", shape)[0 if flip_right else 1]))]
    if isinstance(right, Rows) and flip_left and not flip_right and right.ramp is None:
        if len(right.shape) == 2 and right.shape[0] == left.shape[0]:
            return [Partial((left.shape[1], right.shape[1]))]
    return None


@ROWS.of(*REDUCES)
def _reduce_rows(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    held, axes = values[0], numbers(values[1])
    if axes is None:
        return None
    if not isinstance(held, Rows) or held.ramp is not None:
        return None
    rank = len(held.shape)
    if any(not -rank <= axis < rank for axis in axes):
        return None
    dropped = {axis % rank for axis in axes}
    keep = op.attributes.get("keep_dims")
    shape = tuple(
        ONE if axis in dropped else dim
        for axis, dim in enumerate(held.shape)
        if keep or axis not in dropped
    )
    if 0 not in dropped:
        return [Rows(shape)]
    return [Partial(shape)] if op.type == "Sum" else None


@ROWS.of("ArgMax", "ArgMin")
def _argument_rows(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    rows, axis = values[0], numbers(values[1])
    if not isinstance(rows, Rows) or axis is None or rows.ramp is not None:
        return None
    at = axis[0] % len(rows.shape)
    return [Rows((*rows.shape[:at], *rows.shape[at + 1 :]))] if at else None


@ROWS.of("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_loss(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    logits, labels = values
    if not isinstance(logits, Rows) or not isinstance(labels, Rows) or counts_rows(values):
        return None
    if len(logits.shape) != 2 or labels.shape != logits.shape[:1]:
        return None
    return [labels, logits]


@ROWS.of("SoftmaxCrossEntropyWithLogits")
def _dense_loss(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    rows = [value for value in values if isinstance(value, Rows)]
    if counts_rows(values) or any(len(one.shape) != 2 for one in rows):
        return None
    shape = rows[0].shape
    for value in values:
        shape = broadcast_rows(shape, value) if shape is not None else None
    return None if shape is None else [Rows(shape[:1]), Rows(shape)]


@ROWS.of("UnsortedSegmentSum")
def _segment_sum_rows(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    """What goes to place ``label + row * ramp`` stays within the row, as labels below ramp do.

    That they are: only where the same labels have picked one of ``ramp`` columns in each row, which
    TensorFlow's gradient of a gather does; see :func:`segments_stay_in_rows`.
    """
    data, ids, count = values[0], values[1], whole_numbers(values[2])
    if not isinstance(data, Rows) or not isinstance(ids, Rows) or not isinstance(count, Dim):
        return None
    if data.ramp is not None or ids.ramp is None or not ids.base or len(ids.shape) != 1:
        return None
    if data.shape[:1] != ids.shape or count != ids.shape[0] * ids.ramp:
        return None
    return [Rows((count, *data.shape[1:]))]


@ROWS.of("BiasAddGrad")
def _bias_gradient(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    (rows,) = values
    plain = op.attributes.get("data_format", b"NHWC") == b"NHWC"
    return [Partial(rows.shape[-1:])] if plain and len(rows.shape) > 1 else None
