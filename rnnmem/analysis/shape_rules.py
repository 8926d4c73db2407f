"""How the shape of what an op writes follows from what it reads, a rule per op type.

A rule returns what it can tell, and nothing that a run could prove wrong: rewrites hang on it. A
type without a rule keeps the shape that was traced. Small integers are followed as values, for they
are the shapes of others.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from rnnmem.analysis.trip_count import ARITHMETIC, LARGEST, REDUCTIONS, stays_in_cast
from rnnmem.ir.graph import Blob, Constant, Op, Shape, ShapeValue
from rnnmem.ir.marks import PART
from rnnmem.ir.op_table import MATRIX_PRODUCTS, REDUCES, Rules, slots, types

Value = int | tuple[int | None, ...] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Fact:
    """What is known of a blob.

    Attributes:
      shape: as in Blob.
      value: of a small integer, or of a vector of them (None where one is unknown).
      element: of a list or an optional, what is known of all that it may hold; of a list's element
        shape, an element of that shape.
      length: of a list, how many elements it has.
      unset: of an element, whether there is none yet: all that is known is what one may be.
      pushed: of a list that one element was pushed to just now, the list before and that element.
      asked: of a list, the shape of what it was told its elements' shape by: a vector, or -1 alone.
    """

    shape: Shape = None
    value: Value = None
    element: Fact | None = None
    length: int | None = None
    unset: bool = False
    pushed: tuple[Fact, Fact] | None = None
    asked: Shape = None


Rule = Callable[[Op, list[Fact]], list[Fact]]
RULES = Rules[Rule]()


UNKNOWN = Fact()
"""What is known of a blob of which nothing is."""


MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a rule raises where inputs or attributes fit neither the op nor each other."""


def results_of(op: Op, ins: Sequence[Fact]) -> list[Fact]:
    """What is known of each result of an op; of what no rule understands, nothing.

    Args:
      op: the op.
      ins: what is known of its inputs, which a mistaken trace or caller may have got wrong.
    """
    rule, count = RULES.get(op.type), len(op.outputs)
    try:
        found = list(rule(op, list(ins))) if rule else []
    except MALFORMED:
        found = []
    found = [UNKNOWN if _is_negative(one.shape) else one for one in found[:count]]
    return [*found, *[UNKNOWN] * (count - len(found))]


def _is_negative(shape: Shape) -> bool:
    return bool(shape) and any(size is not None and size < 0 for size in shape)


def possible(fact: Fact) -> Fact:
    """The fact, without its value where that has another shape."""
    shape, value = fact.shape, fact.value
    if value is None:
        return fact
    if isinstance(value, tuple):
        fits = shape is not None and len(shape) == 1 and shape[0] in (None, len(value))
    else:
        fits = shape == ()
    return fact if fits else dataclasses.replace(fact, value=None)


def common(facts: Sequence[Fact]) -> Fact:
    """What holds whichever of the facts does."""
    first = facts[0]
    for other in facts[1:]:
        if first != other:
            first = _common(first, other)
    return first


def _common(first: Fact, second: Fact) -> Fact:
    if first.unset or second.unset:
        if not (first.unset and second.unset):
            return second if first.unset else first
    element = None
    if first.element is not None and second.element is not None:
        element = common((first.element, second.element))
    return Fact(
        _common_shape(first.shape, second.shape),
        first.value if first.value == second.value else None,
        element,
        first.length if first.length == second.length else None,
        first.unset and second.unset,
        asked=first.asked if first.asked == second.asked else None,
    )


def _common_shape(first: Shape, second: Shape) -> Shape:
    if first is None or second is None or len(first) != len(second):
        return None
    return tuple(a if a == b else None for a, b in zip(first, second, strict=True))


def merged(declared: Blob | Fact, found: Fact) -> Fact:
    """What the trace says and what was found; where they disagree the declared size stands."""
    shape = declared.shape
    if shape is None:
        shape = found.shape
    elif None in shape and found.shape is not None and len(found.shape) == len(shape):
        shape = tuple(b if a is None else a for a, b in zip(shape, found.shape, strict=True))
    if shape == found.shape:
        return found
    return dataclasses.replace(found, shape=shape)


def _vector(fact: Fact) -> tuple[int | None, ...] | None:
    """The value as a vector, where it is one."""
    if isinstance(fact.value, tuple):
        return fact.value
    return (fact.value,) if isinstance(fact.value, int) else None


def _of_value(value: Value) -> Fact:
    return Fact((len(value),) if isinstance(value, tuple) else (), value)


def _to_shape(value: Value) -> Shape:
    """A shape from a vector that may hold -1 for what is unknown."""
    if not isinstance(value, tuple):
        return None
    return tuple(None if size is None or size < 0 else size for size in value)


def broadcast(shapes: list[Shape]) -> Shape:
    """The shape of a pointwise result."""
    if len(set(shapes)) == 1:
        return shapes[0]
    if None in shapes or not shapes:
        return None
    rank = max(len(shape) for shape in shapes)
    result = []
    for axis in range(1, rank + 1):
        sizes = {shape[-axis] for shape in shapes if axis <= len(shape)} - {1}
        known = sizes - {None}
        if len(known) > 1:
            return None  # they fit in no run
        # An unknown size beside a known one above 1 must be that one, or 1.
        result.append(known.pop() if known else (None if sizes else 1))
    return tuple(reversed(result))


@RULES.of("Identity", "PlaceholderWithDefault", "PreventGradient", "StopGradient")
def _first(op: Op, ins: list[Fact]) -> list[Fact]:
    return [ins[0]]


@RULES.of("BiasAdd", "Cumsum", "LogSoftmax", "OnesLike", "ReverseV2", "Softmax")
def _like_first(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact(ins[0].shape)] * len(op.outputs)


def _pointwise(op: Op, ins: list[Fact]) -> list[Fact]:
    number = ARITHMETIC.get(op.type)
    value = _combined(number, ins[0].value, ins[1].value) if number and len(ins) == 2 else None
    return [Fact(broadcast([one.shape for one in ins]), value)]


def _combined(number, first: Value, second: Value) -> Value:
    if first is None or second is None:
        return None
    if isinstance(first, int) and isinstance(second, int):
        return _small(number(first, second))
    vectors = [one if isinstance(one, tuple) else (one,) for one in (first, second)]
    lengths = {len(one) for one in vectors} - {1}
    if len(lengths) > 1:
        return None
    length = lengths.pop() if lengths else 1
    pairs = zip(*(one * length if len(one) == 1 else one for one in vectors), strict=True)
    return tuple(None if None in pair else _small(number(*pair)) for pair in pairs)


def _small(value: int | None) -> int | None:
    return value if value is not None and abs(value) < LARGEST else None


@RULES.of("Cast")
def _cast(op: Op, ins: list[Fact]) -> list[Fact]:
    return [ins[0] if stays_in_cast(op, ins[0].value) else Fact(ins[0].shape)]


@RULES.of("Const")
def _const(op: Op, ins: list[Fact]) -> list[Fact]:
    held = op.attributes.get("value")
    if not isinstance(held, Constant):
        return []
    value = held.value if isinstance(held.value, int | tuple) else None
    return [Fact(held.shape, None if isinstance(value, bool) else value)]


@RULES.of("Shape", "ShapeN")
def _shape(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact() if one.shape is None else _of_value(tuple(one.shape)) for one in ins]


@RULES.of("Size")
def _size(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = ins[0].shape
    return [Fact((), None if shape is None or None in shape else math.prod(shape))]


@RULES.of("Rank")
def _rank(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact((), None if ins[0].shape is None else len(ins[0].shape))]


@RULES.of("Reshape")
def _reshape(op: Op, ins: list[Fact]) -> list[Fact]:
    wanted, shape = ins[1].value, ins[0].shape
    if not isinstance(wanted, tuple):
        return [Fact(value=ins[0].value)]
    found = list(_to_shape(wanted))
    open_axes = [axis for axis, size in enumerate(found) if size is None]
    if len(open_axes) == 1 and shape is not None and None not in shape:
        rest = math.prod(size for size in found if size is not None)
        if rest and not math.prod(shape) % rest:
            found[open_axes[0]] = math.prod(shape) // rest
    return [Fact(tuple(found), _reshaped(ins[0].value, len(found)))]


def _reshaped(value: Value, rank: int) -> Value:
    if rank == 0 and isinstance(value, tuple) and len(value) == 1:
        return value[0]
    return (value,) if rank == 1 and isinstance(value, int) else value


@RULES.of("ExpandDims")
def _expand_dims(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, axis = ins[0].shape, _vector(ins[1])
    if shape is None or axis is None or axis[0] is None:
        return []
    at = axis[0] if axis[0] >= 0 else axis[0] + len(shape) + 1
    grown = (*shape[:at], 1, *shape[at:])
    return [Fact(grown, _reshaped(ins[0].value, len(grown)))]


@RULES.of("Squeeze")
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


@RULES.of("Transpose")
def _transpose(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, order = ins[0].shape, ins[1].value
    if shape is None or not isinstance(order, tuple) or None in order:
        return []
    return [Fact(tuple(shape[axis] for axis in order))] if len(order) == len(shape) else []


@RULES.of("InvertPermutation")
def _invert_permutation(op: Op, ins: list[Fact]) -> list[Fact]:
    order = ins[0].value
    if not isinstance(order, tuple) or None in order or sorted(order) != list(range(len(order))):
        return []
    return [_of_value(tuple(order.index(axis) for axis in range(len(order))))]


@RULES.of(*MATRIX_PRODUCTS)
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


@RULES.of("Concat", "ConcatV2")
def _concat(op: Op, ins: list[Fact]) -> list[Fact]:
    *parts, axis = ins if op.type == "ConcatV2" else [*ins[1:], ins[0]]
    shapes = [part.shape for part in parts]
    if not isinstance(axis.value, int) or any(shape is None for shape in shapes):
        return []
    if axis.value == 0 and any(isinstance(part.value, tuple) for part in parts):
        if all(len(shape) == 1 and shape[0] is not None for shape in shapes):
            values = (_vector(part) or (None,) * part.shape[0] for part in parts)
            return [_of_value(sum(values, ()))]
    if len({len(shape) for shape in shapes}) > 1:
        return []
    at = axis.value % len(shapes[0])
    sizes = [shape[at] for shape in shapes]
    total = None if None in sizes else sum(sizes)
    rest = [
        next((shape[i] for shape in shapes if shape[i] is not None), None)
        for i in range(len(shapes[0]))
    ]
    return [Fact((*rest[:at], total, *rest[at + 1 :]))]


@RULES.of("Pack")
def _pack(op: Op, ins: list[Fact]) -> list[Fact]:
    axis = op.attributes.get("axis", 0)
    if ins[0].shape is None:
        return []
    if ins[0].shape == ():
        return [Fact((len(ins),), tuple(one.value for one in ins))]
    at = axis % (len(ins[0].shape) + 1)
    return [Fact((*ins[0].shape[:at], len(ins), *ins[0].shape[at:]))]


@RULES.of("Unpack")
def _unpack(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = ins[0].shape
    if shape is None:
        return []
    at = op.attributes.get("axis", 0) % len(shape)
    value = ins[0].value
    if isinstance(value, tuple):
        return [_of_value(one) if one is not None else Fact(()) for one in value]
    return [Fact((*shape[:at], *shape[at + 1 :]))] * len(op.outputs)


@RULES.of("Split", "SplitV")
def _split(op: Op, ins: list[Fact]) -> list[Fact]:
    axis, held = (ins[0], ins[1]) if op.type == "Split" else (ins[2], ins[0])
    if held.shape is None or not isinstance(axis.value, int):
        return []
    at = axis.value % len(held.shape)
    sizes = [None] * len(op.outputs)
    if op.type == "SplitV":
        sizes = _to_shape(ins[1].value) or sizes
    elif held.shape[at] is not None:
        sizes = [held.shape[at] // len(op.outputs)] * len(op.outputs)
    return [Fact((*held.shape[:at], size, *held.shape[at + 1 :])) for size in sizes]


@RULES.of("Slice")
def _slice(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, begin, size = ins[0].shape, ins[1].value, ins[2].value
    if shape is None or not isinstance(size, tuple):
        return []
    if (most := op.attributes.get(PART)) is not None:
        return [Fact((most if shape[0] is None else min(most, shape[0]), *shape[1:]))]
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


@RULES.of("StridedSlice")
def _strided_slice(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = ins[0].shape
    begin, end, stride = (one.value for one in ins[1:4])
    if shape is None or not all(isinstance(one, tuple) for one in (begin, end, stride)):
        return []
    if not len(begin) == len(end) == len(stride):
        return []
    masks = {name: int(op.attributes.get(f"{name}_mask") or 0) for name in _MASKS}
    found: list[int | None] = []
    at = 0
    for index in range(len(begin)):
        bit = 1 << index
        if masks["ellipsis"] & bit:
            named = sum(1 for i in range(index + 1, len(begin)) if not masks["new_axis"] >> i & 1)
            until = len(shape) - named
            found += shape[at:until]
            at = until
        elif masks["new_axis"] & bit:
            found.append(1)
        else:
            if at >= len(shape):
                return []
            if not masks["shrink_axis"] & bit:
                start = None if masks["begin"] & bit else begin[index]
                stop = None if masks["end"] & bit else end[index]
                start_known = masks["begin"] & bit or start is not None
                stop_known = masks["end"] & bit or stop is not None
                size = shape[at]
                if size is None or not (start_known and stop_known) or not stride[index]:
                    found.append(None)
                else:
                    found.append(len(range(size)[slice(start, stop, stride[index])]))
            at += 1
    found += shape[at:]
    return [Fact(tuple(found), _sliced_value(ins[0].value, begin, end, stride, masks))]


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


@RULES.of("GatherV2")
def _gather(op: Op, ins: list[Fact]) -> list[Fact]:
    held, indices = ins[0], ins[1]
    axis = ins[2].value if len(ins) > 2 else 0
    if isinstance(held.value, tuple) and indices.value is not None and axis == 0:
        picked = _vector(indices)
        if None not in picked and all(-len(held.value) <= i < len(held.value) for i in picked):
            found = tuple(held.value[i] for i in picked)
            return [_of_value(found if isinstance(indices.value, tuple) else found[0])]
    if held.shape is None or indices.shape is None or not isinstance(axis, int):
        return []
    at = axis % len(held.shape)
    shared = op.attributes.get("batch_dims") or 0
    shared += len(indices.shape) if shared < 0 else 0
    return [Fact((*held.shape[:at], *indices.shape[shared:], *held.shape[at + 1 :]))]


@RULES.of("Tile")
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


@RULES.of("Fill")
def _fill(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = _to_shape(ins[0].value)
    value = ins[1].value
    if shape == ():
        return [Fact((), value)]
    if shape is not None and len(shape) == 1 and isinstance(value, int) and shape[0] is not None:
        return [Fact(shape, (value,) * shape[0] if shape[0] <= 32 else None)]
    return [Fact(shape)]


def _shape_from(position: int) -> Rule:
    return lambda op, ins: [Fact(_to_shape(ins[position].value))]


@RULES.of("Range")
def _range(op: Op, ins: list[Fact]) -> list[Fact]:
    if not all(isinstance(one.value, int) for one in ins) or not ins[2].value:
        return []
    found = range(*(one.value for one in ins))
    return [Fact((len(found),), tuple(found) if len(found) <= _LONGEST else None)]


_LONGEST = 4096
"""Whole numbers of a range up to which they are followed one by one."""


@RULES.of(*REDUCES)
def _reduce(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, axes = ins[0].shape, _vector(ins[1])
    value = ins[0].value
    if isinstance(value, int):
        return [Fact((), value)]
    if shape is None or axes is None or None in axes:
        return []
    reduces = op.type in REDUCTIONS and axes and not op.attributes.get("keep_dims")
    if reduces and isinstance(value, tuple) and value and None not in value:
        return [Fact((), _small(REDUCTIONS[op.type](value)))]
    dropped = {axis % len(shape) for axis in axes} if shape else set()
    if op.attributes.get("keep_dims"):
        return [Fact(tuple(1 if i in dropped else size for i, size in enumerate(shape)))]
    return [Fact(tuple(size for i, size in enumerate(shape) if i not in dropped))]


@RULES.of("ArgMax", "ArgMin")
def _argument(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, axis = ins[0].shape, _vector(ins[1])
    if not shape or axis is None or axis[0] is None:
        return []
    at = axis[0] % len(shape)
    return [Fact((*shape[:at], *shape[at + 1 :]))]


@RULES.of("OneHot")
def _one_hot(op: Op, ins: list[Fact]) -> list[Fact]:
    shape, depth = ins[0].shape, ins[1].value
    if shape is None or not isinstance(depth, int):
        return []
    axis = op.attributes.get("axis", -1)
    at = len(shape) if axis == -1 else axis
    return [Fact((*shape[:at], depth, *shape[at:]))]


@RULES.of("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_cross_entropy(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact(ins[1].shape), Fact(ins[0].shape)]


@RULES.of("SoftmaxCrossEntropyWithLogits")
def _cross_entropy(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = broadcast([ins[0].shape, ins[1].shape])
    return [Fact(None if shape is None else shape[:1]), Fact(shape)]


@RULES.of("UnsortedSegmentSum")
def _segment_sum(op: Op, ins: list[Fact]) -> list[Fact]:
    data, ids, count = ins[0].shape, ins[1].shape, ins[2].value
    if data is None or ids is None:
        return []
    return [Fact((count if isinstance(count, int) else None, *data[len(ids) :]))]


@RULES.of("BroadcastGradientArgs")
def _broadcast_gradient(op: Op, ins: list[Fact]) -> list[Fact]:
    """The axes over which either side of a broadcast is summed."""
    left, right = (_vector(one) for one in ins)
    if left is None or right is None:
        return []
    rank = max(len(left), len(right))
    padded = [(1,) * (rank - len(one)) + one for one in (left, right)]
    if any(None in one for one in padded):
        return []
    if left == right:
        return [_of_value(())] * 2
    return [_of_value(tuple(i for i in range(rank) if one[i] == 1)) for one in padded]


@RULES.of("DynamicStitch")
def _stitch(op: Op, ins: list[Fact]) -> list[Fact]:
    half = len(ins) // 2
    placed: dict[int, int | None] = {}
    rows: list[Shape] = []
    for where, what in zip(ins[:half], ins[half:], strict=True):
        indices, values = _vector(where), _vector(what)
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
    return [_of_value(tuple(placed[i] for i in range(len(placed))))]


@RULES.of("EmptyTensorList")
def _empty_list(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact((), None, Fact(_asked(ins[0]), unset=True), 0, asked=ins[0].shape)]


@RULES.of("TensorListReserve")
def _reserve(op: Op, ins: list[Fact]) -> list[Fact]:
    length = ins[1].value if isinstance(ins[1].value, int) else None
    return [Fact((), None, Fact(_asked(ins[0]), unset=True), length, asked=ins[0].shape)]


def _asked(fact: Fact) -> Shape:
    """The shape of elements that an op is given as a vector, or as another list's."""
    return _to_shape(fact.value) if fact.element is None else fact.element.shape


@RULES.of("TensorListFromTensor")
def _from_tensor(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = ins[0].shape
    if not shape:
        return [Fact(())]
    return [Fact((), None, Fact(shape[1:]), shape[0], asked=ins[1].shape)]


def _with_item(held: Fact, item: Fact) -> Fact | None:
    """What is known of a list's elements, now that it has this one too."""
    known = held.element
    if known is None:
        return None
    return merged(Fact(known.shape), item) if known.unset else common((known, item))


def _item(held: Fact) -> Fact:
    """What is known of an element that is taken out."""
    return UNKNOWN if held.element is None else dataclasses.replace(held.element, unset=False)


@RULES.of("TensorListPushBack")
def _push(op: Op, ins: list[Fact]) -> list[Fact]:
    length = None if ins[0].length is None else ins[0].length + 1
    before = dataclasses.replace(ins[0], pushed=None)
    element = _with_item(ins[0], ins[1])
    return [dataclasses.replace(before, element=element, length=length, pushed=(before, ins[1]))]


@RULES.of("TensorListPopBack")
def _pop(op: Op, ins: list[Fact]) -> list[Fact]:
    if ins[0].pushed is not None:
        return list(ins[0].pushed)
    length = None if ins[0].length is None else ins[0].length - 1
    element = _item(ins[0])
    shape = merged(element, Fact(_asked(ins[1]))).shape
    return [_changed(ins[0], length=length), dataclasses.replace(element, shape=shape)]


def _changed(held: Fact, **fields) -> Fact:
    """A list in which something else is than was."""
    return dataclasses.replace(held, pushed=None, **fields)


RESIZES = "resize_if_index_out_of_bounds"
"""The attribute of a set that lengthens a list where it must: a TensorArray of dynamic size."""


@RULES.of("TensorListSetItem")
def _set_item(op: Op, ins: list[Fact]) -> list[Fact]:
    length = ins[0].length
    if op.attributes.get(RESIZES) and length is not None:
        index = ins[1].value
        length = max(length, index + 1) if isinstance(index, int) and index >= 0 else None
    return [_changed(ins[0], element=_with_item(ins[0], ins[2]), length=length)]


@RULES.of("TensorListGetItem")
def _get_item(op: Op, ins: list[Fact]) -> list[Fact]:
    return [_item(ins[0])]


@RULES.of("TensorListStack")
def _stack(op: Op, ins: list[Fact]) -> list[Fact]:
    element = _shape_of_items(ins[0], ins[1])
    return [] if element is None else [Fact((ins[0].length, *element))]


def _shape_of_items(held: Fact, asked: Fact) -> Shape:
    """The shape of a list's elements, or else the one that they are asked for in."""
    shape = held.element.shape if held.element else None
    return _asked(asked) if shape is None else shape


def scattered(op: Op) -> str:
    """The tensor whose rows a scatter makes elements of."""
    return op.inputs[0 if op.type == "TensorListScatterV2" else 1]


@RULES.of("TensorListScatterIntoExistingList")
def _scatter_into(op: Op, ins: list[Fact]) -> list[Fact]:
    places, length = _vector(ins[2]), ins[0].length
    if length is not None:  # a place behind its end lengthens a list
        known = places is not None and None not in places
        length = max((length, *(one + 1 for one in places))) if known else None
    return [_changed(ins[0], element=_with_item(ins[0], _row(ins[1])), length=length)]


@RULES.of("TensorListScatterV2")
def _scatter(op: Op, ins: list[Fact]) -> list[Fact]:
    length = ins[3].value if isinstance(ins[3].value, int) and ins[3].value >= 0 else None
    return [Fact((), None, _row(ins[0]), length, asked=ins[2].shape)]


def _row(tensor: Fact) -> Fact:
    return Fact(tensor.shape[1:] if tensor.shape else None)


@RULES.of("TensorListGather")
def _gather_items(op: Op, ins: list[Fact]) -> list[Fact]:
    element = _shape_of_items(ins[0], ins[2])
    return [] if element is None or not ins[1].shape else [Fact((ins[1].shape[0], *element))]


@RULES.of("TensorListLength")
def _list_length(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact((), ins[0].length)]


@RULES.of("TensorListElementShape")
def _element_shape(op: Op, ins: list[Fact]) -> list[Fact]:
    # A run has the shape that the list was made with here, which may say less of its elements.
    told = None if ins[0].element is None else Fact(ins[0].element.shape)
    return [Fact(ins[0].asked, None, told)]


@RULES.of("EnsureShape")
def _ensure(op: Op, ins: list[Fact]) -> list[Fact]:
    held = op.attributes.get("shape")
    known = Fact(held.dims) if isinstance(held, ShapeValue) else Fact()
    return [merged(known, ins[0])]


@RULES.of("OptionalFromValue")
def _wrap(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact((), None, ins[0] if len(ins) == 1 else None)]


@RULES.of("OptionalGetValue")
def _unwrap(op: Op, ins: list[Fact]) -> list[Fact]:
    return [_item(ins[0])] if len(op.outputs) == 1 else []


@RULES.of("AddN")
def _add_all(op: Op, ins: list[Fact]) -> list[Fact]:
    if all(one.element is None for one in ins):
        return [Fact(broadcast([one.shape for one in ins]))]
    length = next((one.length for one in ins if one.length is not None), None)
    return [_changed(common(ins), value=None, length=length)]


@RULES.of("BiasAddGrad")
def _of_channels(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact(None if ins[0].shape is None else ins[0].shape[-1:])]


@RULES.of("InTopKV2")
def _like_second(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact(ins[1].shape)]


@RULES.of("OptionalNone")
def _nothing(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact((), None, Fact(unset=True))]


@RULES.of("TensorListResize")
def _resize(op: Op, ins: list[Fact]) -> list[Fact]:
    return [_changed(ins[0], length=ins[1].value if isinstance(ins[1].value, int) else None)]


@RULES.of("ZerosLike")
def _zeros_like(op: Op, ins: list[Fact]) -> list[Fact]:
    return [_changed(ins[0], value=None)]


for _type, _slot in slots("sized").items():
    RULES.setdefault(_type, _shape_from(_slot))
for _type in types("pointwise") - types("own_shape"):
    RULES.setdefault(_type, _pointwise)
