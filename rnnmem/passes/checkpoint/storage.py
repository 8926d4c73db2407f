"""Where loops keep the states that segments begin with: lists that grow, or slots.

Each state, and the iteration i that it stands in front of, has a list. The forward loop keeps, the
gradient loop takes what its segment begins with, or what the way to it does, and keeps more on that
way. Either way all lists change together, so they always hold an i and the states at i.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnnmem.ir.builders import (
    INT,
    Encode,
    element,
    element_shape,
    integer,
    made,
    number,
    pop,
    push,
)
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import Blob, Shape
from rnnmem.ir.marks import SLOTS
from rnnmem.passes.checkpoint.decision import Segments
from rnnmem.passes.checkpoint.online import NEEDLESS, first_levels, first_slots, first_steps

_FAR = 2**30
"""Iterations that no loop with a known trip count has."""
_NEVER, _UNUSED = 2**31 - 1, 2**31 - 2


@dataclasses.dataclass(frozen=True)
class Taken:
    """What a segment, or the way to it, begins with.

    Attributes:
      lists: the lists of states as they are then.
      values: the iteration and the states.
      free: how many states there is room for, that of the values included; without a schedule "".
    """

    lists: list[str]
    values: list[str]
    free: str


def checkpoints(segments: Segments, constant: Encode) -> Stack | Slots:
    """What writes the ops that keep and take states, as the segments' schedule needs them."""
    in_slots = segments.online and segments.slots
    return (Slots if in_slots else Stack)(segments, constant)


class Stack:
    """Lists that are pushed and popped: of each segment, or as a schedule says that is known."""

    def __init__(self, segments: Segments, constant: Encode):
        self.segments = segments
        self.constant = constant

    def cursor(self, net: NetEditor) -> list[str]:
        """What the variable begins as that says how far the next state but one is.

        It is the length of the segment, or how many states have been kept where a schedule says.
        """
        length = 0 if self.segments.slots else self.segments.length
        return [number(net, length, self.constant)]

    def keep(
        self, net: NetEditor, cursor: Sequence[str], lists: Sequence[str], values: Sequence[str]
    ) -> tuple[str, list[str], list[str]]:
        """Keeps a state while the loop first runs.

        Args:
          net: the branch in which it is done.
          cursor: the schedule's own variables.
          lists: of iterations and states.
          values: the iteration and the states.

        Returns:
          The iteration at which a state is kept next, and what ``cursor`` and ``lists`` become.
        """
        segments, constant = self.segments, self.constant
        now, (span,) = values[0], cursor
        if segments.slots:
            starts = [segments.length * start for start in segments.starts[1:]]
            following = element(net, number(net, [*starts, -1], constant), span, constant)
            span = integer(net, "AddV2", span, number(net, 1, constant))
        else:
            following = integer(net, "AddV2", now, span)
            span = integer(net, "AddV2", span, number(net, segments.growth, constant))
            if segments.end:  # no segment begins behind the last one
                ended = integer(net, "FloorDiv", following, number(net, segments.end, constant))
                once = integer(net, "Minimum", ended, number(net, 1, constant))
                far = integer(net, "Mul", once, number(net, _FAR, constant))
                following = integer(net, "AddV2", following, far)
        return following, [span], self.put(net, lists, values)

    def take(self, net: NetEditor, lists: Sequence[str], kinds: Sequence[Blob], left: str) -> Taken:
        """Takes the newest state off the lists.

        Args:
          net: the branch in which it is done.
          lists: of iterations and states.
          kinds: what they hold.
          left: iterations left for the gradient.
        """
        shorter, values = [], []
        for held, kind in zip(lists, kinds, strict=True):
            shape = element_shape(net, kind.shape, self.constant)
            rest, value = pop(net, held, kind.dtype, kind.shape, shape, name="rnnmem/checkpoint")
            shorter.append(rest)
            values.append(value)
        free = ""
        if self.segments.slots:
            most = number(net, self.segments.slots, self.constant)
            free = integer(net, "Sub", most, _length(net, shorter[0]))
        return Taken(shorter, values, free)

    def put(self, net: NetEditor, lists: Sequence[str], values: Sequence[str]) -> list[str]:
        """The lists with one more iteration and its states."""
        pairs = zip(lists, values, strict=True)
        return [push(net, held, value, name="rnnmem/push") for held, value in pairs]


class Slots:
    """Lists of so many slots, as the online schedule uses them (`rnnmem.passes.checkpoint.online`).

    What it is told and tells is as with a `Stack`. Once the iterations at and behind a state have
    had their gradient its slot is free.
    """

    def __init__(self, segments: Segments, constant: Encode):
        self.segments = segments
        self.constant = constant
        self.wide = (segments.slots,)

    def cursor(self, net: NetEditor) -> list[str]:
        """States kept so far; in front of which iteration that of each slot stands; its level."""
        slots = self.segments.slots
        starts = (0, [0] * slots, list(first_levels(slots)))
        return [number(net, value, self.constant) for value in starts]

    def keep(
        self, net: NetEditor, cursor: Sequence[str], lists: Sequence[str], values: Sequence[str]
    ) -> tuple[str, list[str], list[str]]:
        """Keeps a state while the loop first runs, in the slot that is the next one's."""
        segments, constant, wide = self.segments, self.constant, self.wide
        now, (kept, held, levels) = values[0], cursor
        first = tuple(first_slots(segments.slots))
        later = first_steps(segments.slots) if segments.slots > 1 else None
        steps = [*(step for step, _ in first[1:]), later]
        starts = [-1 if step is None else step * segments.length for step in steps]
        last = integer(net, "Minimum", kept, number(net, len(first) - 1, constant))
        is_first = _compare(net, "Less", kept, number(net, len(first), constant), ())
        slot, above = self._next_slot(net, held, levels)
        slot = self._either(net, is_first, [slot for _, slot in first], last, slot)
        following = integer(net, "AddV2", now, number(net, segments.length, constant))
        following = self._either(net, is_first, starts, last, following)
        levels = _select(net, is_first, levels, above, wide)
        held = _select(net, self._is_slot(net, slot), now, held, wide)
        kept = integer(net, "AddV2", kept, number(net, 1, constant))
        return following, [kept, held, levels], self._set(net, lists, slot, values)

    def take(self, net: NetEditor, lists: Sequence[str], kinds: Sequence[Blob], left: str) -> Taken:
        """Reads the newest state of those in front of the iterations that are left."""
        constant = self.constant
        begun = self._begun(net, lists)
        in_use = _compare(net, "Less", begun, left, (None,))
        none = number(net, -1, constant)
        slot = self._place(net, "ArgMax", _select(net, in_use, begun, none, (None,)))
        values = [
            made(
                net,
                "TensorListGetItem",
                (held, slot, element_shape(net, kind.shape, constant)),
                kind.dtype,
                kind.shape,
                "rnnmem/checkpoint",
                element_dtype=kind.dtype,
            )
            for held, kind in zip(lists, kinds, strict=True)
        ]
        used = self._reduce(net, "Sum", _cast(net, in_use, (None,)))
        free = integer(net, "Sub", number(net, self.segments.slots + 1, constant), used)
        return Taken(list(lists), values, free)

    def put(self, net: NetEditor, lists: Sequence[str], values: Sequence[str]) -> list[str]:
        """Keeps a state on the way: where it is already, or in a free slot, or in one more.

        A state in front of this iteration is this one, and one behind it is needed no more.
        """
        constant, begun = self.constant, self._begun(net, lists)
        unused = number(net, [_UNUSED], constant)
        read = (begun, unused, number(net, 0, constant))
        begun = made(net, "ConcatV2", read, INT, (None,), "rnnmem/slots", N=2, T=INT, Tidx=INT)
        in_use = _compare(net, "Less", begun, values[0], (None,))
        free = _select(net, in_use, number(net, _NEVER, constant), begun, (None,))
        return self._set(net, lists, self._place(net, "ArgMin", free), values)

    def _next_slot(self, net: NetEditor, held: str, levels: str) -> tuple[str, str]:
        """`rnnmem.passes.checkpoint.online.next_slot` in ops."""
        constant, wide = self.constant, self.wide
        zero = number(net, 0, constant)
        needless = _compare(net, "Less", levels, zero, wide)
        some = _compare(net, "Less", self._reduce(net, "Min", levels), zero, ())
        pool = _cast(net, _compare(net, "Equal", needless, some, wide, "bool"), wide)
        slot = self._place(net, "ArgMax", made(net, "Mul", (held, pool), INT, wide, T=INT))
        level = element(net, levels, slot, constant)
        lower = _compare(net, "Less", levels, level, wide)
        after = _select(net, lower, number(net, NEEDLESS, constant), levels, wide)
        above = integer(net, "AddV2", level, number(net, 1, constant))
        return slot, _select(net, self._is_slot(net, slot), above, after, wide)

    def _set(
        self, net: NetEditor, lists: Sequence[str], slot: str, values: Sequence[str]
    ) -> list[str]:
        """The lists with a slot's new iteration and states; the slot may be the next one."""
        place = integer(net, "Minimum", slot, _length(net, lists[0]))
        place = integer(net, "Maximum", place, number(net, 0, self.constant))
        return [
            made(
                net,
                "TensorListSetItem",
                (held, place, value),
                "variant",
                name="rnnmem/slot",
                element_dtype=net.blobs[value].dtype,
                resize_if_index_out_of_bounds=True,
                **{SLOTS: self.segments.slots},
            )
            for held, value in zip(lists, values, strict=True)
        ]

    def _begun(self, net: NetEditor, lists: Sequence[str]) -> str:
        """In front of which iteration the state of each slot stands."""
        read = (lists[0], element_shape(net, (), self.constant))
        kinds = {"element_dtype": INT, "num_elements": -1}
        return made(net, "TensorListStack", read, INT, (None,), "rnnmem/slots", **kinds)

    def _either(
        self, net: NetEditor, condition: str, numbers: list[int], place: str, other: str
    ) -> str:
        """One of the numbers, or another one."""
        chosen = element(net, number(net, numbers, self.constant), place, self.constant)
        return _select(net, condition, chosen, other, ())

    def _is_slot(self, net: NetEditor, slot: str) -> str:
        slots = number(net, list(range(self.segments.slots)), self.constant)
        return _compare(net, "Equal", slots, slot, self.wide)

    def _place(self, net: NetEditor, type: str, numbers: str) -> str:
        """Where the first of the largest or smallest numbers stands."""
        read = (numbers, number(net, 0, self.constant))
        kinds = {"T": INT, "Tidx": INT, "output_type": INT}
        return made(net, type, read, INT, (), "rnnmem/place", **kinds)

    def _reduce(self, net: NetEditor, type: str, numbers: str) -> str:
        read = (numbers, number(net, 0, self.constant))
        return made(net, type, read, INT, T=INT, Tidx=INT, keep_dims=False)


def _compare(
    net: NetEditor, type: str, first: str, second: str, shape: Shape, dtype: str = INT
) -> str:
    more = {"incompatible_shape_error": True} if type == "Equal" else {}
    return made(net, type, (first, second), "bool", shape, "rnnmem/compared", T=dtype, **more)


def _select(net: NetEditor, condition: str, first: str, second: str, shape: Shape) -> str:
    return made(net, "SelectV2", (condition, first, second), INT, shape, "rnnmem/chosen", T=INT)


def _cast(net: NetEditor, truths: str, shape: Shape) -> str:
    return made(net, "Cast", (truths,), INT, shape, SrcT="bool", DstT=INT, Truncate=False)


def _length(net: NetEditor, held: str) -> str:
    return made(net, "TensorListLength", (held,), INT, (), "rnnmem/kept")
