"""Bytes that keeping a blob takes: of a list what its elements do, of an optional what is in it.

A gradient is handed what loops and branches inside an iteration kept, as lists and optionals:

    While, 8 iterations: acc ─► PushBack(acc, h) ─► acc     8 x bytes of h
    If: OptionalFromValue(h) or OptionalNone                bytes of h, of the larger branch
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rnnmem.analysis.loops import Loop
from rnnmem.analysis.machine import rounded
from rnnmem.analysis.times import trips_of
from rnnmem.analysis.trip_count import number_of
from rnnmem.ir.graph import Blob, DType, Net, Op, bytes_of
from rnnmem.ir.op_table import (
    ASKS_SHAPE,
    BRANCHES,
    CUT,
    LOOPS,
    PUSH,
    READ,
    RESERVE,
    SET,
    UNKNOWN_DIMENSION,
    WRAP,
)
from rnnmem.ir.order import through_identities

Given = Callable[[str], int | None]
"""Argument of a step net -> the bytes of what it is given from outside; None: its own."""


def stored_bytes(blob: Blob, unknown_dimension: int = UNKNOWN_DIMENSION) -> int:
    """Bytes that keeping a blob takes, rounded as the allocator does; unknown sizes are guessed."""
    size = blob.bytes
    if size is None:
        shape = blob.shape if blob.shape is not None else (None, None)
        size = 4 * math.prod(unknown_dimension if one is None else one for one in shape)
    return rounded(max(1, size))


def held_bytes(net: Net, blob: str, given: Given = lambda blob: None) -> int:
    """Bytes that keeping a blob takes; a variable's own buffer lives anyway.

    The shape of a blob is never worth making a whole blob of it again.

    Args:
      net: a step net.
      blob: one of its blobs.
      given: what its arguments take.
    """
    producer = net.producer.get(blob)
    if producer is not None and producer.type == READ:
        return 1
    if producer is not None and producer.type in ASKS_SHAPE:
        return 0
    if net.blobs[blob].dtype != "variant":
        return stored_bytes(net.blobs[blob])
    blob = through_identities(net, blob)
    known = given(blob)
    if known is not None:
        return known
    producer = net.producer.get(blob)
    found = 0 if producer is None else _of_variant(net, producer, blob, given)
    return max(found, stored_bytes(net.blobs[blob], 1))


def _of_variant(net: Net, op: Op, blob: str, given: Given) -> int:
    """Bytes of what a list or an optional holds."""
    if op.type in LOOPS:
        return _of_loop(Loop(net, op), op.outputs.index(blob), given)
    if op.type in BRANCHES:
        place = op.outputs.index(blob)
        return max(
            _inside(net, op.inputs[1:], one, given)(one.outputs[place]) for one in op.nets.values()
        )
    if op.type == WRAP:
        return sum(_given_or_held(net, one, given) for one in op.inputs)
    if op.type in (PUSH, SET):
        held, element = op.inputs[0], op.inputs[-1]
        return held_bytes(net, held, given) + _given_or_held(net, element, given)
    if op.type == CUT:
        return _given_or_held(net, op.inputs[0], given)
    if op.type == RESERVE:
        return _reserved(net, op)
    return 0


def _of_loop(loop: Loop, place: int, given: Given) -> int:
    """Bytes of what a loop hands out in a place: of an accumulator, each iteration's element."""
    push = loop.pushes.get(place)
    if push is None:
        return held_bytes(loop.net, loop.op.inputs[place], given)
    element = through_identities(loop.body, push.inputs[1])
    inside = _inside(loop.net, loop.op.inputs, loop.body, given)
    # What is the same in every iteration is one buffer.
    return inside(element) * (1 if element in loop.invariants else trips_of(loop))


def _inside(net: Net, inputs: tuple[str, ...], inner: Net, given: Given) -> Callable[[str], int]:
    """Blob of a step net -> its bytes; an argument's are those of what the Net around gives it."""
    outside = dict(zip(inner.inputs, inputs, strict=True))

    def of_argument(blob: str) -> int | None:
        return _given_or_held(net, outside[blob], given) if blob in outside else None

    return lambda blob: _given_or_held(inner, blob, of_argument)


def _given_or_held(net: Net, blob: str, given: Given) -> int:
    source = through_identities(net, blob)
    known = given(source)
    return held_bytes(net, blob, given) if known is None else known


def _reserved(net: Net, op: Op) -> int:
    """Bytes of a list that has all its elements from the start, once they are written."""
    shape, count = (number_of(net, blob) for blob in op.inputs[:2])
    dtype = op.attributes.get("element_dtype")
    if not isinstance(shape, tuple) or not isinstance(count, int) or -1 in shape:
        return 0
    size = bytes_of(dtype.name, shape) if isinstance(dtype, DType) else None
    return count * rounded(size) if size else 0
