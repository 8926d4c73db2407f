"""The table of a conversion: every tensor, its bytes before and after, and its route."""

from __future__ import annotations

from rich.table import Table

from rnnmem.conversion.plan import THROUGH_HOST, UNTOUCHED, ConversionPlan, Step
from rnnmem.sizes import format_bytes
from rnnmem.tables import plain_text, table_of


def table(plan: ConversionPlan) -> str:
    """The plan as text: a line of totals, one for each device, then a row for each tensor."""
    rows = [_rows(plan)] if plan.steps else []
    return plain_text([_totals(plan), *plan.summary(), *rows])


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
    numbers = ("before", "after")
    rows = table_of((*numbers, "route", "tensor", "dtype", "device", "why"), numbers, folds=False)
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
