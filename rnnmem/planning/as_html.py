"""A plan as HTML, for notebooks: peaks, what becomes of each residual, other decisions, notes."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator

from rnnmem.planning.plan import Plan
from rnnmem.sizes import format_bytes


def html_of(plan: Plan) -> str:
    """Paragraphs and tables that say what the plan decides."""
    peaks = plan.original_peak, plan.predicted_peak
    lines = [f"estimated step time: {plan.told_time}", *(f"note: {one}" for one in plan.notes)]
    if peaks != (None, None):
        before, after = plan.told_peaks
        lines.insert(0, f"predicted peak above resident: {before} as it was, {after} now")
    return "".join(
        (
            *(f"<p>{html.escape(line)}</p>" for line in lines),
            _table(("loop", "bytes", "blob", "line", "decision", "why"), _residuals(plan)),
            _table(("pass", "decision"), _decisions(plan)),
        )
    )


def _residuals(plan: Plan) -> Iterator[tuple[str, ...]]:
    for loop in plan.every_loop():
        for one in loop.residuals:
            word, why = ("left", loop.closed) if loop.closed else (one.decision, one.reason)
            yield loop.label, format_bytes(one.bytes), one.op_type, one.source, word, why


def _decisions(plan: Plan) -> Iterator[tuple[str, ...]]:
    for loop in plan.every_loop():
        yield from (("loops", sentence) for sentence in loop.sentences)
    for name, _ in plan.decisions:
        yield from ((name, one.sentence) for one in plan.at_every_depth(name))


def _table(headings: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    frame = '<div style="overflow-x:auto"><table><tr>{}</tr>{}</table></div>'
    return frame.format(head, body) if body else ""
