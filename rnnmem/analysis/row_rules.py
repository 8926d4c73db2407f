"""Which ops work on rows one by one: what of a result a part of the rows gives.

A program is run on some of the rows (axis 0) of its inputs instead of on all of them. Then each of
its blobs is one of

    Rows      those rows of what the whole program has there
    Sizes     whole numbers made of shapes; ``n`` stands for how many rows there are
    Partial   a part of a sum over the rows: the parts together are the whole program's
    Given     the same as in the whole program

or nothing of the kind, and then the op must see all rows. A rule per op type says which; a test
holds the rules against TensorFlow's kernels. Rows are rows of memory: a Reshape that keeps whole
rows together keeps them in order.

    h [n, 32, 256] ─► Reshape ─► [n*32, 256] ─► MatMul(w) ─► [n*32, V] ─► softmax loss ─► [n*32]
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

from rnnmem.analysis import shape_rules
from rnnmem.analysis.shape_rules import MALFORMED, Fact, possible, results_of
from rnnmem.ir.graph import BYTES_PER_ELEMENT, DType, Op
from rnnmem.ir.op_table import ADDS, MATRIX_PRODUCTS, REDUCES, Rules, is_pure, types


@dataclasses.dataclass(frozen=True, slots=True)
class Dim:
    """A size: a number times symbols, e.g. ``32 * n``."""

    factor: int
    symbols: tuple[str, ...] = ()

    def __mul__(self, other: Dim) -> Dim:
        """The product."""
        symbols = tuple(sorted((*self.symbols, *other.symbols)))
        return Dim(self.factor * other.factor, symbols if self.factor * other.factor else ())

    def over(self, other: Dim) -> Dim | None:
        """The quotient; None where it is not known to be whole."""
        left = list(self.symbols)
        for symbol in other.symbols:
            if symbol not in left:
                return None
            left.remove(symbol)
        if not other.factor or self.factor % other.factor:
            return None
        return Dim(self.factor // other.factor, tuple(left))

    @property
    def number(self) -> int | None:
        """The size, where it is a number."""
        return None if self.symbols else self.factor

    @property
    def rows(self) -> int:
        """How often the number of rows is a factor."""
        return self.symbols.count("n")

    def at(self, whole: int | None) -> int | None:
        """The size where there are so many rows."""
        if any(symbol != "n" for symbol in self.symbols):
            return None
        if whole is None:
            return self.number
        return self.factor * whole**self.rows


ONE, ROW = Dim(1), Dim(1, ("n",))


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """The same as in the whole program."""

    fact: Fact


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the whole program's blob.

    Attributes:
      shape: of the part; only the first size has ``n`` in it, once.
      ramp: what row j of the part lacks for each row before the part; None: nothing. A whole
        program counts rows 0, 1, 2, ...; a part begins at 0 again.
      base: the blob that was added to such a count.
    """

    shape: tuple[Dim, ...]
    ramp: Dim | None = None
    base: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Sizes:
    """A whole number, or a vector of them."""

    value: Dim | tuple[Dim, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Partial:
    """A part of a sum over the rows."""

    shape: tuple[Dim, ...]


Value = Given | Rows | Sizes | Partial
Rule = Callable[[Op, Sequence[Value]], "Sequence[Value] | None"]
RULES = Rules[Rule]()
"""Op type -> what it gives for parts."""


def apply(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    """What an op gives for parts; None where it must see all rows.

    Args:
      op: the op.
      values: of its inputs.
    """
    if op.nets or not is_pure(op):
        return None
    if any(isinstance(value, Partial) for value in values):
        return None
    if all(isinstance(value, Given) for value in values):
        known = results_of(op, [value.fact for value in values])
        return [Given(possible(one)) for one in known]
    rule = RULES.get(op.type)
    if rule is None:
        return None
    try:
        found = rule(op, values)
    except MALFORMED:
        return None
    if found is None or not all(map(_is_understood, found)):
        return None
    return [_settled(one) for one in found]


def _is_understood(value: Value) -> bool:
    if isinstance(value, Partial):
        return None not in value.shape
    return not isinstance(value, Rows) or _has_rows(value.shape)


def apply_outside(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    """What an op of the whole program, which is given all rows, has of so many rows.

    More is known there than of a part: a number made of sizes is what it is, and what is shaped
    after the rows has them, whatever it was before.

    Args:
      op: the op.
      values: of its inputs; Rows stand for all rows.
    """
    found = apply(op, values)
    if found is not None:
        return found
    try:
        return _of_all_rows(op, values)
    except MALFORMED:
        return None


def _of_all_rows(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    if op.type == "Cast" and isinstance(values[0], Sizes):
        return _as_float(values[0])
    if op.type == "Reshape" and isinstance(values[0], Given) and isinstance(values[1], Sizes):
        shape = values[1].value
        if isinstance(shape, tuple) and Dim(-1) not in shape and _has_rows(shape):
            return [Rows(shape)]
    if op.type == "Reshape" and isinstance(values[0], Rows) and isinstance(values[1], Given):
        wanted = whole_numbers(values[1])
        if isinstance(wanted, tuple) and wanted and None not in wanted[1:]:
            rest = (Dim(-1), *wanted[1:])
            shape = resolved(product(values[0].shape), rest) if Dim(-1) not in wanted[1:] else None
            if shape is not None and _has_rows(shape):
                return [Rows(shape)]
    return None


def _as_float(sizes: Sizes) -> Sequence[Value]:
    return [Given(Fact(() if isinstance(sizes.value, Dim) else (len(sizes.value),)))]


def product(dims: Sequence[Dim]) -> Dim:
    """The product of sizes."""
    return functools.reduce(Dim.__mul__, dims, ONE)


def rows_of(name: str, shape: tuple[int | None, ...], first: Dim) -> Rows:
    """A blob of that shape whose first size is ``first``, as rows."""
    return Rows((first, *_dims(name, shape)[1:]))


def _dims(name: str, shape: tuple[int | None, ...]) -> tuple[Dim, ...]:
    return tuple(
        Dim(1, (f"{name}#{axis}",)) if size is None else Dim(size)
        for axis, size in enumerate(shape)
    )


def _has_rows(shape: tuple[Dim, ...]) -> bool:
    if not shape or None in shape or any(dim.factor < 0 for dim in shape):
        return False
    return shape[0].rows == 1 and not any(dim.rows for dim in shape[1:])


def _settled(value: Value) -> Value:
    """Sizes that are plain numbers are the same in the whole program."""
    if not isinstance(value, Sizes):
        return value
    if isinstance(value.value, Dim):
        number = value.value.number
        return value if number is None else Given(Fact((), number))
    numbers = tuple(dim.number for dim in value.value)
    return value if None in numbers else Given(Fact((len(numbers),), numbers))


def whole_numbers(value: Value) -> Dim | tuple[Dim | None, ...] | None:
    """The number or numbers that a blob holds; None where they are not known."""
    if isinstance(value, Sizes):
        return value.value
    if not isinstance(value, Given):
        return None
    held = value.fact.value
    if isinstance(held, bool):
        return None
    if isinstance(held, int):
        return Dim(held)
    if isinstance(held, tuple):
        return tuple(None if one is None else Dim(one) for one in held)
    return None


def _numbers(value: Value) -> tuple[int, ...] | None:
    """Plain numbers, e.g. axes."""
    held = whole_numbers(value)
    held = (held,) if isinstance(held, Dim) else held
    if held is None or any(one is None or one.number is None for one in held):
        return None
    return tuple(one.factor for one in held)


# --- pointwise


def _pointwise(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    if op.type == "Cast" and isinstance(values[0], Sizes):
        kind = op.attributes.get("DstT")
        if isinstance(kind, DType) and kind.name in ("int32", "int64"):
            return [values[0]]
        held = values[0].value
        held = (held,) if isinstance(held, Dim) else held
        return None if any(dim.rows for dim in held) else _as_float(values[0])
    if any(isinstance(value, Sizes) for value in values):
        return _arithmetic(op, values)
    rows = [value for value in values if isinstance(value, Rows)]
    ramps = [value for value in rows if value.ramp is not None]
    shape: tuple[Dim, ...] = rows[0].shape
    for value in values:
        joined = _broadcast(shape, value)
        if joined is None:
            return None
        shape = joined
    if ramps:
        return _ramped(op, values, ramps, shape)
    return [Rows(shape)]


def _ramped(op, values, ramps, shape) -> Sequence[Value] | None:
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


def _broadcast(shape: tuple[Dim, ...], value: Value) -> tuple[Dim, ...] | None:
    """The shape of both together, if the first axis is that of the rows in both."""
    if isinstance(value, Rows):
        if len(value.shape) != len(shape) or value.shape[0] != shape[0]:
            return None
        other = value.shape
    else:
        dims = value.fact.shape if isinstance(value, Given) else None
        if dims is None or len(dims) > len(shape) or (len(dims) == len(shape) and dims[0] != 1):
            return None
        # An unknown size is 1 or the other's.
        padded = (*[1] * (len(shape) - len(dims)), *dims)
        other = tuple(
            mine if size is None else Dim(size) for mine, size in zip(shape, padded, strict=True)
        )
    joined = [shape[0]]
    for one, two in zip(shape[1:], other[1:], strict=True):
        if one != two and ONE not in (one, two):
            return None
        joined.append(two if one == ONE else one)
    return tuple(joined)


def _arithmetic(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    """Sizes from sizes."""
    if isinstance(values[0], Rows) or isinstance(values[-1], Rows):
        ramps = [one for one in values if isinstance(one, Rows) and one.ramp is not None]
        return _ramped(op, values, ramps, ramps[0].shape) if ramps else None
    if len(values) != 2:
        return None
    held = [whole_numbers(value) for value in values]
    if None in held:
        return None
    length = max((len(one) for one in held if isinstance(one, tuple)), default=None)
    if length is None:
        found = _number(op.type, *held)
        return None if found is None else [Sizes(found)]
    pairs = zip(*(one if isinstance(one, tuple) else (one,) * length for one in held), strict=False)
    found = tuple(None if None in pair else _number(op.type, *pair) for pair in pairs)
    return None if None in found else [Sizes(found)]


_DIVIDES = types("divides")


def _number(type: str, one: Dim, two: Dim) -> Dim | None:
    if type == "Mul":
        return one * two
    if type in _DIVIDES:
        return one.over(two)
    if type == "Maximum":  # a size of 0 is that of a part without rows, which is the whole
        if two == ONE and one.factor > 0:
            return one
        if one == ONE and two.factor > 0:
            return two
    if one.number is not None and two.number is not None:
        known = shape_rules.ARITHMETIC.get(type)
        return None if known is None else Dim(known(one.factor, two.factor))
    if type in ADDS and one.symbols == two.symbols:
        return Dim(one.factor + two.factor, one.symbols)
    return None


# --- products


@RULES.of(*MATRIX_PRODUCTS)
def _matmul(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    left, right = values[:2]
    flips = tuple(
        bool(op.attributes.get(names[0]) or op.attributes.get(names[1]))
        for names in (("transpose_a", "adj_x"), ("transpose_b", "adj_y"))
    )
    if isinstance(left, Rows) and len(left.shape) == 2:
        return _product_of_two(left, right, *flips)
    ranks = [_rank(value) for value in (left, right)]
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
    shapes = [_shape_of(name, value) for name, value in zip(op.inputs, (left, right), strict=False)]
    middle = max((shape[:-2] for shape in shapes), key=len)[1:]
    for shape in shapes:
        if len(shape) == rank and shape[1:-2] != middle:
            return None
    across = shapes[0][-1 if flips[0] else -2], shapes[1][-2 if flips[1] else -1]
    return [Rows((batch, *middle, *across))]


def _product_of_two(left: Rows, right: Value, flip_left: bool, flip_right: bool):
    if left.ramp is not None:
        return None
    if isinstance(right, Given) and not flip_left:
        shape = right.fact.shape
        if shape is None or len(shape) != 2:
            return None
        return [Rows((left.shape[0], _dims("columns", shape)[0 if flip_right else 1]))]
    if isinstance(right, Rows) and flip_left and not flip_right and right.ramp is None:
        if len(right.shape) == 2 and right.shape[0] == left.shape[0]:
            return [Partial((left.shape[1], right.shape[1]))]
    return None


def _rank(value: Value) -> int | None:
    if isinstance(value, Rows):
        return len(value.shape)
    shape = value.fact.shape if isinstance(value, Given) else None
    return None if shape is None else len(shape)


def _shape_of(name: str, value: Value) -> tuple[Dim, ...]:
    return value.shape if isinstance(value, Rows) else _dims(name, value.fact.shape)


# --- along the columns


@RULES.of("LogSoftmax", "Softmax")
def _last_axis(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    (rows,) = values
    return [rows] if len(rows.shape) > 1 and rows.ramp is None else None


@RULES.of("BiasAdd")
def _bias(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    rows, bias = values
    plain = op.attributes.get("data_format", b"NHWC") == b"NHWC"
    right = isinstance(rows, Rows) and isinstance(bias, Given) and len(rows.shape) > 1
    return [rows] if plain and right and rows.ramp is None else None


@RULES.of("BiasAddGrad")
def _bias_gradient(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    (rows,) = values
    plain = op.attributes.get("data_format", b"NHWC") == b"NHWC"
    return [Partial(rows.shape[-1:])] if plain and len(rows.shape) > 1 else None


@RULES.of("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_loss(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    logits, labels = values
    if not isinstance(logits, Rows) or not isinstance(labels, Rows) or _ramps(values):
        return None
    if len(logits.shape) != 2 or labels.shape != logits.shape[:1]:
        return None
    return [labels, logits]


@RULES.of("SoftmaxCrossEntropyWithLogits")
def _dense_loss(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    rows = [value for value in values if isinstance(value, Rows)]
    if _ramps(values) or any(len(one.shape) != 2 for one in rows):
        return None
    shape = rows[0].shape
    for value in values:
        shape = _broadcast(shape, value) if shape is not None else None
    return None if shape is None else [Rows(shape[:1]), Rows(shape)]


def _ramps(values: Sequence[Value]) -> bool:
    return any(isinstance(value, Rows) and value.ramp is not None for value in values)


@RULES.of(*REDUCES)
def _reduce(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    held, axes = values[0], _numbers(values[1])
    if axes is None:
        return None
    if isinstance(held, Sizes):
        return _reduced_sizes(op, held)
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


def _reduced_sizes(op: Op, held: Sizes) -> Sequence[Value] | None:
    if op.type != "Prod" or not isinstance(held.value, tuple):
        return None
    total = product(held.value)
    return [Sizes((total,) if op.attributes.get("keep_dims") else total)]


@RULES.of("ArgMax", "ArgMin")
def _argument(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    rows, axis = values[0], _numbers(values[1])
    if not isinstance(rows, Rows) or axis is None or rows.ramp is not None:
        return None
    at = axis[0] % len(rows.shape)
    return [Rows((*rows.shape[:at], *rows.shape[at + 1 :]))] if at else None


@RULES.of("InTopKV2")
def _in_top(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    predictions, targets = values[:2]
    if not all(isinstance(one, Rows) for one in (predictions, targets)) or _ramps(values):
        return None
    right = len(predictions.shape) == 2 and targets.shape == predictions.shape[:1]
    return [targets] if right and isinstance(values[2], Given) else None


@RULES.of("GatherV2")
def _gather(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    held, indices, axis = values[0], values[1], _numbers(values[2])
    if axis is None:
        return None
    if isinstance(held, Sizes):
        return _gathered_sizes(held, indices, axis[0])
    shared = op.attributes.get("batch_dims") or 0
    if not isinstance(held, Rows) or not isinstance(indices, Rows) or _ramps(values):
        return None
    at = axis[0] % len(held.shape)
    if not 1 <= shared <= at or held.shape[:shared] != indices.shape[:shared]:
        return None
    return [Rows((*held.shape[:at], *indices.shape[shared:], *held.shape[at + 1 :]))]


def _gathered_sizes(held: Sizes, indices: Value, axis: int) -> Sequence[Value] | None:
    picked = _numbers(indices)
    if axis != 0 or picked is None or not isinstance(held.value, tuple):
        return None
    if any(not 0 <= one < len(held.value) for one in picked):
        return None
    found = tuple(held.value[one] for one in picked)
    is_vector = isinstance(indices, Given) and isinstance(indices.fact.value, tuple)
    return [Sizes(found if is_vector else found[0])]


@RULES.of("OneHot")
def _one_hot(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    indices, depth = values[0], whole_numbers(values[1])
    if not isinstance(indices, Rows) or indices.ramp is not None or not isinstance(depth, Dim):
        return None
    axis = op.attributes.get("axis", -1)
    at = len(indices.shape) if axis == -1 else axis
    if at < 1 or depth.rows or not all(isinstance(one, Given) for one in values[2:]):
        return None
    return [Rows((*indices.shape[:at], depth, *indices.shape[at:]))]


@RULES.of("UnsortedSegmentSum")
def _segment_sum(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
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


# --- shapes


@RULES.of("Reshape")
def _reshape(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    held, wanted = values[0], whole_numbers(values[1])
    if isinstance(held, Sizes):
        return _reshaped_sizes(held, wanted)
    if not isinstance(held, Rows) or not isinstance(wanted, tuple) or None in wanted:
        return None
    shape = resolved(product(held.shape), wanted)
    if shape is None or not _has_rows(shape) or shape[0].over(ROW) is None:
        return None
    if held.ramp is None:
        return [Rows(shape)]
    # Rows that are counted must stay the same rows.
    same = shape[0] == held.shape[0] and product(shape[1:]) == product(held.shape[1:])
    return [dataclasses.replace(held, shape=shape)] if same else None


def resolved(total: Dim, wanted: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """The sizes that a Reshape of so many elements makes; None where that is not known."""
    shape = list(wanted)
    unknown = [axis for axis, dim in enumerate(shape) if dim == Dim(-1)]
    if len(unknown) > 1:
        return None
    if unknown:
        rest = product([dim for axis, dim in enumerate(shape) if axis not in unknown])
        found = total.over(rest)
        if found is None:
            return None
        shape[unknown[0]] = found
    return tuple(shape) if product(shape) == total else None


def _reshaped_sizes(held: Sizes, wanted) -> Sequence[Value] | None:
    numbers = held.value if isinstance(held.value, tuple) else (held.value,)
    if not isinstance(wanted, tuple) or len(wanted) > 1:
        return None
    if not wanted:
        return [Sizes(numbers[0])] if len(numbers) == 1 else None
    return [Sizes(numbers)]


@RULES.of("ExpandDims")
def _expand(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    held, axis = values[0], _numbers(values[1])
    if axis is None:
        return None
    if isinstance(held, Sizes):
        return [Sizes((held.value,))] if isinstance(held.value, Dim) else None
    if not isinstance(held, Rows):
        return None
    at = axis[0] % (len(held.shape) + 1)
    shape = (*held.shape[:at], ONE, *held.shape[at:])
    return [dataclasses.replace(held, shape=shape)] if at else None


@RULES.of("Squeeze")
def _squeeze(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    (held,) = values
    axes = op.attributes.get("squeeze_dims") or ()
    if isinstance(held, Sizes):
        alone = isinstance(held.value, tuple) and len(held.value) == 1
        return [Sizes(held.value[0])] if alone else None
    dropped = {axis % len(held.shape) for axis in axes}
    if not dropped or 0 in dropped:
        return None
    shape = tuple(dim for axis, dim in enumerate(held.shape) if axis not in dropped)
    return [dataclasses.replace(held, shape=shape)]


@RULES.of("Transpose")
def _transpose(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    held, order = values[0], _numbers(values[1])
    if not isinstance(held, Rows) or held.ramp is not None or order is None or not order:
        return None
    if order[0] != 0 or sorted(order) != list(range(len(held.shape))):
        return None
    return [Rows(tuple(held.shape[axis] for axis in order))]


@RULES.of("BroadcastTo")
def _broadcast_to(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    held, wanted = values[0], whole_numbers(values[1])
    if not isinstance(wanted, tuple) or None in wanted or not _has_rows(wanted):
        return None
    fits = _broadcast(wanted, held)
    if fits != wanted or (isinstance(held, Rows) and held.ramp is not None):
        return None
    return [Rows(wanted)]


@RULES.of("Fill")
def _fill(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    wanted = whole_numbers(values[0])
    if not isinstance(wanted, tuple) or None in wanted or not isinstance(values[1], Given):
        return None
    return [Rows(wanted)] if _has_rows(wanted) else None


@RULES.of("Tile")
def _tile(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
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


@RULES.of("Shape", "ShapeN")
def _shape(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    if len(values) == 1 and isinstance(values[0], Sizes):
        held = values[0].value
        return [Given(Fact((1,), (len(held),)) if isinstance(held, tuple) else Fact((0,), ()))]
    found = []
    for name, value in zip(op.inputs, values, strict=True):
        if isinstance(value, Given) and value.fact.shape is None:
            return None
        if not isinstance(value, (Rows, Given)):
            return None
        found.append(Sizes(_shape_of(name, value)))
    return found


@RULES.of("Size")
def _size(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    (held,) = values
    if isinstance(held, Sizes):
        count = len(held.value) if isinstance(held.value, tuple) else 1
        return [Given(Fact((), count))]
    return [Sizes(product(held.shape))]


@RULES.of("Range")
def _range(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    start, limit, step = (whole_numbers(value) for value in values)
    if start != Dim(0) or step != ONE or not isinstance(limit, Dim) or limit.rows != 1:
        return None
    return [Rows((limit,), ONE)]


@RULES.of("Slice")
def _slice(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    held, begin, size = values[0], _numbers(values[1]), _numbers(values[2])
    if begin is None or size is None:
        return None
    if isinstance(held, Sizes) and isinstance(held.value, tuple):
        stop = len(held.value) if size[0] == -1 else begin[0] + size[0]
        return [Sizes(held.value[begin[0] : stop])]
    if not isinstance(held, Rows) or held.ramp is not None or begin[0] or size[0] != -1:
        return None
    shape = [held.shape[0]]
    for dim, first, count in zip(held.shape[1:], begin[1:], size[1:], strict=True):
        if count == -1 and dim.number is None:
            return None
        shape.append(Dim(dim.factor - first if count == -1 else count))
    return [Rows(tuple(shape))]


@RULES.of("StridedSlice")
def _strided_slice(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    held = values[0]
    begin, end, step = (_numbers(value) for value in values[1:4])
    masks = {
        name: int(op.attributes.get(f"{name}_mask") or 0)
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    if not isinstance(held, Sizes) or not isinstance(held.value, tuple) or begin is None:
        return None
    if len(begin) != 1 or masks["ellipsis"] or masks["new_axis"]:
        return None
    if masks["shrink_axis"]:
        inside = -len(held.value) <= begin[0] < len(held.value)
        return [Sizes(held.value[begin[0]])] if inside else None
    if step is None or (end is None and not masks["end"]):
        return None
    first = None if masks["begin"] else begin[0]
    last = None if masks["end"] else end[0]
    return [Sizes(held.value[slice(first, last, step[0])])]


@RULES.of("ConcatV2")
def _concat(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    *parts, axis = values
    if _numbers(axis) != (0,):
        return None
    held = [whole_numbers(part) for part in parts]
    for place, (part, found) in enumerate(zip(parts, held, strict=True)):
        if isinstance(part, Given) and part.fact.shape == (0,):
            held[place] = ()
        elif not isinstance(found, tuple):
            return None
    joined = sum(held, ())
    return None if None in joined else [Sizes(joined)]


@RULES.of("Pack")
def _pack(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    held = [whole_numbers(value) for value in values]
    if op.attributes.get("axis", 0) or not all(isinstance(one, Dim) for one in held):
        return None
    return [Sizes(tuple(held))]


@RULES.of("Unpack")
def _unpack(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    (held,) = values
    if not isinstance(held, Sizes) or not isinstance(held.value, tuple):
        return None
    return [Sizes(dim) for dim in held.value]


@RULES.of("DynamicStitch")
def _stitch(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    half, placed = len(values) // 2, {}
    for where, what in zip(values[:half], values[half:], strict=True):
        indices, held = _numbers(where), whole_numbers(what)
        held = (held,) if isinstance(held, Dim) else held
        if indices is None or held is None or None in held:
            return None
        placed.update(zip(indices, held, strict=False))
    if sorted(placed) != list(range(len(placed))):
        return None
    return [Sizes(tuple(placed[place] for place in range(len(placed))))]


@RULES.of("BroadcastGradientArgs")
def _broadcast_gradient(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    """Which axes either side of a broadcast is summed over, or 1 wide on, which sums nothing.

    Where the number of rows is 1, TensorFlow names the axis of the rows too. A sum over one row is
    that row, and its readers bring it into shape again.
    """
    sides = [whole_numbers(value) for value in values]
    if not all(isinstance(side, tuple) and None not in side for side in sides):
        return None
    rank = max(map(len, sides))
    padded = [(ONE,) * (rank - len(side)) + side for side in sides]
    found = []
    for one, other in (padded, padded[::-1]):
        if any(a != b and ONE not in (a, b) for a, b in zip(one, other, strict=True)):
            return None
        axes = tuple(axis for axis in range(rank) if one[axis] == ONE and sides[0] != sides[1])
        found.append(Given(Fact((len(axes),), axes)))
    return found


@RULES.of("Identity", "PreventGradient", "StopGradient")
def _hands_on(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    return [values[0]]


@RULES.of("Bitcast")
def _bitcast(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    (held,) = values
    kinds = [getattr(op.attributes.get(name), "name", name) for name in ("T", "type")]
    sizes = [BYTES_PER_ELEMENT.get(kind) for kind in kinds]
    if not isinstance(held, Rows) or held.ramp is not None or None in sizes:
        return None
    return [held] if sizes[0] == sizes[1] else None


@RULES.of("AddN")
def _add_all(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    if _ramps(values) or not all(isinstance(value, Rows) for value in values):
        return None
    return [values[0]] if all(value.shape == values[0].shape for value in values) else None


for _type in (types("pointwise") - types("softmax")) | types("fills"):
    if "Random" not in _type:
        RULES.setdefault(_type, _pointwise)


def segments_stay_in_rows(ops: Sequence[Op], values: Mapping[str, Value]) -> bool:
    """Whether each sum into places of rows has labels that picked a column of each row before.

    A label out of range is refused by that gather (on a GPU it gives zeros there), so no sum
    reaches into another row.

    Args:
      ops: of the program.
      values: of its blobs.
    """
    picked = set()
    for op in ops:
        if op.type == "GatherV2" and isinstance(held := values.get(op.inputs[0]), Rows):
            axis = _numbers(values[op.inputs[2]])
            if axis is not None and len(held.shape) == 2 and op.attributes.get("batch_dims") == 1:
                picked.add((op.inputs[1], held.shape[1]))
    for op in ops:
        if op.type == "UnsortedSegmentSum":
            ids = values[op.inputs[1]]
            if isinstance(ids, Rows) and (ids.base, ids.ramp) not in picked:
                return False
    return True
