"""What the loops that a plan tells of are called."""

from __future__ import annotations

from rnnmem.ir.names import Names
from rnnmem.planning.plan import Plan


def names_in(plan: Plan) -> Names:
    """The names of the loops that a plan tells of."""
    loops = list(plan.every_loop())
    functions = {one.path[-1]: one.function for one in loops if one.function}
    return Names(dict.fromkeys(loop for one in loops for loop in one.path), functions)
