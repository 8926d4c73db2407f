"""Ops that work element by element, hand on what they read, or look along a row."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence

from rnnmem.analysis.facts import (
    SHAPES,
    Dim,
    Fact,
    Value,
    broadcast,
    changed,
    common,
    merged,
    small,
)
from rnnmem.analysis.row_values import (
    ROWS,
    Given,
    Rows,
    RowValue,
    Sizes,
    as_float,
    broadcast_rows,
    counts_rows,
    whole_numbers,
)
from rnnmem.analysis.trip_count import ARITHMETIC, stays_in_cast
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Constant, DType, Op, ShapeValue
from rnnmem.ir.op_table import ADDS, column, types


@SHAPES.of("Identity", "PlaceholderWithDefault", "PreventGradient", "StopGradient")
def _first(op: Op, ins: list[Fact]) -> list[Fact]:
    return [ins[0]]


@SHAPES.of(
    "BiasAdd",
    "CheckNumerics",
    "CheckNumericsV2",
    "Cholesky",
    "CholeskyGrad",
    "Cumprod",
    "Cumsum",
    "CumulativeLogsumexp",
    "FFT",
    "FFT2D",
    "FFT3D",
    "FakeQuantWithMinMaxArgs",
    "FakeQuantWithMinMaxArgsGradient",
    "FakeQuantWithMinMaxVars",
    "FakeQuantWithMinMaxVarsPerChannel",
    "HSVToRGB",
    "IFFT",
    "IFFT2D",
    "IFFT3D",
    "InplaceUpdate",
    "LRNGrad",
    "LogSoftmax",
    "MatrixBandPart",
    "MatrixInverse",
    "MatrixSetDiagV3",
    "MatrixSquareRoot",
    "MaxPool3DGrad",
    "MaxPoolGrad",
    "OnesLike",
    "QuantizeAndDequantizeV2",
    "QuantizeAndDequantizeV3",
    "QuantizeAndDequantizeV4",
    "RGBToHSV",
    "RandomShuffle",
    "Reverse",
    "ReverseSequence",
    "ReverseV2",
    "Roll",
    "ScatterNdNonAliasingAdd",
    "Softmax",
    "TensorScatterAdd",
    "TensorScatterMax",
    "TensorScatterMin",
    "TensorScatterSub",
    "TensorScatterUpdate",
    "TensorStridedSliceUpdate",
)
def _like_first(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact(ins[0].shape)] * len(op.outputs)


def _pointwise(op: Op, ins: list[Fact]) -> list[Fact]:
    value = None
    if len(ins) == 2 and (op.type in ARITHMETIC or op.type in _DIVIDES):
        value = _combined(op.type, ins[0].value, ins[1].value)
    elif op.type in _COMPARES:
        found = _combined(op.type, ins[0].value, ins[1].value)
        value = found if isinstance(found, tuple) else None  # of a single one, who asks looks
    return [Fact(broadcast([one.shape for one in ins]), value)]


def _combined(type: str, first: Value, second: Value) -> Value:
    if first is None or second is None:
        return None
    if not isinstance(first, tuple) and not isinstance(second, tuple):
        return _number(type, first, second)
    vectors = [one if isinstance(one, tuple) else (one,) for one in (first, second)]
    lengths = {len(one) for one in vectors} - {1}
    if len(lengths) > 1:
        return None
    length = lengths.pop() if lengths else 1
    pairs = zip(*(one * length if len(one) == 1 else one for one in vectors), strict=True)
    return tuple(None if None in pair else _number(type, *pair) for pair in pairs)


_DIVIDES = types("divides")
_COMPARES = {one: getattr(operator, name) for one, name in column("compares").items()}


def _number(type: str, one: int | Dim, two: int | Dim) -> int | Dim | None:
    """What an op makes of two numbers; of symbols only what holds whatever they are."""
    if isinstance(one, int) and isinstance(two, int):
        if type in _COMPARES:
            return int(_COMPARES[type](one, two))
        known = ARITHMETIC.get(type)
        return None if known is None else small(known(one, two))
    if type == "Mul":
        return one * two
    if type in _DIVIDES:
        return one // two
    if type == "Maximum":  # a size of 0 is that of a part without rows, which is the whole
        size = one if two == 1 else two if one == 1 else None
        return size if isinstance(size, Dim) and size.factor > 0 else None
    return one + two if type in ADDS else None


@SHAPES.of("Cast")
def _cast(op: Op, ins: list[Fact]) -> list[Fact]:
    return [ins[0] if stays_in_cast(op, ins[0].value) else Fact(ins[0].shape)]


@SHAPES.of("Const")
def _const(op: Op, ins: list[Fact]) -> list[Fact]:
    held = op.attributes.get("value")
    if not isinstance(held, Constant):
        return []
    value = held.value if isinstance(held.value, int | tuple) else None
    return [Fact(held.shape, None if isinstance(value, bool) else value, matrix=held.rows)]


@SHAPES.of("AddN")
def _add_all(op: Op, ins: list[Fact]) -> list[Fact]:
    if all(one.element is None for one in ins):
        return [Fact(broadcast([one.shape for one in ins]))]
    length = next((one.length for one in ins if one.length is not None), None)
    return [changed(common(ins), value=None, length=length)]


@SHAPES.of("ZerosLike")
def _zeros_like(op: Op, ins: list[Fact]) -> list[Fact]:
    return [changed(ins[0], value=None)]


@SHAPES.of("IdentityN")
def _each(op: Op, ins: list[Fact]) -> list[Fact]:
    return ins


@SHAPES.of(
    "InTopKV2",
    "LowerBound",
    "MatrixSolve",
    "MatrixTriangularSolve",
    "TridiagonalSolve",
    "UpperBound",
)
def _like_second(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact(ins[1].shape)]


@SHAPES.of("EnsureShape")
def _ensure(op: Op, ins: list[Fact]) -> list[Fact]:
    held = op.attributes.get("shape")
    known = Fact(held.dims) if isinstance(held, ShapeValue) else Fact()
    return [merged(known, ins[0])]


@ROWS.of("OnesLike", "ZerosLike")
def _pointwise_rows(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    if op.type == "Cast" and isinstance(values[0], Sizes):
        kind = op.attributes.get("DstT")
        if isinstance(kind, DType) and kind.name in ("int32", "int64"):
            return [values[0]]
        held = values[0].value
        held = (held,) if isinstance(held, Dim) else held
        return None if any(dim.rows for dim in held) else as_float(values[0])
    if any(isinstance(value, Sizes) for value in values):
        ramps = [one for one in values if isinstance(one, Rows) and one.ramp is not None]
        return _ramped(op, values, ramps, ramps[0].shape) if ramps else None
    rows = [value for value in values if isinstance(value, Rows)]
    ramps = [value for value in rows if value.ramp is not None]
    shape: tuple[Dim, ...] = rows[0].shape
    for value in values:
        joined = broadcast_rows(shape, value)
        if joined is None:
            return None
        shape = joined
    if ramps:
        return _ramped(op, values, ramps, shape)
    return [Rows(shape)]


def _ramped(op, values, ramps, shape) -> Sequence[RowValue] | None:
    """A count of rows, added to something or of another dtype."""
    if len(ramps) != 1:
        return None
    (ramp,) = ramps
    if op.type == "Cast":
        return [dataclasses.replace(ramp, shape=shape)]
    if op.type in ADDS and not ramp.base:
        other = op.inputs[1 - values.index(ramp)]
        return [Rows(shape, ramp.ramp, other)]
    if op.type == "Mul" and not ramp.base:
        factor = whole_numbers(values[1 - values.index(ramp)])
        if isinstance(factor, Dim) and not factor.rows:
            return [Rows(shape, ramp.ramp * factor)]
    return None


@ROWS.of("LogSoftmax", "Softmax")
def _last_axis(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    (rows,) = values
    return [rows] if len(rows.shape) > 1 and rows.ramp is None else None


@ROWS.of("BiasAdd")
def _bias(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    rows, bias = values
    plain = op.attributes.get("data_format", b"NHWC") == b"NHWC"
    right = isinstance(rows, Rows) and isinstance(bias, Given) and len(rows.shape) > 1
    return [rows] if plain and right and rows.ramp is None else None


@ROWS.of("InTopKV2")
def _in_top(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    predictions, targets = values[:2]
    if not all(isinstance(one, Rows) for one in (predictions, targets)) or counts_rows(values):
        return None
    right = len(predictions.shape) == 2 and targets.shape == predictions.shape[:1]
    return [targets] if right and isinstance(values[2], Given) else None


@ROWS.of("AddN")
def _add_all_rows(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    if counts_rows(values) or not all(isinstance(value, Rows) for value in values):
        return None
    return [values[0]] if all(value.shape == values[0].shape for value in values) else None


@ROWS.of("Identity", "PreventGradient", "StopGradient")
def _hands_on(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    return [values[0]]


@SHAPES.of("Select")
def _select(op: Op, ins: list[Fact]) -> list[Fact]:
    # Both values have the result's shape; the mask may be a vector of its rows.
    return [Fact(merged(ins[1], ins[2]).shape)]


def _bytes_of_bits(op: Op) -> list[int | None]:
    """Bytes of an element before a Bitcast and behind it."""
    kinds = [getattr(op.attributes.get(name), "name", name) for name in ("T", "type")]
    return [BYTES_PER_ELEMENT.get(kind) for kind in kinds]


@SHAPES.of("Bitcast")
def _same_bits(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, (before, behind) = ins[0].shape, _bytes_of_bits(op)
    if shape is None or before is None or behind is None:
        return []
    if before == behind:
        return [Fact(shape)]
    if before < behind:  # the last axis counts the parts of an element
        return [Fact(shape[:-1])] if shape else []
    return [Fact((*shape, before // behind))]


@ROWS.of("Bitcast")
def _bitcast(op: Op, values: Sequence[RowValue]) -> Sequence[RowValue] | None:
    (held,) = values
    sizes = _bytes_of_bits(op)
    if not isinstance(held, Rows) or held.ramp is not None or None in sizes:
        return None
    return [held] if sizes[0] == sizes[1] else None


_POINTWISE = types("pointwise")
for _name in _POINTWISE - types("own_shape") - types("sized"):
    SHAPES.setdefault(_name, _pointwise)
for _name in _POINTWISE - types("softmax"):
    if "Random" not in _name:
        ROWS.setdefault(_name, _pointwise_rows)
