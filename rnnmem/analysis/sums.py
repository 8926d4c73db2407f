"""Sums that add nothing up: over no axis, or over axes of size 1."""

from __future__ import annotations

from rnnmem.analysis.facts import Fact, vector
from rnnmem.analysis.shapes import KnownNet


def sums_of_nothing(known: KnownNet) -> frozenset[str]:
    """Names of Sum ops outside of step nets that hand on what they read.

    TensorFlow's reduction takes out axes of size 1, and copies where no other is left. Its graph
    optimizer drops such a sum where it knows the sizes, which depends on what else reads them.
    """
    nothing = Fact()
    return frozenset(
        op.name
        for op in known.net.ops
        if op.type == "Sum" and _is_of_nothing(*(known.facts.get(b, nothing) for b in op.inputs))
    )


def _is_of_nothing(read: Fact, over: Fact) -> bool:
    axes, shape = vector(over), read.shape
    if axes is None or shape is None:
        return False
    rank = len(shape)
    return all(
        axis is not None and -rank <= axis < rank and shape[axis] == 1  # a size may be unknown
        for axis in axes
    )
