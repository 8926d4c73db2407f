"""What the loops of a report are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rnnmem.ir.names import UNKNOWN, Names, Origins
from rnnmem.reports.data import Side


def names_of(
    sides: Iterable[Side], functions: Mapping[str, str], origins: Origins = UNKNOWN
) -> Names:
    """The names of the loops of some variants of one function."""
    sides = tuple(sides)
    loops = {loop: None for side in sides for span in side.spans for loop in span.loops}
    parts = (part for side in sides for part in (*side.parts, *(one.part for one in side.areas)))
    return Names(loops, functions, (part.label.rpartition(": ")[2] for part in parts), origins)
