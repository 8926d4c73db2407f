"""What lowerings look for in a Net: constants, counters, loop variables, what only hands on."""

from __future__ import annotations

import dataclasses

from rnnmem.ir.graph import Constant, DType, Net, Op

HANDS_ON = ("EnsureShape", "Identity", "PlaceholderWithDefault")
"""Types whose result is their input."""


@dataclasses.dataclass(frozen=True)
class Variable:
    """A loop variable: its position, and its blobs around and inside the loop."""

    position: int
    start: str
    argument: str
    following: str
    final: str


def variables(loop: Op) -> list[Variable]:
    """The variables of a loop, in order."""
    body = loop.nets["body"]
    columns = (loop.inputs, body.inputs, body.outputs, loop.outputs)
    return [Variable(place, *blobs) for place, blobs in enumerate(zip(*columns, strict=True))]


def behind(net: Net, blob: str) -> str:
    """The blob that ops hand on which change no value."""
    while (op := net.producer.get(blob)) is not None and op.type in HANDS_ON:
        blob = op.inputs[0]
    return blob


def maker(net: Net, blob: str) -> Op | None:
    """The op that makes the blob, behind what hands it on; None for an input."""
    return net.producer.get(behind(net, blob))


def made_by(net: Net, blob: str, type: str) -> Op | None:
    """The op that writes the blob, if it is of the type."""
    op = net.producer.get(blob)
    return op if op is not None and op.type == type else None


def number(net: Net, blob: str) -> int | float | tuple[int, ...] | None:
    """The number, or short vector of them, that the blob always holds; None where not known."""
    op = made_by(net, blob, "Const")
    held = op.attributes.get("value") if op is not None else None
    value = held.value if isinstance(held, Constant) else None
    return None if isinstance(value, bool) else value


def steps_by_one(body: Net, variable: Variable, type: str) -> bool:
    """Whether the variable grows (AddV2) or falls (Sub) by one in each iteration."""
    op = made_by(body, behind(body, variable.following), type)
    return (
        op is not None
        and behind(body, op.inputs[0]) == variable.argument
        and number(body, behind(body, op.inputs[1])) == 1
    )


def is_read(net: Net, blob: str) -> bool:
    """Whether anybody reads the blob, but through ops that hand it on to nobody."""
    return blob in net.outputs or any(
        op.type != "Identity" or is_read(net, op.outputs[0]) for op in net.readers.get(blob, ())
    )


def dtype_name(op: Op, attribute: str) -> str:
    """The dtype that an attribute names; empty where it names none."""
    held = op.attributes.get(attribute)
    return held.name if isinstance(held, DType) else ""
