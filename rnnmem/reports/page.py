"""The report as one HTML page: everything is in it, and nothing is fetched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from rnnmem.planning.plan import Plan
from rnnmem.reports import colors
from rnnmem.reports.data import KINDS, RESIDENT, Graph, Part, Side
from rnnmem.sizes import format_bytes

if TYPE_CHECKING:
    from rnnmem.reports.report import Report

PARTS = 200
"""Parts of a peak that the page lists."""
_HOLE = "@DATA@"


def html(report: Report) -> str:
    """The page; it shows the same as :meth:`Report.to_dict` tells, as far as people need it."""
    template = resources.files("rnnmem.reports").joinpath("page.html").read_text("utf-8")
    # No text of a user's can end the script element that holds the data.
    held = json.dumps(_data(report), separators=(",", ":")).replace("<", "\\u003c")
    return template.replace(_HOLE, held, 1)


def _data(report: Report) -> dict[str, Any]:
    changed = not report.plan.changes_nothing
    sides = [report.before, report.after] if changed else [report.before]
    sums = {
        kind: sum(part.bytes for part in report.resident if part.kind == kind) for kind in RESIDENT
    }
    return {
        "name": report.name,
        "headline": _headline(report, changed),
        "figures": _figures(report, sides),
        "budget": report.budget,
        "sides": [_side(side) for side in sides],
        "graphs": [_graph(graph) for graph in report.graphs],
        "resident": [[kind, size, RESIDENT[kind]] for kind, size in sums.items() if size],
        "notes": list(report.notes),
        "colors": {"kinds": dict(colors.OF_KIND), "residuals": dict(colors.OF_DECISION)},
        "meanings": dict(KINDS),
        "legend": _legend(report.graphs),
    }


def _legend(graphs: Sequence[Graph]) -> list[tuple[str, str]]:
    """(Decision, what it means) of those drawn; decisions that mean the same stand once."""
    drawn = {"", *(node.decision for graph in graphs for node in graph.nodes)}
    told = {what: decision for decision, what in colors.OF_LEGEND.items() if decision in drawn}
    return [(decision, what) for what, decision in told.items()]


def _headline(report: Report, changed: bool) -> str:
    if not changed:
        return "runs as TensorFlow runs it; nothing was changed"
    before, after = report.before.peak_bytes, report.after.peak_bytes
    saved = ""
    if before and after is not None:
        saved = f"{100 * (1 - after / before):.0f} % less at the peak, "
    return f"{saved}estimated step time {report.plan.told_time}; {_bits(report.plan)}"


def _bits(plan: Plan) -> str:
    if plan.rounds:
        return "what is saved is rounded, so gradients differ"
    if plan.sums_by_chunks:
        return "sums over tokens are added up in another order"
    return "the results have the same bits"


def _figures(report: Report, sides: list[Side]) -> list[tuple[str, str]]:
    found = []
    for side in sides:
        found.append((f"{side.name}, predicted peak", format_bytes(side.peak_bytes)))
        if side.measured_bytes is not None:
            found.append((f"{side.name}, measured peak", format_bytes(side.measured_bytes)))
    if report.budget is not None:
        found.append(("budget", format_bytes(report.budget)))
    return found


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "peak": side.peak_bytes,
        "measured": side.measured_bytes,
        "peakX": side.peak_x,
        "peakSource": side.peak_source,
        "x": side.x,
        "areas": [{**_part(area.part), "bytes": area.bytes} for area in side.areas],
        "parts": _parts(side),
        "spans": [
            {
                "loops": span.loops,
                "start": span.start,
                "end": span.end,
                "iterations": span.iterations,
                "source": span.source,
            }
            for span in side.spans
        ],
        "unknown": side.unknown[:20],
    }


def _parts(side: Side) -> list[dict[str, Any]]:
    """The largest parts, and the sum of the others, so that the list adds up to the peak."""
    told = [{**_part(part), "bytes": part.bytes} for part in side.parts[:PARTS]]
    rest = side.parts[PARTS:]
    if rest:
        last = Part(f"{len(rest)} smaller ones", rest[0].kind, sum(part.bytes for part in rest))
        told.append({**_part(last), "bytes": last.bytes})
    return told


def _part(part: Part) -> dict[str, Any]:
    return {
        "label": part.label,
        "kind": part.kind,
        "most": part.bytes,
        "op": part.op_type,
        "dtype": part.dtype,
        "shape": part.shape,
        "source": part.source,
        "decision": part.decision,
        "reason": part.reason,
    }


def _graph(graph: Graph) -> dict[str, Any]:
    return {
        "id": graph.id,
        "side": graph.side,
        "loops": graph.loops,
        "left": graph.left_out,
        "edges": graph.edges,
        "nodes": [
            {
                "name": node.name,
                "type": node.type,
                "layer": node.layer,
                "place": node.place,
                "dtype": node.dtype,
                "shape": node.shape,
                "bytes": node.bytes,
                "source": node.source,
                "decision": node.decision,
                "reason": node.reason,
                "opens": node.opens,
            }
            for node in graph.nodes
        ],
    }
