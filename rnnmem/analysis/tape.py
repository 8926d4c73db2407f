"""Ops of a gradient, told by the scopes in which TensorFlow puts what a tape asks for."""

from __future__ import annotations

from rnnmem.ir.graph import Blob, Net, Op
from rnnmem.ir.op_table import ADDS, ASKS_SHAPE, READ, VIEWS, effect, facts
from rnnmem.ir.order import all_waiting_for, topological

FLOATS = frozenset({"float", "bfloat", "half", "complex"})
"""Beginnings of the names of dtypes in which gradients are."""
TAPE = frozenset({"gradient_tape", "gradients"})
"""The scopes in which TensorFlow's tape and ``tf.gradients`` put their ops."""
_HANDED_ON = VIEWS | ADDS
"""Types whose result is a gradient where all that they read are gradients."""


def constant_ops(net: Net) -> frozenset[str]:
    """Names of the ops that compute from nothing but constants."""
    return net.once(_constant_ops)


def _constant_ops(net: Net) -> frozenset[str]:
    found: set[str] = set()
    blobs: set[str] = set()
    for op in topological(net.ops):
        known = facts(op) is not None and bool(op.inputs) and blobs.issuperset(op.inputs)
        if op.type == "Const" or known:
            found.add(op.name)
            blobs.update(op.outputs)
    return frozenset(found)


def given_ops(net: Net) -> frozenset[str]:
    """Names of the ops that compute from constants, and whole numbers from shapes, alone."""
    return net.once(_given_ops)


def _given_ops(net: Net) -> frozenset[str]:
    found: set[str] = set(constant_ops(net))
    blobs = {blob for name in found for blob in net.op_by_name[name].outputs}
    for op in topological(net.ops):
        known = facts(op) is not None and bool(op.inputs) and blobs.issuperset(op.inputs)
        whole = not any(is_float(net.blobs[blob]) for blob in op.outputs)
        if whole and (known or op.type in ASKS_SHAPE):
            found.add(op.name)
            blobs.update(op.outputs)
    return frozenset(found)


def is_of_tape(net: Net, op: Op) -> bool:
    """Whether a tape made the op for a gradient; lists and constants may stand anywhere."""
    if not has_scope(op) or op.name in constant_ops(net):
        return False
    return any(is_float(net.blobs[blob]) for blob in op.outputs)


def has_scope(op: Op) -> bool:
    """Whether the op stands in a scope of a tape."""
    return not TAPE.isdisjoint(op.name.split("/"))


def takes_gradient(net: Net) -> bool:
    """Whether the Net computes numbers and their gradient, which reads what they were made by."""
    return net.once(_takes_gradient)


def _takes_gradient(net: Net) -> bool:
    forward = {
        blob
        for op in net.ops
        if op.type != READ and op.name not in constant_ops(net) and not is_of_tape(net, op)
        for blob in op.outputs
        if is_float(net.blobs[blob])
    }
    return any(is_of_tape(net, op) and not forward.isdisjoint(op.inputs) for op in net.ops)


def ends_with_gradient(net: Net) -> bool:
    """Whether the Net returns a gradient that it takes, or changes variables by it."""
    return net.once(_ends_with_gradient)


def _ends_with_gradient(net: Net) -> bool:
    if not takes_gradient(net):
        return False
    of_tape = [op.name for op in net.ops if is_of_tape(net, op)]
    gradients = set(of_tape)
    for op in topological(net.ops):
        sources = [net.producer[blob].name for blob in op.inputs if blob in net.producer]
        if op.type in _HANDED_ON and sources and gradients.issuperset(sources):
            gradients.add(op.name)
    returned = (net.producer[blob].name for blob in net.outputs if blob in net.producer)
    return not gradients.isdisjoint(returned) or any(
        effect(net.op_by_name[name].type) == "variable" for name in all_waiting_for(net, of_tape)
    )


def is_float(blob: Blob) -> bool:
    """Whether gradients may be of the blob's dtype."""
    return blob.dtype.rstrip("0123456789") in FLOATS
