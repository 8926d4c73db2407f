"""Branches and loops that read variables and otherwise compute: they may run again, given values.

What stands inside may read a variable at any depth, by a handle that is handed down unchanged:

    If(handle) { While(handle) { read ─► MatMul } }   =>   If(value) { While(value) { MatMul } }

So may its rows be looked up, where it is read whole inside, too.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping

from rnnmem.ir.graph import Blob, Net, Op
from rnnmem.ir.op_table import BRANCHES, LOOKUP, LOOPS, READ, is_prunable, is_pure
from rnnmem.ir.order import topological


@dataclasses.dataclass(frozen=True)
class ReadInside:
    """The first read of a variable in an op that runs Nets.

    Attributes:
      handle: the input of the op that holds the variable's handle.
      op: the read.
      blob: what it gives.
    """

    handle: str
    op: Op
    blob: Blob


def reads_inside(op: Op) -> dict[str, ReadInside] | None:
    """The variables that a branch or loop reads, at any depth, by handle.

    Returns:
      Handle -> read; None where the op runs no Nets, reads nothing, or does anything else that may
      not be done twice.
    """
    found: dict[str, ReadInside] = {}
    looked_up: set[str] = set()
    understood = _find_reads(op, {blob: blob for blob in op.inputs}, found, looked_up)
    return found if understood and found and looked_up <= found.keys() else None


def _find_reads(
    op: Op, handles: Mapping[str, str], found: dict[str, ReadInside], looked_up: set[str]
) -> bool:
    """Adds the reads inside an op; tells whether it does nothing else but compute.

    Args:
      op: any op.
      handles: blob of the Net around the op -> the handle outside that it would be.
      found: the reads by handle.
      looked_up: the handles of variables of which rows are looked up.
    """
    if op.type not in (*BRANCHES, *LOOPS):
        return False
    for net in op.nets.values():
        given = {
            inside: handles[blob]
            for inside, blob in zip(net.inputs, given_inside(op), strict=True)
            if blob in handles
        }
        for one in net.ops:
            if one.type == READ and one.inputs[0] in given:
                handle, blob = given[one.inputs[0]], net.blobs[one.outputs[0]]
                first = found.setdefault(handle, ReadInside(handle, one, blob))
                if first.blob.dtype != blob.dtype:
                    return False
            elif is_lookup(one) and one.inputs[0] in given:
                looked_up.add(given[one.inputs[0]])
            elif is_pure(one) and not _holds_a_handle(net, one.inputs):
                continue
            elif not _find_reads(one, given, found, looked_up):
                return False
    return _hands_on(op)


def is_lookup(op: Op) -> bool:
    """Whether the op looks up rows of a variable along its first axis."""
    return op.type == LOOKUP and not op.attributes.get("batch_dims")


def given_inside(op: Op) -> tuple[str, ...]:
    """What the Nets of a branch or loop are given."""
    return op.inputs[1:] if op.type in BRANCHES else op.inputs


def _hands_on(op: Op) -> bool:
    """Whether each handle that the op gives back is the one that it was given in that place."""
    nets = [op.nets["body"]] if op.type in LOOPS else list(op.nets.values())
    return all(
        op.type in LOOPS and blob == net.inputs[place]
        for net in nets
        for place, blob in enumerate(net.outputs)
        if net.blobs[blob].dtype == "resource"
    )


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
