"""The table of a conversion: every tensor, its bytes before and after, and its route."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from rnnmem.conversion.plan import THROUGH_HOST, UNTOUCHED, ConversionPlan, Step
from rnnmem.sizes import format_bytes

_WIDTH = 10_000  # as wide as the names are


def table(plan: ConversionPlan) -> str:
    """The plan as text: a line of totals, one for each device, then a row for each tensor."""
    out = io.StringIO()
    console = Console(
        file=out, width=_WIDTH, no_color=True, highlight=False, markup=False, emoji=False
    )
    for line in [_totals(plan), *plan.summary()]:
        console.print(line, soft_wrap=True)
    if plan.steps:
        console.print(_rows(plan))
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def _totals(plan: ConversionPlan) -> str:
    changing = plan.changing
    before = format_bytes(sum(step.tensor.bytes_before for step in changing))
    after = format_bytes(sum(step.tensor.bytes_after for step in changing))
    hosted = sum(step.route == THROUGH_HOST for step in changing)
    line = (
        f"{len(changing)} of {len(plan.steps)} tensors change, {before} become {after}; "
        f"{hosted} through the host"
    )
    if plan.host:
        line += f", which needs {format_bytes(plan.host)} there"
    return line


def _rows(plan: ConversionPlan) -> Table:
    rows = Table(box=None, pad_edge=False, header_style="")
    for heading in ("before", "after", "route", "tensor", "dtype", "device", "why"):
        number = heading in ("before", "after")
        rows.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for step in plan.steps:
        rows.add_row(*_row(step))
    return rows


def _row(step: Step) -> tuple[str, ...]:
    tensor = step.tensor
    kept = step.route == UNTOUCHED
    return (
        format_bytes(tensor.bytes_before),
        format_bytes(tensor.bytes_before if kept else tensor.bytes_after),
        step.route,
        tensor.name,
        _arrow(tensor.dtype_before, tensor.dtype_after),
        _arrow(tensor.device_before, tensor.device_after),
        tensor.reason,
    )


def _arrow(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"
