"""The report as text that fits the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from rnnmem.ir.names import Names
from rnnmem.planning.telling import changes
from rnnmem.reports.data import KINDS, RESIDENT, Part, Side
from rnnmem.reports.names import names_of
from rnnmem.reports.rows import lines, rows, title
from rnnmem.sizes import format_bytes
from rnnmem.tables import WIDTH, plain_text, table_of, terminal_width

if TYPE_CHECKING:
    from rnnmem.reports.report import Report

_ELSEWHERE = 80
"""Columns where text goes elsewhere than to a terminal."""
_ROWS = 10
"""Rows of parts that are alike, for each side."""
_NUMBER = 11
"""Columns of a number of bytes."""
_LINE = re.compile(r":\d+$")
_PLACES = 2
"""Layers that stand in the place of a row's line, at most."""
_AT_PEAK = "at the peak"
_HEIGHT = 8
_BESIDE_CURVE = 14
"""Columns of its scale, and of a margin."""
_AS_IT_WAS = "runs as TensorFlow runs it"
_BLOCKS = " ▁▂▃▄▅▆▇█"


def summary(report: Report) -> str:
    """The verdict and the peaks."""
    return plain_text(_summary(report), _columns(None), wraps=True)


def text(report: Report, width: int | None = None) -> str:
    """The whole report: verdict, peaks, curves, parts, what is resident, notes."""
    width = _columns(width)
    return plain_text(_whole(report, width), width, wraps=True)


def _columns(width: int | None) -> int:
    return width or terminal_width() or _ELSEWHERE


def _whole(report: Report, width: int) -> Iterator[Table | str]:
    yield from _summary(report)
    changed = not report.plan.changes_nothing
    sides = (report.before, report.after) if changed else (report.before,)
    names = names_of((report.before, report.after), report.functions, report.plan.origins)
    top = max((max(side.totals, default=0) for side in sides), default=0)
    for side in sides:
        if side.x:
            yield from ("", *_curve(side, top, min(width, WIDTH)))
        yield from _parts(side, names)
    if report.resident:
        yield from ("", _resident(report.resident))
    yield from (f"note: {note}" for note in report.notes)


def _summary(report: Report) -> Iterator[Table | str]:
    changed = not report.plan.changes_nothing
    yield f"{report.name}: {_verdict(report, changed)}"
    yield _peaks(report, changed)


def _verdict(report: Report, changed: bool) -> str:
    before, after = report.before.peak_bytes, report.after.peak_bytes
    if not changed:
        return f"{_AS_IT_WAS}, nothing was changed"
    what = changes(report.plan)
    if before and after is not None:
        what += f", predicted peak {100 * (after / before - 1):+.0f} %"
    what += f", estimated step time {report.plan.told_time}"
    return what if report.applied else f"{_AS_IT_WAS}; optimised it would have {what}"


def _peaks(report: Report, changed: bool) -> Table:
    numbers = ("before", "after") if changed else ("bytes",)
    table = table_of(("peak above resident", *numbers), numbers, width=_NUMBER)
    sides = (report.before, report.after) if changed else (report.before,)
    table.add_row("predicted", *(side.told_peak for side in sides))
    if any(side.measured_bytes is not None for side in sides):
        table.add_row("measured", *(format_bytes(side.measured_bytes) for side in sides))
    if report.budget is not None:
        table.add_row("budget", *[""] * (len(sides) - 1), format_bytes(report.budget))
    return table


def _curve(side: Side, top: int, width: int) -> list[str]:
    """The bytes in use over the run, as a row of bars; the scale is the same on both sides."""
    columns = max(1, width - _BESIDE_CURVE)
    heights = [0] * columns
    last = side.x[-1] or 1
    for place, size in zip(side.x, side.totals, strict=True):
        column = min(columns - 1, int(place / last * columns))
        heights[column] = max(heights[column], size)
    for column in range(1, columns):  # between two moments it goes straight
        if not heights[column]:
            place = last * (column + 0.5) / columns
            heights[column] = round(np.interp(place, side.x, side.totals))
    curve = []
    for row in reversed(range(_HEIGHT)):
        cells = (8 * _HEIGHT * size / max(1, top) - 8 * row for size in heights)
        bars = "".join(_BLOCKS[max(0, min(8, round(cell)))] for cell in cells)
        label = format_bytes(top) if row == _HEIGHT - 1 else "0" if not row else ""
        curve.append(f"{label:>11} ┤{bars}".rstrip())
    return [f"{side.name}, over one run:", *curve]


def _parts(side: Side, names: Names) -> list[Table | str]:
    """What the peak consists of: first by kind, then the largest blobs."""
    if side.peak_bytes is None:
        unknown = ", ".join(side.unknown[:3])
        return ["", f"{side.name}: the peak is not known before a run; unknown: {unknown}"]
    if not side.parts:
        return ["", f"{side.name}: nothing is allocated above what is resident"]
    heading = f"the peak {side.name}, at {side.peak_source}, consists of"
    kinds = table_of(("bytes", heading), ("bytes",), width=_NUMBER)
    for kind, size in side.by_kind().items():
        kinds.add_row(format_bytes(size), f"{kind}: {KINDS[kind]}")
    shown = rows(part for part in side.parts if part.op_type)[:_ROWS]
    found = _where(shown, names)
    heading = "line" if found == [lines(row) for row in shown] else "where"
    blobs = table_of((_AT_PEAK, "blob", heading, "decision"), (_AT_PEAK,), width=_NUMBER)
    for row, where in zip(shown, found, strict=True):
        told = format_bytes(sum(part.bytes for part in row))
        blobs.add_row(told, title(row), where, row[0].decision or row[0].kind)
    return ["", kinds, "", blobs]


def _where(shown: list[tuple[Part, ...]], names: Names) -> list[str]:
    """The line of each row; the layers where it has none, or others have it and differ in them."""
    layers = [tuple(dict.fromkeys(map(names.where, row))) for row in shown]
    of_line: dict[str, set[tuple[str, ...]]] = {}
    for row, places in zip(shown, layers, strict=True):
        of_line.setdefault(lines(row), set()).add(places)
    return [
        names.places(row, _PLACES)
        if not any(_LINE.search(part.source) for part in row)
        or len(of_line[lines(row)]) > 1
        and len(places) <= _PLACES
        else lines(row)
        for row, places in zip(shown, layers, strict=True)
    ]


def _resident(parts: tuple[Part, ...]) -> Table:
    told = "resident before the function runs"
    table = table_of(("bytes", told), ("bytes",), width=_NUMBER)
    for kind, meaning in RESIDENT.items():
        size = sum(part.bytes for part in parts if part.kind == kind)
        if size:
            table.add_row(format_bytes(size), f"{kind}: {meaning}")
    return table
