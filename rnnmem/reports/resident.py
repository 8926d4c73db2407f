"""What is in memory before a function runs: its variables, its arguments, what it captured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rnnmem.ir.graph import BYTES_PER_ELEMENT, Shape
from rnnmem.reports.data import ARGUMENTS, CONSTANTS, OTHER_STATE, SLOTS, WEIGHTS, Part

_OPAQUE = ("resource", "variant", "string")


def resident(concrete: Any, inputs: Sequence[Any]) -> tuple[Part, ...]:
    """The tensors that a call finds in memory, the largest first.

    Args:
      concrete: the traced function.
      inputs: its arguments, then its captures, as tensors.
    """
    variables = list(concrete.graph.variables)
    weights = {kind_of(one) for one in variables if one.trainable}
    parts = [_part(_variable_kind(one, weights), one.name, one) for one in variables]
    captured = len(concrete.captured_inputs)
    for place, (tensor, placeholder) in enumerate(zip(inputs, concrete.graph.inputs, strict=False)):
        if placeholder.dtype.name not in _OPAQUE:
            is_argument = place < len(concrete.graph.inputs) - captured
            name = placeholder.op.name
            parts.append(_part(ARGUMENTS if is_argument else CONSTANTS, name, tensor))
    return tuple(sorted(parts, key=lambda part: -part.bytes))


def input_names(concrete: Any) -> list[str]:
    """The names of the variables and arguments behind a traced function's inputs, in order."""
    inputs, captured = concrete.graph.inputs, list(concrete.captured_inputs)
    variables = {id(one.handle): one.name for one in concrete.graph.variables}
    known = [variables.get(id(tensor)) for tensor in captured]
    known = [None] * (len(inputs) - len(captured)) + known
    names = [
        name or tensor.op.name.removesuffix("_0")
        for name, tensor in zip(known, inputs, strict=True)
    ]
    return [name.partition(":")[0] for name in names]


def weight_kinds(variables: Iterable[Any]) -> frozenset[tuple[str, Shape]]:
    """``(dtype, shape)`` of the variables that are trained."""
    return frozenset(kind_of(one) for one in variables if one.trainable)


def _variable_kind(variable: Any, weights: set[tuple[str, Shape]]) -> str:
    if variable.trainable:
        return WEIGHTS
    return SLOTS if variable.shape.rank and kind_of(variable) in weights else OTHER_STATE


def kind_of(value: Any) -> tuple[str, Shape]:
    """The dtype's name and the shape of a tensor, a variable or a spec of one."""
    return value.dtype.name, None if value.shape.rank is None else tuple(value.shape.as_list())


def _part(kind: str, name: str, value: Any) -> Part:
    dtype, shape = kind_of(value)
    count = value.shape.num_elements() if value.shape.is_fully_defined() else None
    size = (count or 0) * BYTES_PER_ELEMENT.get(dtype, 0)
    return Part(name.partition(":")[0], kind, size, dtype=dtype, shape=shape)
