"""What the results of an op are, a rule per op type and domain; one file for each family of ops.

A rule says what it can tell, and nothing that a run could prove wrong: rewrites rest on it. There
are two domains, each with its registry: facts (`rnnmem.analysis.facts`), and parts of the rows
(`rnnmem.analysis.row_values`). Importing this enters all rules.
"""

from rnnmem.analysis.facts import SHAPES
from rnnmem.analysis.row_values import ROWS
from rnnmem.analysis.rules import elementwise, indexing, layout, lists, reductions, windows
from rnnmem.analysis.rules.lists import RESIZES, scattered

__all__ = [
    "RESIZES",
    "ROWS",
    "SHAPES",
    "elementwise",
    "indexing",
    "layout",
    "lists",
    "reductions",
    "scattered",
    "windows",
]
