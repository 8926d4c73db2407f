"""What lowerings look for in a Net: constants, counters, loop variables, what only hands on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from rnnmem.ir.graph import DType, Net, Op
from rnnmem.ir.op_table import LOOPS, RESERVE, SET
from rnnmem.ir.order import constant_value

_FINDING_ZEROS = (
    "TensorListElementShape",
    "TensorListGetItem",
    "TensorListLength",
    "TensorListStack",
)
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
    value = constant_value(net, blob)
    return None if isinstance(value, bool) else value


def is_hinted(original: Net, rewritten: Net, hints: Callable[[Net, Op, Net, Op], bool]) -> bool:
    """Whether some op of a name that both Nets have, at any depth, is a hint to look there.

    Args:
      original: the Net as imported.
      rewritten: what a rewrite made of it.
      hints: of the original and one of its ops, and of the rewritten Net and the op of that name,
        which is another.
    """
    for op in original.ops:
        other = rewritten.op_by_name.get(op.name)
        if other is None or other is op:
            continue
        if hints(original, op, rewritten, other):
            return True
        labels = op.nets.keys() & other.nets.keys()
        if any(is_hinted(op.nets[label], other.nets[label], hints) for label in labels):
            return True
    return False


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


def extends_lifetime(outer: Net, loop: Op, op: Op) -> bool:
    """Whether an op of a loop puts an element into a list that has a place for it in any iteration.

    The list begins with its places, for elements of any shape, and the loop only puts into it.
    """
    body = loop.nets["body"]
    if op.type != SET:
        return False
    argument = _before_puts(body, op.inputs[0])
    held = [one for one in variables(loop) if one.argument == argument]
    if len(held) != 1 or _before_puts(body, held[0].following) != argument:
        return False
    start = made_by(outer, behind(outer, held[0].start), RESERVE)
    if start is None or number(outer, behind(outer, start.inputs[0])) != -1:
        return False
    place, places = number(body, op.inputs[1]), number(outer, behind(outer, start.inputs[1]))
    kinds = {dtype_name(one, "element_dtype") for one in (op, start)}
    kinds.add(body.blobs[op.inputs[2]].dtype)
    if not isinstance(place, int) or not isinstance(places, int):
        return False
    return 0 <= place < places and len(kinds) == 1


def _before_puts(body: Net, blob: str) -> str:
    """The list that nothing was put into yet."""
    while (op := body.producer.get(behind(body, blob))) is not None and op.type == SET:
        blob = op.inputs[0]
    return behind(body, blob)


def finds_zeros(net: Net, blob: str) -> bool:
    """Whether all that read a list, in loops too, take an element that is missing for a zero.

    They do where the list knows the whole shape of its elements.
    """
    return blob not in net.outputs and all(
        _is_kept(op, blob) and all(finds_zeros(net, one) for one in _handed_out(op, blob))
        if op.type in LOOPS
        else op.type in _FINDING_ZEROS or op.type == "Identity" and finds_zeros(net, op.outputs[0])
        for op in net.readers.get(blob, ())
    )


def _handed_out(loop: Op, blob: str) -> Iterator[str]:
    return (one.final for one in variables(loop) if one.start == blob)


def _is_kept(loop: Op, blob: str) -> bool:
    """Whether the loop only reads and replaces elements of the list, in a variable of its own."""
    body, cond = loop.nets["body"], loop.nets["cond"]
    return all(
        not cond.fan_out(cond.inputs[one.position]) and _stays(body, one.argument, one.position)
        for one in variables(loop)
        if one.start == blob
    )


def _stays(body: Net, held: str, place: int) -> bool:
    """Whether a list goes nowhere but to the next iteration, with elements read and replaced."""
    if any(one == held and at != place for at, one in enumerate(body.outputs)):
        return False
    for op in body.readers.get(held, ()):
        if op.type == "Identity" or op.type == "TensorListSetItem" and held not in op.inputs[1:]:
            if not _stays(body, op.outputs[0], place):
                return False
        elif op.type not in _FINDING_ZEROS:
            return False
    return True
