"""Variables of which each whole read is a copy.

Once an op has read or written rows of a variable, TensorFlow keeps it ready to be changed in place,
and nobody else may hold it: whoever reads it whole is given a copy, as long as the variable lives
(``EnsureSparseVariableAccess`` in ``training_op_helpers.h``, ``ReadVariableOp``).
"""

from __future__ import annotations

from rnnmem.analysis.branches import given_inside
from rnnmem.analysis.variable_effects import handle_of
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import accesses_rows


def copied_when_read(net: Net) -> frozenset[str]:
    """Inputs of the Net that hold handles of variables whose rows it accesses, at any depth."""
    found: set[str] = set()
    for op in net.ops:
        if op.nets:
            for inner in op.nets.values():
                inside = inner.once(copied_when_read)
                given = zip(inner.inputs, given_inside(op), strict=True)
                found |= {handle_of(net, around) for blob, around in given if blob in inside}
        elif accesses_rows(op):
            found |= {handle_of(net, blob) for blob in op.inputs if _is_handle(net, blob)}
    return frozenset(found.intersection(net.inputs))


def copied_inside(net: Net, op: Op, inner: Net, copied: frozenset[str]) -> frozenset[str]:
    """Which inputs of an op's step net hold such handles, where those are known around the op.

    Args:
      net: the Net around the op.
      op: runs the step net.
      inner: the step net.
      copied: handles of variables in ``net`` of which each whole read is a copy.
    """
    if not copied:
        return copied
    return frozenset(
        blob
        for blob, around in zip(inner.inputs, given_inside(op), strict=True)
        if _is_handle(net, around) and handle_of(net, around) in copied
    )


def _is_handle(net: Net, blob: str) -> bool:
    return net.blobs[blob].dtype == "resource"
