"""Frozen dataclasses to plain data for JSON, and back by the types that their fields declare."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any


def to_data(held: Any) -> Any:
    """Dicts, lists, texts and numbers that stand for a dataclass."""
    return dataclasses.asdict(held)


def from_data(kind: Any, data: Any, name: str = "") -> Any:
    """What the data stands for.

    Args:
      kind: a dataclass, or another type that a field may declare.
      data: as JSON gives it.
      name: the field that holds it, for errors.

    Raises:
      TypeError: it is of another kind, or a field is missing or unknown; names the field.
    """
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(data, Mapping):
        return _dataclass(kind, data)
    choices = typing.get_args(kind)
    if typing.get_origin(kind) is tuple and isinstance(data, (list, tuple)):
        each = len(choices) == 2 and choices[1] is ...
        kinds = choices[:1] * len(data) if each else choices
        if len(kinds) == len(data):
            return tuple(from_data(one, part, name) for one, part in zip(kinds, data, strict=True))
    elif isinstance(kind, types.UnionType):
        possible = [one for one in choices if (one is types.NoneType) == (data is None)]
        if possible:
            return from_data(possible[0], data, name)
    elif _fits(kind, data):
        return data
    raise TypeError(f"{name} cannot be {data!r}")


def _dataclass(kind: type, data: Mapping[str, Any]) -> Any:
    known = _fields(kind)
    for field in data:
        if field not in known:
            raise TypeError(f"{kind.__name__} has no field {field!r}")
    label = kind.__name__
    made = kind(**{key: from_data(known[key], data[key], f"{label}.{key}") for key in data})
    if hasattr(made, "check"):
        made.check()
    return made


@functools.cache
def _fields(kind: type) -> Mapping[str, Any]:
    """Name -> type of each field."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _fits(kind: Any, data: Any) -> bool:
    """Whether a value is of a simple kind: a truth, a number, a text."""
    if isinstance(data, bool):
        return kind is bool
    if kind is float:
        return isinstance(data, (int, float)) and not math.isnan(data)
    return isinstance(kind, type) and isinstance(data, kind)
