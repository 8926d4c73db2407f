"""Branches that read variables and otherwise compute: they may run again, given what was read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from rnnmem.errors import NetError
from rnnmem.ir.graph import Blob, Net, Op
from rnnmem.ir.op_table import BRANCHES, READ, is_pure


@dataclasses.dataclass(frozen=True)
class BranchRead:
    """The first read of a variable in a branch op.

    Attributes:
      handle: the input of the branch op that holds the variable's handle.
      op: the read.
      blob: what it gives.
    """

    handle: str
    op: Op
    blob: Blob


def branch_reads(op: Op) -> dict[str, BranchRead] | None:
    """The variables that a branch op reads, by handle.

    Returns:
      Handle -> read; None where the op is no branch, reads nothing, or does anything else that may
      not be done twice.
    """
    if op.type not in BRANCHES:
        return None
    found: dict[str, BranchRead] = {}
    for net in op.nets.values():
        given = dict(zip(net.inputs, op.inputs[1:], strict=True))
        for one in net.ops:
            if one.type == READ and one.inputs[0] in given:
                handle, blob = given[one.inputs[0]], net.blobs[one.outputs[0]]
                if found.setdefault(handle, BranchRead(handle, one, blob)).blob.dtype != blob.dtype:
                    return None
            elif not is_pure(one) or _holds_a_handle(net, one.inputs):
                return None
        if _holds_a_handle(net, net.outputs):
            return None
    return found or None


def branch_read_of(body: Net, handle: str) -> BranchRead:
    """The first read, in a branch of the step net, of the variable of a handle.

    Raises:
      NetError: there is none.
    """
    for op in body.ops:
        found = branch_reads(op) if handle in op.inputs else None
        if found and handle in found:
            return found[handle]
    raise NetError(f"no branch of {body.name} reads the variable of {handle!r}")


def _holds_a_handle(net: Net, blobs: Iterable[str]) -> bool:
    return any(net.blobs[blob].dtype == "resource" for blob in blobs)
