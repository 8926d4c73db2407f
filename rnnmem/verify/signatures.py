"""The sign of an op: its type, device and attributes, less what is only bookkeeping."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any

from rnnmem.ir.graph import Constant, Op

_BOOKKEEPING = frozenset({"parallel_iterations", "_output_shapes", "_class"})
_BOOKKEEPING_STARTS = ("_rnnmem", "_name_of/")


class Signs:
    """The signs of the ops of one check, each found once."""

    def __init__(self) -> None:
        """None is known yet."""
        self._signs: dict[int, tuple[Op, int]] = {}  # with the op, so that its id stays its own
        self._numbers: dict[Hashable, int] = {}

    def of(self, op: Op) -> Hashable:
        """What two ops must share to compute the same from the same inputs; a number for it."""
        found = self._signs.get(id(op))
        if found is None:
            sign = (op.type, op.device, attributes_of(op))
            found = self._signs[id(op)] = op, self._numbers.setdefault(sign, len(self._numbers))
        return found[1]


def attributes_of(op: Op) -> Hashable:
    """The op's attributes in a form that compares exactly."""
    if not op.attributes:
        return ()
    return tuple(
        [
            (name, exact(op.attributes[name]))
            for name in sorted(op.attributes)
            if name not in _BOOKKEEPING and not name.startswith(_BOOKKEEPING_STARTS)
        ]
    )


def exact(value: Any) -> Hashable:
    """The value in a form that tells 1 from True and 0.0 from -0.0, and NaN from nothing."""
    if isinstance(value, tuple):
        return tuple([exact(item) for item in value])
    if isinstance(value, float):
        return "float", value.hex()
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, Constant):
        return tuple([exact(getattr(value, field.name)) for field in dataclasses.fields(value)])
    return value
