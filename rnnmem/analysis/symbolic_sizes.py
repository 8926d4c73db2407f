"""Symbolic sizes: a dimension that only a run tells is named by a blob and the axis that has it.

    q [?, 1, 64] ─┬─► AddV2 ─► Tanh ─► t         t is [q's axis 0, k's axis 1, 64] where k is
    k [1, ?, 64] ─┘                              of the first axis 1, and so is whatever is
                                                 told ``Shape(t)``

Two sizes of one name are equal in every run. Of others nothing is known: two sizes that an op
broadcasts to each other have a new name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from rnnmem.analysis.facts import Rules, without_symbols
from rnnmem.analysis.rules.indexing import sliced_axes
from rnnmem.analysis.shape_sources import LIKE_FIRST, POINTWISE
from rnnmem.analysis.shapes import KnownNet
from rnnmem.ir.graph import Op
from rnnmem.ir.op_table import REDUCES

Size = int | tuple[str, int]
"""A number, or the blob and the axis whose size it is."""
Sizes = tuple[Size, ...]

T = TypeVar("T")

_Named = tuple[Size | None, ...] | None
"""Sizes, None for one of which nothing is known; None where not even their number is."""
_Rule = Callable[["SymbolicSizes", Op], _Named]

_RESULTS: Rules[_Rule] = Rules()
"""Op type -> the sizes of its result."""
_VECTORS: Rules[_Rule] = Rules()
"""Op type -> the sizes that the vector holds which it makes."""


def broadcasts_itself(source: Sizes | None, made: Sizes | None, other: Sizes | None) -> bool:
    """Whether an op that reads another operand makes the same of a source as of that repeated.

    Args:
      source: sizes of what is repeated along axes of length 1.
      made: sizes of what that makes.
      other: sizes of the operand beside it.
    """
    if source is None or made is None or other is None:
        return False
    return all(
        one == repeated or (one == 1 and _covers(beside, repeated))
        for one, repeated, beside in by_axis(source, made, other)
    )


def by_axis(*read: tuple[T, ...]) -> Iterator[tuple[T | int, ...]]:
    """Sizes that broadcast to each other, axis by axis; those of fewer axes begin with 1."""
    rank = max(map(len, read), default=0)
    return zip(*((1,) * (rank - len(one)) + one for one in read), strict=True)


def _covers(one: Size, other: Size) -> bool:
    """Whether two sizes broadcast to the first."""
    return _both(one, other) == one


def _all(sizes: Iterable[Size]) -> Size | None:
    """What sizes along one axis broadcast to; None where it is unknown, or they clash."""
    made: Size | None = 1
    for size in sizes:
        made = None if made is None else _both(made, size)
    return made


def _both(one: Size, other: Size) -> Size | None:
    """What two sizes broadcast to; None where it is unknown, or they clash."""
    if one == other or other == 1:
        return one
    if one == 1:
        return other
    numbers = [size for size in (one, other) if isinstance(size, int)]
    return numbers[0] if len(numbers) == 1 else None  # the other is that number, or 1


def sizing_ops(known: KnownNet, among: Collection[str]) -> frozenset[str]:
    """The ops of these names whose results have sizes that no blob had before."""
    sizes, net = SymbolicSizes(known), known.net
    return frozenset(
        op.name
        for op in net.ops
        if op.name in among
        for blob in op.outputs
        if any(isinstance(size, tuple) and size[0] == blob for size in sizes.of(blob) or ())
    )


class SymbolicSizes:
    """The sizes of a Net's blobs, where they are the same in whatever run."""

    def __init__(self, known: KnownNet):
        """Looks at a Net of which all shapes that can be found out are filled in."""
        self._known, self._net = known, known.net
        self._found: dict[str, Sizes | None] = {}
        for blob in known.net.inputs:
            self._found[blob] = self._own(blob)
        for op in known.net.ops:
            self._found.update((blob, self._named(op, self._own(blob))) for blob in op.outputs)

    def of(self, blob: str) -> Sizes | None:
        """The sizes of a blob; None where not even its rank is known."""
        return self._found.get(blob)

    def rank(self, blob: str) -> int:
        """How many axes a blob has; 0 where it is not known."""
        return len(self._net.blobs[blob].shape or ())

    def told(self, blob: str) -> _Named:
        """The sizes that a vector holds."""
        op = self._net.producer.get(blob)
        found = _VECTORS[op.type](self, op) if op is not None and op.type in _VECTORS else None
        known = self.value(blob)
        if not isinstance(known, tuple) or (found is not None and len(found) != len(known)):
            return found
        return tuple(
            name if number is None else _size(number)
            for number, name in zip(known, found or (None,) * len(known), strict=True)
        )

    def value(self, blob: str) -> int | tuple[int | None, ...] | None:
        """The number, or the vector of numbers, that a blob is known to be."""
        value = self._known.facts[blob].value
        if isinstance(value, tuple):
            return without_symbols(value)
        return value if isinstance(value, int) else None

    def number(self, blob: str) -> Size | None:
        """The size that a single number is: an element of a vector, or known."""
        value, op = self.value(blob), self._net.producer.get(blob)
        if isinstance(value, int):
            return _size(value)
        if op is None or op.type != "StridedSlice" or not _takes_one(op):
            return None
        sizes, first = self.told(op.inputs[0]), self.value(op.inputs[1])
        at = first[0] if isinstance(first, tuple) and len(first) == 1 else None
        if sizes is None or at is None or not -len(sizes) <= at < len(sizes):
            return None
        return sizes[at]

    def _own(self, blob: str) -> Sizes | None:
        shape = self._net.blobs[blob].shape
        if shape is None:
            return None
        return tuple((blob, axis) if size is None else size for axis, size in enumerate(shape))

    def _named(self, op: Op, own: Sizes | None) -> Sizes | None:
        """A result's own sizes, with the names of those that they are equal to."""
        if own is None or op.type not in _RESULTS or len(op.outputs) > 1:
            return own
        made = _RESULTS[op.type](self, op) if any(isinstance(one, tuple) for one in own) else own
        if made is None or len(made) != len(own):
            return own
        return tuple(
            size if isinstance(size, int) or name is None else name
            for size, name in zip(own, made, strict=True)
        )


def _size(number: int) -> int | None:
    """The number as a size; -1 stands for whatever is left."""
    return number if number >= 0 else None


def _takes_one(op: Op) -> bool:
    """Whether a StridedSlice takes one element out of a vector."""
    masks = ("begin_mask", "ellipsis_mask", "new_axis_mask")
    return op.attributes.get("shrink_axis_mask") == 1 and not any(map(op.attributes.get, masks))


@_RESULTS.of(*LIKE_FIRST)
@_VECTORS.of("Shape")
def _like_first(sizes: SymbolicSizes, op: Op) -> _Named:
    return sizes.of(op.inputs[0])


@_RESULTS.of(*POINTWISE)
def _broadcast(sizes: SymbolicSizes, op: Op) -> _Named:
    read = [one for one in map(sizes.of, op.inputs) if one is not None]
    return _broadcast_sizes(read) if len(read) == len(op.inputs) else None


def _broadcast_sizes(read: Sequence[Sizes]) -> tuple[Size | None, ...]:
    """What sizes broadcast to, None for one that is unknown."""
    return tuple(map(_all, by_axis(*read)))


@_RESULTS.of("BroadcastTo", "Reshape")
def _as_told(sizes: SymbolicSizes, op: Op) -> _Named:
    return sizes.told(op.inputs[1])


@_RESULTS.of("Tile")
def _repeated(sizes: SymbolicSizes, op: Op) -> _Named:
    read, often = sizes.of(op.inputs[0]), sizes.value(op.inputs[1])
    if read is None or not isinstance(often, tuple) or len(often) != len(read):
        return None
    return tuple(size if count == 1 else None for size, count in zip(read, often, strict=True))


@_RESULTS.of("ExpandDims")
def _with_axis(sizes: SymbolicSizes, op: Op) -> _Named:
    read, axis = sizes.of(op.inputs[0]), sizes.value(op.inputs[1])
    if isinstance(axis, tuple):
        axis = axis[0] if len(axis) == 1 else None
    if read is None or axis is None or not -len(read) - 1 <= axis <= len(read):
        return None
    at = axis % (len(read) + 1)
    return (*read[:at], 1, *read[at:])


@_RESULTS.of(*REDUCES)
def _reduced(sizes: SymbolicSizes, op: Op) -> _Named:
    read, axes = sizes.of(op.inputs[0]), sizes.value(op.inputs[1])
    axes = (axes,) if isinstance(axes, int) else axes
    if read is None or axes is None or None in axes or not read:
        return None
    gone = {one % len(read) for one in axes if one is not None}
    if op.attributes.get("keep_dims"):
        return tuple(1 if axis in gone else size for axis, size in enumerate(read))
    return tuple(size for axis, size in enumerate(read) if axis not in gone)


@_RESULTS.of("MatMul", "BatchMatMul", "BatchMatMulV2")
def _product(sizes: SymbolicSizes, op: Op) -> _Named:
    """Rows of the first factor, columns of the second, each of them as many times as there are."""
    one, other = map(sizes.of, op.inputs)
    if one is None or other is None or len(one) < 2 or len(other) < 2:
        return None
    rows = -1 if op.attributes.get("transpose_a") or op.attributes.get("adj_x") else -2
    columns = -2 if op.attributes.get("transpose_b") or op.attributes.get("adj_y") else -1
    return (*_broadcast_sizes([one[:-2], other[:-2]]), one[rows], other[columns])


@_RESULTS.of("Transpose")
def _turned(sizes: SymbolicSizes, op: Op) -> _Named:
    read, order = sizes.of(op.inputs[0]), sizes.value(op.inputs[1])
    if read is None or not isinstance(order, tuple) or len(order) != len(read):
        return None
    return tuple(None if axis is None else read[axis] for axis in order)


@_RESULTS.of("GatherV2", "ResourceGather")
def _looked_up(sizes: SymbolicSizes, op: Op) -> _Named:
    """Rows of a table along its first axis; of it nothing is told."""
    indices = sizes.of(op.inputs[1])
    along_first = len(op.inputs) < 3 or sizes.value(op.inputs[2]) in (0, (0,))
    if indices is None or op.attributes.get("batch_dims") or not along_first:
        return None
    return (*indices, *[None] * (sizes.rank(op.outputs[0]) - len(indices)))


@_RESULTS.of("StridedSlice")
def _sliced(sizes: SymbolicSizes, op: Op) -> _Named:
    """Axes that are taken whole, and new ones."""
    read, steps = sizes.of(op.inputs[0]), sizes.value(op.inputs[3])
    if read is None or not isinstance(steps, tuple):
        return None
    axes = sliced_axes(op, len(steps), len(read))
    whole = int(op.attributes.get("begin_mask") or 0) & int(op.attributes.get("end_mask") or 0)

    def size(axis: int | None, place: int | None) -> Size | None:
        if axis is None:
            return 1
        is_whole = place is None or (whole >> place & 1 and steps[place] == 1)
        return read[axis] if is_whole else None

    return None if axes is None else tuple(size(*one) for one in axes)


@_VECTORS.of("Identity")
def _handed_on(sizes: SymbolicSizes, op: Op) -> _Named:
    return sizes.told(op.inputs[0])


@_VECTORS.of("Pack")
def _packed(sizes: SymbolicSizes, op: Op) -> _Named:
    return tuple(map(sizes.number, op.inputs))


@_VECTORS.of("DynamicStitch")
def _stitched(sizes: SymbolicSizes, op: Op) -> _Named:
    """What ``tf.reduce_sum`` leaves of a shape for its gradient: 1 along its axes."""
    half = len(op.inputs) // 2
    found: dict[int, Size | None] = {}
    for places, values in zip(op.inputs[:half], op.inputs[half:], strict=True):
        where, held = sizes.value(places), sizes.told(values)
        if isinstance(where, int):
            where, held = (where,), (sizes.number(values),)
        if where is None or held is None or len(where) != len(held):
            return None
        for place, size in zip(where, held, strict=True):
            if place is None:
                return None
            found[place] = size
    return tuple(found[place] for place in range(len(found))) if _is_whole(found) else None


def _is_whole(found: dict[int, Size | None]) -> bool:
    return sorted(found) == list(range(len(found)))
