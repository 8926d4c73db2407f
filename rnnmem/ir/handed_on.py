"""What an op hands on: the results that stand in the buffers of what it reads."""

from __future__ import annotations

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import SAME_BUFFER, types

_EACH = types("view", "each")
"""Types that hand on each of their inputs, as a custom gradient does with all its results."""


def handed_on(op: Op) -> tuple[tuple[str, str], ...]:
    """(what an op reads, the result that stands in its buffer), of all that it hands on."""
    if op.type in _EACH:
        return tuple(zip(op.inputs, op.outputs, strict=True))
    stands = op.type in SAME_BUFFER and op.inputs and op.outputs
    return ((op.inputs[0], op.outputs[0]),) if stands else ()


def buffer_of(net: Net, blob: str) -> str:
    """The blob whose buffer this one surely has: the first of those that are handed on as it."""
    while (op := net.producer.get(blob)) is not None:
        source = next((read for read, written in handed_on(op) if written == blob), None)
        if source is None:
            break
        blob = source
    return blob
