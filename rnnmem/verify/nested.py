"""Step nets that were rewritten as steps by themselves: a training loop's body, a branch.

Such a step net computes the same as the original one from any inputs, with the same effects in the
same order. That is proven of it alone, and the original one put back; then the rest is verified.

    while ─► body'   =>   body' is body, proven alone   =>   while ─► body

A read that was added in it may see another state than the read that it stands for only if somebody
writes the variable meanwhile. So the step net knows a variable by the input that holds its handle
only if no other input may hold the same, if each op around that may write the variable runs before
or after all of it, and if no iteration begins before the writes of the one before are done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.marks import IN_PLACE
from rnnmem.ir.op_table import BRANCHES, LOOPS
from rnnmem.verify.order import RunningOrder
from rnnmem.verify.variable_reads import UNKNOWN, Reads

Handles = Mapping[str, int]
"""Input of a Net -> the variable whose handle it holds."""
Verify = Callable[[Net, Net, Handles], None]
"""Proves of two Nets, the second a rewrite of the first, that they compute the same."""


def handles_of(net: Net) -> Handles:
    """The variables of an outermost Net: each input that is a handle is one of its own."""
    return {
        blob: place for place, blob in enumerate(net.inputs) if net.blobs[blob].dtype == "resource"
    }


def without_nested(original: Net, rewritten: Net, handles: Handles, verify: Verify) -> Net:
    """The rewritten Net with the original step nets where others were proven to be the same.

    Args:
      original: the Net as it was.
      rewritten: what a rewrite made of it.
      handles: the variables of the inputs of ``original``.
      verify: proves one step net.

    Raises:
      CheckError: one is not the same, or cannot be shown to be.
    """
    if not any(IN_PLACE in op.attributes for _, net in rewritten.walk() for op in net.ops):
        return rewritten
    order = RunningOrder()
    reads = Reads(original, order, handles)
    ops = []
    for op in rewritten.ops:
        was = original.op_by_name.get(op.name)
        if was is None or was.type != op.type or set(was.nets) != set(op.nets):
            ops.append(op)
            continue
        nets = {}
        for label, inner in op.nets.items():
            before = was.nets[label]
            if inner is before:
                nets[label] = before
                continue
            inside = _handles_inside(reads, order, was, label)
            if IN_PLACE in op.attributes:
                verify(before, inner, inside)
                nets[label] = before
            else:
                nets[label] = without_nested(before, inner, inside, verify)
        ops.append(op.replace(nets=nets) if nets else op)
    return rewritten.replace(ops=tuple(ops))


def _handles_inside(reads: Reads, order: RunningOrder, op: Op, label: str) -> Handles:
    """The variables that a step net knows by its inputs."""
    inner = op.nets[label]
    if op.type not in (*LOOPS, *BRANCHES) or label == "cond":
        return {}
    held = reads.given_to(op)
    found = {
        blob: variable
        for blob, variable in zip(inner.inputs, held, strict=True)
        if inner.blobs[blob].dtype == "resource"
    }
    if UNKNOWN in found.values() or len(set(found.values())) < len(found):
        return {}
    inside = Reads(inner, order, found)
    return {
        blob: variable
        for blob, variable in found.items()
        if reads.others_in_turn(op.name, variable)
        and (op.type not in LOOPS or _done_before_next(op, inside, variable))
    }


def _done_before_next(loop: Op, body: Reads, variable: int) -> bool:
    """Whether each iteration that begins has the writes of the ones before behind it."""
    writers = body.writers(variable)
    if not writers:
        return True
    cond, step = loop.nets["cond"], loop.nets["body"]
    decisive, pending = set(), [cond.outputs[0]]
    while pending:
        blob = pending.pop()
        decisive.add(blob)
        if blob in cond.producer:
            pending.extend(cond.producer[blob].inputs)
    for argument, result in zip(cond.inputs, step.outputs, strict=True):
        if argument in decisive and result in step.producer:
            last = step.producer[result].name
            if writers <= body.needed(last) | {last}:
                return True
    return False
