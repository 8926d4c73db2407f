"""``explain``: one table of what the original saves, what becomes of it, and why."""

from __future__ import annotations

import dataclasses
import io

from rich.console import Console
from rich.table import Table

from rnnmem.plan import INNER, SAVED, BlobFate, LoopPlan, Plan
from rnnmem.sizes import format_bytes

_WIDTH = 132


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A report on one traced function; ``print`` it.

    Attributes:
      plan: the decisions that it tells of.
      name: the function's name.
    """

    plan: Plan
    name: str

    def __str__(self) -> str:
        """The report as text."""
        out = io.StringIO()
        console = Console(
            file=out, width=_WIDTH, no_color=True, highlight=False, markup=False, emoji=False
        )
        for line in _summary(self.plan, self.name):
            console.print(line, soft_wrap=True)
        loops = [loop for top in self.plan.loops for loop in top.flat()]
        if any(loop.fates for loop in loops):
            console.print(_table(loops))
        return out.getvalue()

    __repr__ = __str__


def explain(plan: Plan, *, name: str) -> Explanation:
    """The report on a plan."""
    return Explanation(plan, name)


def _summary(plan: Plan, name: str) -> list[str]:
    lines = [f"{name}: {_verdict(plan)}"]
    if plan.original_peak is not None or plan.predicted_peak is not None:
        lines.append(
            f"predicted peak above resident: {format_bytes(plan.original_peak)} as it was, "
            f"{format_bytes(plan.predicted_peak)} now"
        )
    if not plan.changes_nothing:
        lines.append(f"estimated step time: {plan.slowdown:.2f}x")
    lines += [f"note: {note}" for note in plan.notes]
    for top in plan.loops:
        for loop in top.flat():
            if loop.segments is not None:
                lines.append(f"in segments: {_label(loop)}: {_segments(loop)}")
            if loop.closed:
                lines.append(f"left as it was: {_label(loop)}: {loop.closed}")
    return lines


def _segments(loop: LoopPlan) -> str:
    cut = loop.segments
    longer = f", each {cut.growth} longer than the one before" if cut.growth else ""
    return (
        f"{cut.length} iterations{longer}; {format_bytes(cut.bytes)} of state kept for each, its "
        "iterations run again in the gradient"
    )


def _verdict(plan: Plan) -> str:
    if not plan.loops:
        return "no loop with a gradient was found, nothing was to be done"
    if plan.changes_nothing:
        return "nothing was to be gained, the function runs as it was"
    changed = sum(not loop.closed for top in plan.loops for loop in top.flat())
    return f"{changed} loop{'s' if changed != 1 else ''} rewritten"


def _label(loop: LoopPlan) -> str:
    where = f" ({loop.source})" if loop.source else ""
    return f"loop {'/'.join(loop.path)}{where}"


def _table(loops: list[LoopPlan]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    for heading in ("bytes/iteration", "iterations", "blob", "shape", "line", "fate", "why"):
        justify = "right" if heading in ("bytes/iteration", "iterations") else "left"
        table.add_column(heading, justify=justify, overflow="fold")
    for loop in loops:
        if not loop.fates:
            continue
        table.add_row("", "", _label(loop), "", "", "", "")
        for fate in sorted(loop.fates, key=lambda fate: -(fate.bytes or 0)):
            table.add_row(*_row(fate, loop))
    return table


def _row(fate: BlobFate, loop: LoopPlan) -> tuple[str, ...]:
    dims = "?" if fate.shape is None else ",".join("?" if d is None else str(d) for d in fate.shape)
    word = {SAVED: "kept", INNER: "dropped"}.get(fate.fate, fate.fate)
    if fate.fate == SAVED and not fate.was_saved:
        word = "kept now"
    return (
        format_bytes(fate.bytes),
        "?" if loop.trips is None else str(loop.trips),
        fate.op_type,
        f"{fate.dtype}[{dims}]",
        fate.source,
        "left" if loop.closed else word,
        loop.closed or fate.reason,
    )
