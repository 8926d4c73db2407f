"""The report for ``chrome://tracing`` and ui.perfetto.dev: counters of bytes, slices of loops.

Source: the Trace Event Format (Google, 2016). A microsecond stands for one buffer taken or given
back; both sides start at 0, as two processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rnnmem.reports.data import KINDS, Side

if TYPE_CHECKING:
    from rnnmem.reports.report import Report

_LOOPS, _BLOBS = 1, 10
"""Numbers of threads: loops stand below each other by depth, then a thread for each blob."""


def events(report: Report) -> dict[str, Any]:
    """The trace as an object to be written as JSON."""
    sides = [report.before]
    if not report.plan.changes_nothing:
        sides.append(report.after)
    found = [event for pid, side in enumerate(sides, 1) for event in _side(side, pid, report.name)]
    return {
        "traceEvents": found,
        "displayTimeUnit": "ms",
        "otherData": {"time unit": "1 us = one buffer taken or given back, in simulated order"},
    }


def _side(side: Side, pid: int, name: str) -> Iterator[dict[str, Any]]:
    yield _name("process_name", pid, 0, f"{name}, {side.name}")
    for span in side.spans:
        depth = len(span.loops)
        yield {
            "ph": "X",
            "pid": pid,
            "tid": _LOOPS + depth,
            "ts": span.start,
            "dur": max(1.0, span.end - span.start),
            "name": span.loops[-1],
            "cat": "loop",
            "args": {"iterations": span.iterations, "source": span.source},
        }
    for depth in sorted({len(span.loops) for span in side.spans}):
        yield _name("thread_name", pid, _LOOPS + depth, "loops" + " in loops" * (depth - 1))
    for index, place in enumerate(side.x):
        sums = dict.fromkeys(KINDS, 0)
        for area in side.areas:
            sums[area.part.kind] += area.bytes[index]
        yield {"ph": "C", "pid": pid, "ts": place, "name": "bytes in use", "args": sums}
    blobs = [area for area in side.areas if area.part.op_type]
    for number, area in enumerate(sorted(blobs, key=lambda area: -area.part.bytes)):
        part, tid = area.part, _BLOBS + number
        yield _name("thread_name", pid, tid, f"{part.op_type} {part.source}")
        for start, end in _alive(side.x, area.bytes):
            yield {
                "ph": "X",
                "pid": pid,
                "tid": tid,
                "ts": start,
                "dur": max(1.0, end - start),
                "name": part.label,
                "cat": part.kind,
                "args": {
                    "bytes": part.bytes,
                    "dtype": part.dtype,
                    "shape": part.shape,
                    "source": part.source,
                    "decision": part.decision,
                    "reason": part.reason,
                },
            }


def _alive(x: tuple[float, ...], sizes: tuple[int, ...]) -> Iterator[tuple[float, float]]:
    """Stretches in which there is anything of a blob."""
    start = None
    for place, size in zip(x, sizes, strict=True):
        if size and start is None:
            start = place
        elif not size and start is not None:
            yield start, place
            start = None
    if start is not None:
        yield start, x[-1]


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}}
