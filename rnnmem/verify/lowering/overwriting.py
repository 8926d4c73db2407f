"""Whose a buffer is that a loop over chunks writes its rows into.

Nobody else has it: it is made by ops that are like no others, each read by the next one alone. And
who reads a row is done when it is written over.
"""

from __future__ import annotations

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.marks import OWNED
from rnnmem.ir.op_table import (
    ASKS_SHAPE,
    LOOPS,
    MATRIX_PRODUCTS,
    MEMORY,
    PUTS,
    SAME_NUMBERS,
    UNWRAP,
    WRAP,
    types,
)
from rnnmem.ir.overwriting import awaited_by_write, may_be_made_in, readers_of_buffer

_CUTS = types("slices") - types("apart")
_FINISHES = types("finishes")
_SUMS_PRODUCTS = types("sums_products")


def is_owned(net: Net, blob: str) -> bool:
    """Whether a blob has a buffer of its own, made by ops that TensorFlow merges with none."""
    op = net.producer.get(blob)
    if op is not None and op.type in (WRAP, UNWRAP):
        (given,) = op.inputs
        alone = given not in net.outputs and _is_read_by(net, op, given)
        return alone and is_owned(net, given)
    if op is None or op.attributes.get(OWNED) != op.name.encode():
        return False
    if (
        op.type == MEMORY
        or op.type in MATRIX_PRODUCTS
        or (op.type in _SUMS_PRODUCTS and len(op.inputs) == 2)
    ):
        return True
    if op.type not in SAME_NUMBERS | _FINISHES | _CUTS:
        return False
    large = [one for one in op.inputs if _may_be_as_large(net, one, op)]
    alone = len(large) == 1 and large[0] not in net.outputs
    return alone and _is_read_by(net, op, large[0]) and is_owned(net, large[0])


def _may_be_as_large(net: Net, blob: str, op: Op) -> bool:
    if op.type in SAME_NUMBERS:
        return blob == op.inputs[0]
    return may_be_made_in(net, op, blob)


def _is_read_by(net: Net, op: Op, blob: str) -> bool:
    readers = net.readers.get(blob, ())
    asking = [one for one in readers if one.type in ASKS_SHAPE]
    return len(readers) == len(asking) + 1 and op.inputs.count(blob) == 1


def is_read_before(net: Net, loop: Op, blob: str) -> bool:
    """Whether all others that read the blob are loops which this one waits for."""
    readers = net.readers.get(blob, ())
    others = [op for op in readers if op.name != loop.name and op.type not in ASKS_SHAPE]
    return (
        blob not in net.outputs
        and loop.inputs.count(blob) == 1
        and all(op.name in loop.controls and op.type in (*LOOPS, "NoOp") for op in others)
    )


def is_last_use(body: Net, write: Op) -> bool:
    """Whether nobody reads, or has kept, the rows that an op of a loop's body writes over."""
    buffer, _, blob = write.inputs
    readers = body.readers.get(buffer, ())
    return (
        all(op is write or op.type == "Slice" for op in readers)
        and readers.count(write) == 1 == body.fan_out(write.outputs[0])
        and awaited_by_write(body, buffer, blob) <= set(write.controls)
        and not any(op.type in PUTS for op in readers_of_buffer(body, buffer))
    )


def before_barrier(net: Net, blob: str) -> str:
    """The blob that a barrier hands on as this one; itself where there is none."""
    op = net.producer.get(blob)
    if op is None or op.type != UNWRAP:
        return blob
    held = net.producer.get(op.inputs[0])
    return blob if held is None or held.type != WRAP else held.inputs[0]
