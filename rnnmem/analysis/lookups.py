"""Lookups of rows in a loop's step net: they may run again, given the whole table.

    loop { ResourceGather(handle, ids) }   =>   table = Read(handle);  loop { Gather(table, ids) }

As rows of the variable are accessed, the read is a copy (`rnnmem.analysis.copied_reads`).
"""

from __future__ import annotations

from rnnmem.analysis.branches import ReadInside, is_lookup, reads_inside
from rnnmem.analysis.loops import Loop
from rnnmem.analysis.machine import ROWS_FOR_TABLE
from rnnmem.analysis.trip_count import trip_count
from rnnmem.analysis.variable_effects import handle_of
from rnnmem.errors import NetError
from rnnmem.ir.graph import VARIABLE_SHAPES, Blob, DType, Op
from rnnmem.ir.op_table import READ
from rnnmem.ir.order import through_identities


def reads_in_step(forward: Loop, op: Op) -> dict[str, ReadInside] | None:
    """The variables that an op of a loop's step net reads, where it may run again given them.

    Args:
      forward: the loop.
      op: of its step net.

    Returns:
      Handle -> read; None where it is no branch, loop or lookup, or may not run again.
    """
    if op.nets:
        return reads_inside(op)
    table = table_of(forward, op)
    return None if table is None else {table.handle: table}


def read_in_step(forward: Loop, handle: str) -> ReadInside:
    """The first read of the variable of a handle by an op that may run again given it.

    Raises:
      NetError: there is none.
    """
    for op in forward.body.ops:
        found = reads_in_step(forward, op) if handle in op.inputs else None
        if found and handle in found:
            return found[handle]
    raise NetError(
        f"no op of {forward.body.name} reads the variable of {handle!r} and may run again"
    )


def may_take_its_table(forward: Loop, op: Op) -> bool:
    """Whether the op looks up rows that are worth a copy of the variable."""
    table = table_of(forward, op)
    if table is None:
        return False
    rows, trips = forward.body.blobs[op.outputs[0]].bytes, trip_count(forward)
    if table.blob.bytes is None or rows is None or trips is None:
        return False
    return are_worth_a_copy(trips * rows, table.blob.bytes)


def are_worth_a_copy(rows: int, table: int) -> bool:
    """Whether rows that are looked up take several times the bytes of the whole variable."""
    return rows >= ROWS_FOR_TABLE * table


def table_of(forward: Loop, op: Op) -> ReadInside | None:
    """The read of the whole variable whose rows the op looks up; None: its shape is not known."""
    if not is_lookup(op):
        return None
    handle = op.inputs[0]
    place = forward.invariants.get(through_identities(forward.body, handle))
    if place is None:
        return None
    around = handle_of(forward.net, forward.op.inputs[place])
    shape = forward.net.attributes.get(VARIABLE_SHAPES, {}).get(around)
    if shape is None:
        return None
    dtype = forward.body.blobs[op.outputs[0]].dtype
    read = op.replace(type=READ, inputs=(handle,), attributes={"dtype": DType(dtype)})
    return ReadInside(handle, read, Blob(handle, dtype, shape))
