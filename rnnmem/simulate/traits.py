"""What the attributes and shapes of an op tell of what it holds."""

from __future__ import annotations

from rnnmem.analysis.variable_effects import names_a_function
from rnnmem.ir.graph import FunctionRef, Op


def names_functions(op: Op) -> bool:
    """Whether an attribute names a function that is not looked into."""
    for name, value in op.attributes.items():
        if isinstance(value, (tuple, FunctionRef)) and name[0] != "_" and names_a_function(value):
            return True
    return False
