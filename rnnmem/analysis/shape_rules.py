"""How the shape of what an op writes follows from what it reads.

The rules stand in :mod:`rnnmem.analysis.rules`, one per op type. A type without a rule keeps the
shape that was traced. Small integers are followed as values, for they are the shapes of others.
"""

from __future__ import annotations

from collections.abc import Sequence

from rnnmem.analysis.facts import UNKNOWN, Fact, common, merged, possible
from rnnmem.analysis.rules import RESIZES, SHAPES, scattered
from rnnmem.ir.graph import Op, Shape

__all__ = ["RESIZES", "RULES", "UNKNOWN", "Fact", "common", "merged", "possible", "scattered"]

RULES = SHAPES

MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a rule raises where inputs or attributes fit neither the op nor each other."""


def results_of(op: Op, ins: Sequence[Fact]) -> list[Fact]:
    """What is known of each result of an op; of what no rule understands, nothing.

    Args:
      op: the op.
      ins: what is known of its inputs, which a mistaken trace or caller may have got wrong.
    """
    rule, count = RULES.get(op.type), len(op.outputs)
    try:
        found = list(rule(op, list(ins))) if rule else []
    except MALFORMED:
        found = []
    found = [UNKNOWN if _is_negative(one.shape) else one for one in found[:count]]
    return [*found, *[UNKNOWN] * (count - len(found))]


def _is_negative(shape: Shape) -> bool:
    return bool(shape) and any(size is not None and size < 0 for size in shape)
