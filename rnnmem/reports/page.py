"""The report as one HTML page: everything is in it, and nothing is fetched.

Timelines are drawn by uPlot, step nets laid out by dagre; both stand in ``vendor/``.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from rnnmem.ir.names import Names
from rnnmem.planning.plan import Plan
from rnnmem.reports import colors
from rnnmem.reports.data import KINDS, RESIDENT, Graph, Node, Part, Side
from rnnmem.reports.measured import gaps
from rnnmem.reports.names import names_of
from rnnmem.reports.rows import alike, areas, lines, rows, title
from rnnmem.sizes import format_bytes

if TYPE_CHECKING:
    from rnnmem.reports.report import Report

PARTS = 200
"""Rows of a peak that the page lists."""
_LISTED = 8
"""Names of blobs that a row tells."""
_SIDES = {"before": "as TensorFlow runs it", "after": "as rnnmem runs it"}
_LIBRARIES = ("uplot", "dagre")
_SCRIPTS = ("basics", "colors", "loops", "labels", "areas", "timelines", "stepnets", "page")


def html(report: Report) -> str:
    """The page; it shows the same as :meth:`Report.to_dict` tells, as far as people need it."""
    # No text of a user's can end the script element that holds the data.
    held = json.dumps(_data(report), separators=(",", ":")).replace("<", "\\u003c")
    scripts = [*map(_library, _LIBRARIES), *(_read(f"{name}.js") for name in _SCRIPTS)]
    pieces = {
        "HASHES": " ".join(map(_hash, scripts)),
        "STYLE": _read("vendor/uplot.min.css") + _read("page.css"),
        "SCRIPTS": "\n".join(f"<script>{script}</script>" for script in scripts),
        "DATA": held,
    }
    # One pass, so that nothing that is put in is taken for a place to put something.
    return re.sub(r"@([A-Z]+)@", lambda hole: pieces[hole[1]], _read("page.html"))


def _read(name: str) -> str:
    return resources.files("rnnmem.reports").joinpath(name).read_text("utf-8")


def _library(name: str) -> str:
    """A library with its licence; its banner, which only names places in the net, is left out."""
    code = re.sub(r"/\*!.*?\*/|//# sourceMappingURL=\S*", "", _read(f"vendor/{name}.min.js"))
    return f"/* {name}\n{_read(f'vendor/{name}.LICENSE')}*/\n{code.strip()}\n"


def _hash(script: str) -> str:
    """What the page's Content-Security-Policy knows a script by."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _data(report: Report) -> dict[str, Any]:
    changed = not report.plan.changes_nothing
    sides = [report.before, report.after] if changed else [report.before]
    names = names_of((report.before, report.after), report.functions, report.plan.origins)
    sums = {
        kind: sum(part.bytes for part in report.resident if part.kind == kind) for kind in RESIDENT
    }
    return {
        "name": report.name,
        "headline": _headline(report, changed),
        "figures": _figures(report, sides),
        "budget": report.budget,
        "sides": [_side(side, names) for side in sides],
        "graphs": [_graph(graph, names) for graph in report.graphs],
        "resident": [[kind, size, RESIDENT[kind]] for kind, size in sums.items() if size],
        "notes": list(report.notes),
        "kinds": {
            kind: {"color": color, "ink": colors.ink(color), "hatch": colors.HATCHES[kind]}
            | {"meaning": KINDS[kind]}
            for kind, color in colors.OF_KIND.items()
        },
        "decisions": {
            decision: {"color": color, "ink": colors.ink(color)}
            for decision, color in colors.OF_DECISION.items()
        },
        "legend": _legend(report.graphs),
        "made": list(report.made.items()),
    }


def _legend(graphs: Sequence[Graph]) -> list[tuple[str, str]]:
    """(Decision, what it means) of those drawn; decisions of one colour stand together."""
    drawn = {"", *(node.decision for graph in graphs for node in graph.nodes)}
    told: dict[str, dict[str, str]] = {}  # colour -> what is told -> a decision
    for decision, what in colors.OF_LEGEND.items():
        if decision in drawn:
            told.setdefault(colors.OF_DECISION[decision], {})[what] = decision
    return [(next(iter(one.values())), ", or ".join(one)) for one in told.values()]


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


def _figures(report: Report, sides: list[Side]) -> list[tuple[str, str, str]]:
    """What, the figure, and what stands beside it."""
    found = []
    for side in sides:
        measured = side.measured_bytes
        told = "not measured" if measured is None else f"{format_bytes(measured)} measured"
        what = f"predicted peak {side.name}" if len(sides) > 1 else "predicted peak"
        found.append((what, side.told_peak, told))
    if len(sides) > 1:
        measured_time = report.plan.measured_slowdown
        told = "not measured" if measured_time is None else f"{measured_time:.2f}x measured"
        found.append(("estimated step time", f"{report.plan.slowdown:.2f}x", told))
    if report.budget is not None:
        found.append(("budget", format_bytes(report.budget), "above the resident state"))
    return found


def _side(side: Side, names: Names) -> dict[str, Any]:
    numbers: dict[tuple, int] = {}

    def row(parts: tuple[Part, ...]) -> dict[str, Any]:
        number = numbers.setdefault(alike(parts[0]), len(numbers))
        return {"id": number, **_row(parts, names)}

    return {
        "name": side.name,
        "title": _SIDES[side.name],
        "peak": side.peak_bytes,
        "measured": side.measured_bytes,
        "peakX": side.peak_x,
        "gradientX": side.gradient_x,
        "x": side.x,
        "areas": [{**row(parts), "bytes": sizes} for parts, sizes in areas(side)],
        "curve": None if side.measured is None else dataclasses.asdict(side.measured),
        "gaps": _gaps(side, names),
        "rows": _with_rest([row(parts) for parts in rows(side.parts)]),
        "spans": [
            {
                "graph": "/".join((side.name, *span.loops)),
                "name": names.loop(span.loops),
                "depth": len(span.loops) - 1,
                "start": span.start,
                "end": span.end,
                "iterations": span.iterations,
                "source": span.source,
                "gradient": span.is_gradient,
            }
            for span in side.spans
        ],
        "unknown": side.unknown[:20],
    }


def _gaps(side: Side, names: Names) -> str:
    """Where truth and prediction part, in words."""
    found = gaps(side)
    if found is None:
        return ""
    told = []
    for (size, place), word in zip(found, ("above", "below"), strict=True):
        if not size:
            continue
        around = [span for span in side.spans if span.start <= place <= span.end]
        where = min(around, key=lambda span: span.end - span.start, default=None)
        in_loop = f" ({names.loop(where.loops)})" if where is not None else ""
        told.append(f"{format_bytes(size)} {word}{in_loop}")
    if not told:
        return "Measured is as predicted."
    return f"Measured is at most {' and '.join(told)} the prediction."


def _with_rest(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The largest rows, and the sum of the others, so that the list adds up to the peak."""
    rest = told[PARTS:]
    if not rest:
        return told
    size = sum(row["bytes"] for row in rest)
    last = {**rest[0], "title": f"{len(rest)} smaller ones", "bytes": size, "names": []}
    return [*told[:PARTS], last]


def _row(parts: tuple[Part, ...], names: Names) -> dict[str, Any]:
    part = parts[0]
    reasons = dict.fromkeys(one.reason for one in parts if one.reason)
    return {
        "title": title(parts),
        "short": (f"{len(parts)} × " if len(parts) > 1 else "") + (part.op_type or part.label),
        "names": [one.label for one in parts[:_LISTED]],
        "more": max(0, len(parts) - _LISTED),
        "where": names.places(parts) if part.op_type else "",
        "lines": lines(parts[:_LISTED]),
        "bytes": sum(one.bytes for one in parts),
        "kind": part.kind,
        "decision": part.decision,
        "reason": "; ".join(reasons),
    }


def _graph(graph: Graph, names: Names) -> dict[str, Any]:
    return {
        "id": graph.id,
        "side": graph.side,
        "loops": graph.loops,
        "names": [names.loop(graph.loops[:depth]) for depth in range(1, len(graph.loops) + 1)],
        "left": graph.left_out,
        "leftBytes": graph.left_bytes,
        "edges": graph.edges,
        "nodes": [_node(node, graph, names) for node in graph.nodes],
    }


def _node(node: Node, graph: Graph, names: Names) -> Mapping[str, Any]:
    told = dataclasses.asdict(node)
    inner = node.opens.split("/", 1)[1] if "/" in node.opens else ""
    if inner and inner.endswith(node.name):
        told["title"] = names.loop((*graph.loops, node.name))
    return told
