"""What the attributes and shapes of an op tell of what it holds."""

from __future__ import annotations

from rnnmem.analysis.variable_effects import names_a_function
from rnnmem.ir.graph import FunctionRef, Op, static


def names_functions(op: Op) -> bool:
    """Whether an attribute names a function that is not looked into."""
    for name, value in op.attributes.items():
        if isinstance(value, (tuple, FunctionRef)) and name[0] != "_" and names_a_function(value):
            return True
    return False


def moves_only_ones(shape, order: tuple[int | None, ...]) -> bool:
    """Whether a transposition leaves the elements where they are."""
    axes = static(order)
    if axes is None or shape is None:
        return False
    wide = [axis for axis in axes if shape[axis] != 1]
    return wide == sorted(wide)
