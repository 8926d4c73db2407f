"""What TensorFlow's op registry says of an op: the names, counts and dtypes of what it writes."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from rnnmem.errors import NotUnderstood
from rnnmem.tf import private
from rnnmem.tf.attributes import dtype_name


@functools.cache
def op_def(op_type: str):
    """The registered OpDef.

    Raises:
      NotUnderstood: no such op is registered in this process.
    """
    found = private.op_def(op_type)
    if found is None:
        raise NotUnderstood(f"the op type {op_type!r} is not registered with this TensorFlow")
    return found


@functools.cache
def is_stateful(op_type: str) -> bool:
    """Whether TensorFlow calls the op stateful; an unknown op counts as stateful."""
    found = private.op_def(op_type)
    return found is None or found.is_stateful


def result_groups(op_type: str, attributes: Mapping[str, object]) -> list[tuple[str, list[str]]]:
    """The op's results as ``(argument name, dtypes)``, in order; a list argument has several."""
    return _groups(op_def(op_type).output_arg, attributes)


def _groups(arguments, attributes) -> list[tuple[str, list[str]]]:
    groups = []
    for argument in arguments:
        if argument.type_list_attr:
            dtypes = [dtype.name for dtype in attributes[argument.type_list_attr]]
        else:
            dtype = (
                attributes[argument.type_attr].name
                if argument.type_attr
                else dtype_name(argument.type)
            )
            count = attributes[argument.number_attr] if argument.number_attr else 1
            dtypes = [dtype] * count
        groups.append((argument.name, dtypes))
    return groups


def with_defaults(op_type: str, attributes: dict[str, object], decode) -> dict[str, object]:
    """The attributes with what the registry says of those that were not written down."""
    for attr in op_def(op_type).attr:
        if attr.name not in attributes and attr.HasField("default_value"):
            attributes[attr.name] = decode(attr.default_value)
    return attributes
