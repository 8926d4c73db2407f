"""Memory that a loop over chunks fills with rows, and what hides a chunk's rows in its body."""

from __future__ import annotations

from rnnmem.analysis.row_rules import ROW, Rows, Value
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import UNWRAP, WRAP


def is_read_alone(net: Net, op: Op, blob: str) -> bool:
    """Whether an op is all that reads a blob, and reads it once."""
    readers = net.readers.get(blob, ())
    return [one.name for one in readers] == [op.name] and net.fan_out(blob) == 1


def fills(value: Value, rows: int | None, shape: object) -> bool:
    """Whether a part's rows, all of them together, have the shape of memory.

    Args:
      value: the part.
      rows: how many rows there are in all.
      shape: of the memory; no numbers where it is not known.
    """
    if not isinstance(value, Rows) or rows is None or value.shape[0] != ROW:
        return False
    sizes = [dim.number for dim in value.shape[1:]]
    return None not in sizes and shape == (rows, *sizes)


def hidden_by(body: Net, op: Op) -> str:
    """What an op of an optimization barrier reads, or hands on; empty where it is none."""
    if len(op.inputs) != 1 or len(op.outputs) != 1:
        return ""
    if op.type == WRAP:
        return op.inputs[0]
    held = body.producer.get(op.inputs[0]) if op.type == UNWRAP else None
    return op.inputs[0] if held is not None and hidden_by(body, held) else ""
