"""Branches that read variables and otherwise compute: they may run again, given what was read."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable

from rnnmem.errors import NetError
from rnnmem.ir.graph import Blob, Net, Op
from rnnmem.ir.op_table import BRANCHES, LOOPS, READ, is_prunable, is_pure
from rnnmem.ir.order import topological


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


def reads_of(net: Net, outputs: Iterable[str] | None = None) -> Counter[str]:
    """How often each blob is read by what a run needs, as TensorFlow prunes, inside ops too.

    Args:
      net: a Net.
      outputs: of its outputs those that are read; None: all.
    """
    found = Counter(net.outputs if outputs is None else outputs)
    awaited = set(net.control_outputs)
    for op in reversed(net.of_ops(topological)):
        unread = not any(found[blob] for blob in op.outputs)
        if unread and op.name not in awaited and is_prunable(op):
            continue
        awaited.update(op.controls)
        if op.type in BRANCHES:
            inside = [(1, inner, reads_of(inner)) for inner in op.nets.values()]
            found.update(op.inputs[place] for place in {0, *_places(inside)})
        elif op.type in LOOPS:
            found.update(op.inputs[place] for place in _variables_read(op, found))
        else:
            found.update(op.inputs)
    return found


def _variables_read(loop: Op, found: Counter[str]) -> set[int]:
    """The variables of a loop, by place, of which a run needs more than to hand them on."""
    body, cond = loop.nets["body"], loop.nets["cond"]
    places = {place for place, blob in enumerate(loop.outputs) if found[blob]}
    places |= _places([(0, cond, reads_of(cond))])
    while True:
        inside = reads_of(body, [body.outputs[place] for place in places])
        more = _places([(0, body, inside)])
        if more <= places:
            return places
        places |= more


def _places(found: Iterable[tuple[int, Net, Counter[str]]]) -> set[int]:
    """Which inputs of Nets are read, counted from a first one."""
    return {
        first + place
        for first, net, reads in found
        for place, blob in enumerate(net.inputs)
        if reads[blob]
    }


def _holds_a_handle(net: Net, blobs: Iterable[str]) -> bool:
    return any(net.blobs[blob].dtype == "resource" for blob in blobs)
