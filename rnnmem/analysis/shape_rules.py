"""How the shape of what an op writes follows from what it reads.

The rules stand in :mod:`rnnmem.analysis.rules`, one per op type. A type without a rule keeps the
shape that was traced. Small integers are followed as values, for they are the shapes of others.
"""

from __future__ import annotations

from rnnmem.analysis.facts import MALFORMED, UNKNOWN, Fact, common, merged, possible, results_of
from rnnmem.analysis.rules import RESIZES, SHAPES, scattered

__all__ = [
    "MALFORMED",
    "RESIZES",
    "RULES",
    "UNKNOWN",
    "Fact",
    "common",
    "merged",
    "possible",
    "results_of",
    "scattered",
]

RULES = SHAPES
