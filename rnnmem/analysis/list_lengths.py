"""How many elements a list has behind a loop: pushed one by one, or lengthened by writes to it.

A TensorArray of dynamic size begins empty, and a write behind its end lengthens it. What the body
writes to, iteration by iteration, tells how long it is in the end:

    TensorListReserve(0) ─► While, 100 iterations: TensorListSetItem(list, i) ─► 100 elements
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rnnmem.analysis.loops import Loop
from rnnmem.analysis.shape_rules import RESIZES, Fact
from rnnmem.analysis.trip_count import Number, course
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import LOOPS, types
from rnnmem.ir.order import through_identities

_KEEP_OR_STEP = types("list", "push", "pop", "place", "set")
"""Ops that hand a list on as long as it was, or longer or shorter by as much every time."""

_READ_LENGTHS = types("list", "length", "stack", "concat")
"""Ops whose result depends on how long a list is at that moment."""


def lengths_behind(
    loop: Loop,
    starts: Sequence[Fact],
    ends: Sequence[Fact],
    trips: int | None,
    given: Mapping[str, Number],
) -> tuple[list[int | None], dict[str, int]]:
    """How many elements the lists among a loop's variables have in the end.

    Args:
      loop: the loop.
      starts: what is known of each variable before the loop.
      ends: what is known of each behind the first iteration.
      trips: iterations, None where only a run can tell.
      given: values of blobs around the loop.

    Returns:
      The length by variable, None where only a run can tell or where it is no list; and the blobs
      of the body that a write makes which may lengthen the list: how long that gets in the end.
    """
    lengthened = _lengthened(loop.body)
    lengths: list[int | None] = []
    grown: dict[str, int] = {}
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        length = start.length
        if length is not None and trips != 0:
            changes = lengthened or end.length != length
            chain = _chain(loop, index) if changes else []
            length = None if chain is None else _behind(loop, chain, length, end, trips, given)
            if chain is not None and length is not None:
                grown |= {op.outputs[0]: length for op in chain if _resizes(op)}
        lengths.append(length)
    return lengths, grown


def _behind(
    loop: Loop,
    chain: list[Op],
    start: int,
    end: Fact,
    trips: int | None,
    given: Mapping[str, Number],
) -> int | None:
    """The length of a list that goes through these ops in every iteration."""
    writes = [op for op in chain if _resizes(op)]
    if not writes:
        if end.length is None or end.length == start:
            return end.length
        return None if trips is None else start + trips * (end.length - start)
    if trips is None or any(op.type != "TensorListSetItem" for op in chain):
        return None
    length = start
    for op in writes:
        written = course(loop, op.inputs[1], given)
        if written is None:
            return None
        first, grows = written
        last = first + (trips - 1) * grows
        if min(first, last) < 0:
            return None
        length = max(length, first + 1, last + 1)
    return length


def reads_lengths(net: Net) -> bool:
    """Whether an op of the Net or of its step nets depends on how long a list is."""
    return any(
        op.type in _READ_LENGTHS
        or (op.type == "ZerosLike" and inner.blobs[op.outputs[0]].dtype == "variant")
        for _, inner in net.walk()
        for op in inner.ops
    )


def _chain(loop: Loop, index: int) -> list[Op] | None:
    """The ops that a list goes through in an iteration; None where one is not understood."""
    body, chain = loop.body, []
    blob = through_identities(body, body.outputs[index])
    while blob != body.inputs[index]:
        op = body.producer.get(blob)
        if op is None:
            return None
        if op.nets:
            if op.type not in LOOPS or any(map(_lengthened, op.nets.values())):
                return None
            position = op.outputs.index(blob)
        elif op.type in _KEEP_OR_STEP and blob == op.outputs[0]:
            position = 0
        else:
            return None
        chain.append(op)
        blob = through_identities(body, op.inputs[position])
    return chain


def _resizes(op: Op) -> bool:
    """Whether the op may make a list as long as a value says."""
    return op.type == "TensorListResize" or bool(op.attributes.get(RESIZES))


def _lengthened(net: Net) -> bool:
    """Whether an op of the Net or of its step nets may make a list as long as a value says."""
    return any(_resizes(op) for _, inner in net.walk() for op in inner.ops)
