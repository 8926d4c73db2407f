"""The picture: stacked areas before and after on one axis, the budget, the largest blobs named."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from rnnmem.errors import OptionError
from rnnmem.reports.colors import OF_KIND
from rnnmem.reports.data import KINDS, RESIDENT, Area, Part, Side
from rnnmem.sizes import MIB, format_bytes

if TYPE_CHECKING:
    from rnnmem.reports.report import Report

NAMED = 5
"""Blobs that are named on each side."""
_GAP = 0.06
"""Between the two sides, in widths of one."""


def drawn(report: Report, form: str) -> bytes:
    """The picture in a form that matplotlib writes, ``png`` or ``svg``.

    Raises:
      OptionError: matplotlib is missing.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise OptionError("a picture needs matplotlib: pip install 'rnnmem[report]'") from None
    # Text stays text, and the same report gives the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "rnnmem", "font.size": 9}):
        figure = Figure(figsize=(11, 6.4), dpi=110)
        FigureCanvasAgg(figure)
        _draw(report, figure)
        out = io.BytesIO()
        metadata = {"Date": None} if form == "svg" else None
        figure.savefig(out, format=form, metadata=metadata, facecolor="white")
    return out.getvalue()


def _draw(report: Report, figure: Any) -> None:
    axes = figure.add_axes((0.075, 0.36, 0.9, 0.53))
    changed = not report.plan.changes_nothing
    sides = (report.before, report.after) if changed else (report.before,)
    top = max((side.peak_bytes or 0 for side in sides), default=0)
    top = max(top, *(side.measured_bytes or 0 for side in sides), 1)
    for number, side in enumerate(sides):
        _side(axes, side, number * (1 + _GAP), top)
    if report.budget is not None:
        axes.axhline(report.budget / MIB, color="#222222", linestyle="--", linewidth=1.2)
        axes.annotate(
            f"budget {format_bytes(report.budget)}",
            (len(sides) * (1 + _GAP) - _GAP, report.budget / MIB),
            ha="right",
            va="bottom",
            fontsize=8,
        )
        top = max(top, report.budget)
    base = _resident(axes, report.resident, len(sides) * (1 + _GAP) - _GAP, top)
    axes.set_xlim(0, len(sides) * (1 + _GAP) - _GAP)
    axes.set_ylim(-base / MIB, 1.3 * top / MIB)
    axes.set_xticks([])
    axes.set_ylabel("MiB above what is resident")
    axes.axhline(0, color="#222222", linewidth=0.8)
    for spine in ("top", "right", "bottom"):
        axes.spines[spine].set_visible(False)
    axes.yaxis.grid(True, color="#e9ecef", linewidth=0.7)
    axes.set_axisbelow(True)
    figure.text(0.075, 0.945, report.name, fontsize=13, fontweight="bold")
    figure.text(0.975, 0.945, _headline(report, changed), fontsize=10, ha="right")
    _legend(figure, sides)
    width = 0.9 / len(sides)
    for number, side in enumerate(sides):
        _names(figure, side, 0.075 + number * width)


def _headline(report: Report, changed: bool) -> str:
    before, after = report.before.peak_bytes, report.after.peak_bytes
    if not changed:
        return f"peak {format_bytes(before)}, nothing was changed"
    saved = f" ({100 * (after / before - 1):+.0f} %)" if before and after is not None else ""
    return (
        f"peak {format_bytes(before)} before, {format_bytes(after)} after{saved}, "
        f"estimated step time {report.plan.told_time}"
    )


def _side(axes: Any, side: Side, left: float, top: int) -> None:
    axes.text(left + 0.5, 1.24 * top / MIB, side.name, ha="center", fontsize=11, fontweight="bold")
    if not side.x or not side.peak_bytes:
        what = "not known before a run" if side.peak_bytes is None else "nothing is allocated"
        axes.text(left + 0.5, 0.5 * top / MIB, what, ha="center", color="#666666")
        return
    last = side.x[-1] or 1.0
    places = [left + place / last for place in side.x]
    areas = [area for area in side.areas if max(area.bytes)]
    axes.stackplot(
        places,
        [[size / MIB for size in area.bytes] for area in areas],
        colors=[OF_KIND[area.part.kind] for area in areas],
        edgecolor="white",
        linewidth=0.25,
    )
    peak = left + side.peak_x / last
    axes.plot([peak], [side.peak_bytes / MIB], marker="v", color="#222222", markersize=5)
    told = f"{format_bytes(side.peak_bytes)} predicted"
    if side.measured_bytes is not None:
        told += f"\n{format_bytes(side.measured_bytes)} measured"
        ends = [left, left + 1]
        axes.plot(ends, [side.measured_bytes / MIB] * 2, color="#222222", lw=0.8, ls=":")
    axes.annotate(
        told,
        (peak, side.peak_bytes / MIB),
        textcoords="offset points",
        xytext=(7, 3) if peak - left < 0.7 else (-7, 3),
        ha="left" if peak - left < 0.7 else "right",
        va="bottom",
        fontsize=8,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1},
        zorder=6,
    )
    _numbers(axes, side, areas, places, top)


def largest(side: Side) -> list[Part]:
    """The blobs that are named: the largest at the peak."""
    return [part for part in side.parts if part.op_type][:NAMED]


def _numbers(axes: Any, side: Side, areas: list[Area], places: list[float], top: int) -> None:
    """Puts each named blob's number where its area is highest near the peak."""
    index = side.x.index(side.peak_x)
    low = 0
    for area in areas:
        size = area.bytes[index]
        for number, part in enumerate(largest(side), 1):
            same = (part.label, part.kind) == (area.part.label, area.part.kind)
            if same and size > 0.03 * top:
                axes.text(
                    places[index] + (0.012 if places[index] % (1 + _GAP) < 0.95 else -0.02),
                    (low + size / 2) / MIB,
                    str(number),
                    color="white",
                    fontsize=8,
                    fontweight="bold",
                    va="center",
                )
        low += size


def _resident(axes: Any, parts: tuple[Part, ...], width: float, top: int) -> int:
    """Draws what is resident below zero, where it is not too much for the picture."""
    sums = {kind: sum(part.bytes for part in parts if part.kind == kind) for kind in RESIDENT}
    sums = {kind: size for kind, size in sums.items() if size}
    total = sum(sums.values())
    told = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in sums.items())
    if not total:
        return 0
    axes.annotate(
        f"resident: {told}",
        (0, 0),
        textcoords="offset points",
        xytext=(2, -4),
        va="top",
        fontsize=8,
        color="#444444",
    )
    deep = min(total, top // 3)
    axes.fill_between([0, width], -deep / MIB, 0, color="#c9d1d9", alpha=0.45, linewidth=0)
    return max(deep, top // 12)


def _legend(figure: Any, sides: tuple[Side, ...]) -> None:
    from matplotlib.patches import Patch

    there = {area.part.kind for side in sides for area in side.areas if max(area.bytes, default=0)}
    patches = [Patch(color=OF_KIND[kind], label=kind) for kind in KINDS if kind in there]
    if patches:
        figure.legend(
            handles=patches,
            loc="lower center",
            bbox_to_anchor=(0.5, 0.285),
            ncols=len(patches),
            frameon=False,
            fontsize=9,
        )


def _names(figure: Any, side: Side, left: float) -> None:
    """Lists the largest blobs at the peak below the areas."""
    parts = largest(side)
    if not parts:
        return
    figure.text(
        left, 0.255, f"largest {side.name}, at the peak ({side.peak_source})", fontweight="bold"
    )
    for number, part in enumerate(parts, 1):
        dims = ",".join("?" if size is None else str(size) for size in part.shape or ())
        blob = f"{part.op_type} {part.dtype}[{dims}]" if part.dtype else part.op_type
        told = f"{number}  {format_bytes(part.bytes):>10}  {blob}"
        figure.text(left, 0.255 - 0.042 * number, told, family="monospace", fontsize=8)
        where = f"{part.source}, {part.decision or part.kind}"
        figure.text(left + 0.03, 0.237 - 0.042 * number, where, fontsize=7.5, color="#555555")
