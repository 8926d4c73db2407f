"""Parts that are alike in all but their names, told together: ``4 × Sigmoid float32[32,128]``."""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.ir.graph import kind_text
from rnnmem.reports.data import KINDS, Part, Side

NUMBERED = 5
"""Rows of alike blobs that the picture numbers and lists on each side."""


def rows(parts: Iterable[Part]) -> list[tuple[Part, ...]]:
    """Parts that are alike in all but their names, together; the largest sum first."""
    found: dict[tuple, list[Part]] = {}
    for part in parts:
        found.setdefault(alike(part), []).append(part)
    sums = {key: sum(part.bytes for part in row) for key, row in found.items()}
    return [tuple(found[key]) for key in sorted(found, key=lambda key: -sums[key])]


def largest(parts: Iterable[Part]) -> list[tuple[Part, ...]]:
    """The rows that the picture numbers: of what ops wrote, the largest of some parts."""
    return [row for row in rows(parts) if row[0].op_type][:NUMBERED]


def alike(part: Part) -> tuple:
    """What is equal for parts that are told in one row."""
    blob = part.op_type or part.label
    return part.kind, blob, part.dtype, part.shape, part.loops, part.decision


def title(row: tuple[Part, ...]) -> str:
    """What a row is called: ``4 × Sigmoid float32[32,128]``."""
    part = row[0]
    blob = part.op_type or part.label
    count = f"{len(row)} × " if len(row) > 1 else ""
    return f"{count}{blob} {kind_text(part.dtype, part.shape)}" if part.dtype else count + blob


def lines(row: Iterable[Part]) -> str:
    """The user's lines of a row: ``model.py:85, 116; train.py:9``."""
    files: dict[str, list[str]] = {}
    for source in dict.fromkeys(part.source for part in row if part.source):
        file, _, line = source.rpartition(":")
        files.setdefault(file, []).append(line)
    return "; ".join(
        f"{file}:{', '.join(found)}" if file else ", ".join(found) for file, found in files.items()
    )


def areas(side: Side) -> list[tuple[tuple[Part, ...], list[int]]]:
    """Areas that are alike, together, as they are stacked, the lowest first; and their bytes."""
    found: dict[tuple, tuple[list[Part], list[int]]] = {}
    for area in side.areas:
        parts, sizes = found.setdefault(alike(area.part), ([], [0] * len(side.x)))
        parts.append(area.part)
        sizes[:] = map(int.__add__, sizes, area.bytes)
    kept = [(tuple(parts), sizes) for parts, sizes in found.values() if max(sizes, default=0)]
    order = list(KINDS)
    return sorted(kept, key=lambda one: (order.index(one[0][0].kind), -max(one[1])))
