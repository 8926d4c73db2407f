"""Where a slice's gradient stands between zeros: the window of the blob that was sliced.

x [B, 40, H] ─► StridedSlice(x, t) ─► ...          d ─► StridedSliceGrad ─► [B, 40, H]
                                                        zeros but for row t of axis 1
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnnmem.analysis.facts import Fact, to_shape, without_symbols
from rnnmem.analysis.shapes import KnownNet
from rnnmem.ir.graph import Op


@dataclasses.dataclass(frozen=True)
class Window:
    """A part of a blob along one axis, all of the others being there.

    Attributes:
      given: the blob that stands there.
      axis: the axis.
      start: where on it the part begins.
      end: behind its last element.
      size: of the whole axis.
      dropped: whether ``given`` does not have the axis, as one row was taken.
    """

    given: str
    axis: int
    start: int
    end: int
    size: int
    dropped: bool = False


def window(known: KnownNet, op: Op) -> Window | None:
    """The window in which an op puts what it is given, zeros around it; None: it does no such.

    Args:
      known: the Net that the op stands in, with its shapes.
      op: of any type.
    """
    if op.type == "Pad":
        return _padded(known, op)
    return _cut(known, op) if op.type == "StridedSliceGrad" else None


def layers(windows: Sequence[Window]) -> list[list[int]]:
    """The places of windows on one axis, in as few groups as have no element in common.

    Args:
      windows: sorted by where they begin.

    Interval partitioning: each goes to the first group whose last one ends before it begins.
    """
    found: list[list[int]] = []
    for place, one in enumerate(windows):
        free = (some for some in found if windows[some[-1]].end <= one.start)
        group = next(free, None)
        if group is None:
            found.append([place])
        else:
            group.append(place)
    return found


def holes(windows: Sequence[Window]) -> list[tuple[int, int]]:
    """How many zeros stand before each window of a layer and behind it, so that no hole is left."""
    following = [*(one.start for one in windows[1:]), windows[0].size]
    before = [windows[0].start, *(0 for _ in windows[1:])]
    behind = [start - one.end for one, start in zip(windows, following, strict=True)]
    return list(zip(before, behind, strict=True))


def _padded(known: KnownNet, op: Op) -> Window | None:
    shape, around = known.facts[op.outputs[0]].shape, known.facts[op.inputs[1]].matrix
    if shape is None or around is None:
        return None
    axes = [axis for axis, beside in enumerate(around) if tuple(beside) != (0, 0)]
    if len(axes) != 1:
        return None
    (axis,) = axes
    size, (before, behind) = shape[axis], around[axis]
    if size is None or before is None or behind is None:
        return None
    return Window(op.inputs[0], axis, before, size - behind, size)


def _cut(known: KnownNet, op: Op) -> Window | None:
    facts = [known.facts[blob] for blob in op.inputs]
    shape = to_shape(facts[0].value) or known.facts[op.outputs[0]].shape
    begin, end, stride = map(_numbers, facts[1:4])
    if shape is None or begin is None or end is None or stride is None:
        return None
    places = _places(op, len(begin), len(shape))
    if set(stride) != {1} or op.attributes.get("new_axis_mask") or places is None:
        return None
    found = {axis: _part(op, shape[axis], begin[at], end[at], at) for axis, at in places}
    cut = [(axis, part) for axis, part in found.items() if part != ()]
    if len(cut) != 1:
        return None
    ((axis, part),) = cut
    size, given = shape[axis], facts[4].shape
    if part is None or size is None or given is None:
        return None
    start, stop, dropped = part  # type: ignore[misc]
    right = len(given) + dropped == len(shape)
    return Window(op.inputs[4], axis, start, stop, size, dropped) if right else None


def _numbers(fact: Fact) -> tuple[int | None, ...] | None:
    return without_symbols(fact.value) if isinstance(fact.value, tuple) else None


def _places(op: Op, count: int, rank: int) -> list[tuple[int, int]] | None:
    """Pairs of an axis and of the bounds that tell which part of it is sliced."""
    found, axis = [], 0
    for place in range(count):
        if _has(op, "ellipsis", place):
            axis = rank - (count - place - 1)
        elif axis >= rank:
            return None
        else:
            found.append((axis, place))
            axis += 1
    return found


def _part(
    op: Op, size: int | None, begin: int | None, end: int | None, place: int
) -> tuple[int, int, bool] | tuple[()] | None:
    """Start, end, and whether the axis is dropped; empty: all of it is there; None: unknown."""
    if _has(op, "shrink_axis", place):
        known = size is not None and begin is not None and -size <= begin < size
        return (begin % size, begin % size + 1, True) if known else None  # type: ignore[operator]
    first = 0 if _has(op, "begin", place) else begin
    to_last = _has(op, "end", place)
    if first == 0 and to_last:
        return ()
    if size is None or first is None or (end is None and not to_last):
        return None
    part = range(size)[first : None if to_last else end]
    if len(part) == size:
        return ()
    return (part.start, part.stop, False) if part else None


def _has(op: Op, mask: str, place: int) -> bool:
    return bool(int(op.attributes.get(f"{mask}_mask") or 0) >> place & 1)
