"""The report in a terminal of 80 columns."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from rnnmem.ir.graph import kind_text
from rnnmem.reports.data import KINDS, RESIDENT, Part, Side
from rnnmem.reports.outcomes import every_loop
from rnnmem.sizes import format_bytes

if TYPE_CHECKING:
    from rnnmem.reports.report import Report

WIDTH = 80
_ROWS = 10
"""Parts that are named for each side."""
_HEIGHT = 8
_BLOCKS = " ▁▂▃▄▅▆▇█"


def summary(report: Report) -> str:
    """The verdict and the peaks."""
    console, out = _console()
    _summarize(report, console)
    return _text(out)


def text(report: Report) -> str:
    """The whole report: verdict, peaks, curves, parts, what is resident, notes."""
    console, out = _console()
    _summarize(report, console)
    changed = not report.plan.changes_nothing
    sides = (report.before, report.after) if changed else (report.before,)
    top = max((max(side.totals, default=0) for side in sides), default=0)
    for side in sides:
        if side.x:
            console.print()
            for line in _curve(side, top):
                console.print(line, no_wrap=True, crop=True)
        for part in _parts(side):
            console.print(part)
    if report.resident:
        console.print()
        console.print(_resident(report.resident))
    for note in report.notes:
        console.print(f"note: {note}")
    return _text(out)


def _console() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    console = Console(
        file=out, width=WIDTH, no_color=True, highlight=False, markup=False, emoji=False
    )
    return console, out


def _text(out: io.StringIO) -> str:
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def _summarize(report: Report, console: Console) -> None:
    changed = not report.plan.changes_nothing
    console.print(f"{report.name}: {_verdict(report, changed)}")
    console.print(_peaks(report, changed))


def _verdict(report: Report, changed: bool) -> str:
    before, after = report.before.peak_bytes, report.after.peak_bytes
    if not changed:
        return "runs as TensorFlow runs it, nothing was changed"
    loops = sum(not loop.closed for loop, _ in every_loop(report.plan))
    what = f"{loops} loop{'s' if loops != 1 else ''} rewritten"
    if not loops:
        what = f"{len(report.plan.scheduling_edges)} control edges added"
    if before and after is not None:
        what += f", predicted peak {100 * (after / before - 1):+.0f} %"
    return f"{what}, about {report.plan.slowdown:.2f}x step time"


def _peaks(report: Report, changed: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("peak above resident")
    for heading in ("before", "after") if changed else ("bytes",):
        table.add_column(heading, justify="right", min_width=11)
    sides = (report.before, report.after) if changed else (report.before,)
    table.add_row("predicted", *(format_bytes(side.peak_bytes) for side in sides))
    if any(side.measured_bytes is not None for side in sides):
        table.add_row("measured", *(format_bytes(side.measured_bytes) for side in sides))
    if report.budget is not None:
        table.add_row("budget", *[""] * (len(sides) - 1), format_bytes(report.budget))
    return table


def _curve(side: Side, top: int) -> list[str]:
    """The bytes in use over the run, as a row of bars; the scale is the same on both sides."""
    columns = WIDTH - 14
    heights = [0] * columns
    last = side.x[-1] or 1
    for place, size in zip(side.x, side.totals, strict=True):
        column = min(columns - 1, int(place / last * columns))
        heights[column] = max(heights[column], size)
    for column in range(1, columns):  # between two moments it goes straight
        if not heights[column]:
            heights[column] = _between(side, last * (column + 0.5) / columns)
    lines = []
    for row in reversed(range(_HEIGHT)):
        cells = (8 * _HEIGHT * size / max(1, top) - 8 * row for size in heights)
        bars = "".join(_BLOCKS[max(0, min(8, round(cell)))] for cell in cells)
        label = format_bytes(top) if row == _HEIGHT - 1 else "0" if not row else ""
        lines.append(f"{label:>11} ┤{bars}".rstrip())
    return [f"{side.name}, over one run:", *lines]


def _between(side: Side, place: float) -> int:
    totals = side.totals
    for index in range(1, len(side.x)):
        if side.x[index] >= place:
            left, right = side.x[index - 1], side.x[index]
            part = (place - left) / ((right - left) or 1)
            return round(totals[index - 1] + part * (totals[index] - totals[index - 1]))
    return totals[-1]


def _parts(side: Side) -> list[Table | str]:
    """What the peak consists of: first by kind, then the largest blobs."""
    if side.peak_bytes is None:
        shown = ", ".join(side.unknown[:3])
        return ["", f"{side.name}: the peak is not known before a run; unknown: {shown}"]
    if not side.parts:
        return ["", f"{side.name}: nothing is allocated above what is resident"]
    kinds = Table(box=None, pad_edge=False, header_style="")
    kinds.add_column("bytes", justify="right", min_width=11)
    kinds.add_column(f"the peak {side.name}, at {side.peak_source}, consists of", overflow="fold")
    for kind, size in side.by_kind().items():
        kinds.add_row(format_bytes(size), f"{kind}: {KINDS[kind]}")
    blobs = Table(box=None, pad_edge=False, header_style="")
    for heading, right in (("bytes", True), ("blob", False), ("line", False), ("decision", False)):
        blobs.add_column(
            heading,
            justify="right" if right else "left",
            overflow="fold",
            min_width=11 if right else None,
        )
    named = [part for part in side.parts if part.op_type][:_ROWS]
    for part in named:
        blobs.add_row(
            format_bytes(part.bytes), _blob(part), part.source, part.decision or part.kind
        )
    return ["", kinds, "", blobs]


def _blob(part: Part) -> str:
    return f"{part.op_type} {kind_text(part.dtype, part.shape)}" if part.dtype else part.op_type


def _resident(parts: tuple[Part, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("bytes", justify="right", min_width=11)
    table.add_column("resident before the function runs", overflow="fold")
    for kind, meaning in RESIDENT.items():
        size = sum(part.bytes for part in parts if part.kind == kind)
        if size:
            table.add_row(format_bytes(size), f"{kind}: {meaning}")
    return table
