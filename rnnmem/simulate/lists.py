"""How long the lists of a program get, what an element takes, and what kept states are."""

from __future__ import annotations

import math

from rnnmem.analysis.machine import rounded
from rnnmem.analysis.shape_rules import RESIZES, scattered
from rnnmem.analysis.shapes import KnownNet
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net, Op, static
from rnnmem.ir.marks import SLOTS
from rnnmem.ir.order import maker
from rnnmem.simulate.buffers import Origin
from rnnmem.simulate.steps import Kind, Step


def fill_in(step: Step, known: KnownNet, constant: set[str], unknown: dict[str, None]) -> None:
    """Notes how long a list gets and what an element of it takes.

    Args:
      step: that makes the list, copies into it or lengthens it; changed in place.
      known: the Net around it with its shapes.
      constant: blobs that are computed before any run.
      unknown: takes the name of the list where its size stays unknown.
    """
    op, fact = step.op, known.facts[step.op.outputs[0]]
    step.length = fact.length
    if step.kind is Kind.EMPTY:
        step.length = fact.length if op.type == "TensorListReserve" else None
        return
    if step.kind is Kind.SET:
        step.length = _lengthened(op, known, unknown) if op.attributes.get(RESIZES) else None
        return
    copies = step.kind is Kind.COPY
    if copies and op.inputs[0] in constant and op.name not in known.net.controlled:
        return  # it is computed beforehand, unless some op waits for it
    if copies and step.length is None:
        unknown[op.outputs[0]] = None
        return
    if step.kind is Kind.SCATTER:
        step.length = (known.facts[scattered(op)].shape or (None,))[0]
        if step.length is None:
            unknown[op.outputs[0]] = None
            return
    dtype = op.attributes.get("element_dtype")
    size = BYTES_PER_ELEMENT.get(getattr(dtype, "name", ""), 4)
    shape = static(fact.element.shape) if fact.element else None
    if shape is None:
        unknown[op.outputs[0]] = None
        return
    step.element = rounded(size * math.prod(shape))


def _lengthened(op: Op, known: KnownNet, unknown: dict[str, None]) -> int | None:
    """How many elements a list has in the end that a write may lengthen."""
    blob = op.outputs[0]
    length = known.grown.get(blob, known.facts[blob].length)
    length = op.attributes.get(SLOTS) if length is None else length
    if length is None:
        unknown[blob] = None
    return length


def kept_states(op: Op, net: Net, loops: tuple[str, ...]) -> tuple[Origin, ...]:
    """What the lists hold that the branch keeps states in: it reads as many blobs last."""
    then = op.nets["then_branch"]
    lists = sum(then.blobs[blob].dtype == "variant" for blob in then.outputs)
    return tuple(_state(blob, net, loops) for blob in op.inputs[len(op.inputs) - lists :])


def _state(blob: str, net: Net, loops: tuple[str, ...]) -> Origin:
    """The argument of a step net as what is kept of it; the op is what makes the next one."""
    kind = net.blobs[blob]
    made = maker(net, blob)
    name, source = ("", "") if made is None else (made.name, made.source)
    return Origin(name, blob, source, loops, blob, False, kind.dtype, kind.shape, loops)
