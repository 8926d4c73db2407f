"""Sums that add nothing up: over no axis, or over axes of size 1."""

from __future__ import annotations

from rnnmem.analysis.facts import Fact, vector
from rnnmem.analysis.shapes import KnownNet
from rnnmem.analysis.symbolic_sizes import SymbolicSizes, by_axis
from rnnmem.ir.graph import Net


def sums_of_nothing(known: KnownNet) -> frozenset[str]:
    """Names of Sum ops outside of step nets that hand on what they read.

    TensorFlow's reduction takes out axes of size 1, and copies where no other is left. Its graph
    optimizer drops such a sum where it knows the sizes, which depends on what else reads them.
    """
    sizes, nothing = known.once(SymbolicSizes), Fact()
    return frozenset(
        op.name
        for op in known.net.ops
        if op.type == "Sum"
        and (
            _is_of_nothing(*(known.facts.get(b, nothing) for b in op.inputs))
            or _is_over_what_was_not_broadcast(known.net, sizes, op.inputs[1])
        )
    )


def _is_over_what_was_not_broadcast(net: Net, sizes: SymbolicSizes, axes: str) -> bool:
    """Whether the axes are those along which a shape is broadcast to another, which are none."""
    op = net.producer.get(axes)
    if op is None or op.type != "BroadcastGradientArgs":
        return False
    slot = op.outputs.index(axes)
    mine, other = sizes.told(op.inputs[slot]), sizes.told(op.inputs[1 - slot])
    if mine is None or other is None:
        return False
    sizes_of_both = by_axis(mine, other)
    return all(size is not None and beside in (size, 1) for size, beside in sizes_of_both)


def _is_of_nothing(read: Fact, over: Fact) -> bool:
    axes, shape = vector(over), read.shape
    if axes is None or shape is None:
        return False
    rank = len(shape)
    return all(
        axis is not None and -rank <= axis < rank and shape[axis] == 1  # a size may be unknown
        for axis in axes
    )
