"""The picture: stacked areas before and after on one axis, what was measured, the largest blobs."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from rnnmem.errors import OptionError
from rnnmem.ir.names import Names
from rnnmem.reports.colors import HATCHES, OF_KIND, ink
from rnnmem.reports.data import KINDS, RESIDENT, Part, Side
from rnnmem.reports.names import names_of
from rnnmem.reports.rows import alike, areas, lines, rows, title
from rnnmem.sizes import MIB, format_bytes

if TYPE_CHECKING:
    from rnnmem.reports.report import Report

NAMED = 5
"""Rows of alike blobs that are named on each side."""
_THIN, _APART, _ASIDE = 0.04, 0.075, 0.3
"""Of the height: areas that hold no number, and numbers beside them; of a side: how far beside."""
_SIDES = {"before": "before: as TensorFlow runs it", "after": "after: as rnnmem runs it"}
_INK, _SOFT = "#14181d", "#55606d"
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rnnmem",
    "font.size": 9,
    "hatch.linewidth": 0.4,
    "text.color": _INK,
}
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
    with rc_context(_STYLE):
        figure = Figure(figsize=(11, 6.4), dpi=120)
        FigureCanvasAgg(figure)
        _draw(report, figure)
        out = io.BytesIO()
        metadata = {"Date": None} if form == "svg" else None
        figure.savefig(out, format=form, metadata=metadata, facecolor="white")
    return out.getvalue()


def _draw(report: Report, figure: Any) -> None:
    axes = figure.add_axes((0.075, 0.36, 0.9, 0.51))
    changed = not report.plan.changes_nothing
    sides = (report.before, report.after) if changed else (report.before,)
    top = max((side.peak_bytes or 0 for side in sides), default=0)
    top = max(top, *(side.measured_bytes or 0 for side in sides), 1)
    for number, side in enumerate(sides):
        _side(axes, side, number * (1 + _GAP), top)
    if report.budget is not None:
        axes.axhline(report.budget / MIB, color=_INK, linestyle="--", linewidth=1.2)
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
    axes.set_ylim(-base / MIB, 1.32 * top / MIB)
    axes.set_xticks([])
    axes.set_ylabel("MiB above the resident state")
    axes.axhline(0, color=_INK, linewidth=0.8)
    for spine in ("top", "right", "bottom"):
        axes.spines[spine].set_visible(False)
    axes.yaxis.grid(True, color="#e9ecef", linewidth=0.7)
    axes.set_axisbelow(True)
    figure.text(0.075, 0.945, report.name, fontsize=13, fontweight="bold")
    figure.text(0.975, 0.945, _headline(report, changed), fontsize=10, ha="right")
    _legend(figure, sides)
    width = 0.9 / len(sides)
    names = names_of((report.before, report.after), report.functions)
    for number, side in enumerate(sides):
        _largest(figure, side, names, 0.075 + number * width)


def _headline(report: Report, changed: bool) -> str:
    before, after = report.before.peak_bytes, report.after.peak_bytes
    if not changed:
        return f"peak {report.before.told_peak}, nothing was changed"
    saved = f" ({100 * (after / before - 1):+.0f} %)" if before and after is not None else ""
    return (
        f"peak {report.before.told_peak} before, {report.after.told_peak} after{saved}, "
        f"estimated step time {report.plan.told_time}"
    )


def _side(axes: Any, side: Side, left: float, top: int) -> None:
    axes.text(
        left + 0.5,
        1.02,
        _SIDES[side.name],
        transform=axes.get_xaxis_transform(),
        ha="center",
        fontsize=11,
        fontweight="bold",
    )
    if not side.x or not side.peak_bytes:
        what = "not known before a run" if side.peak_bytes is None else "nothing is allocated"
        axes.text(left + 0.5, 0.5 * top / MIB, what, ha="center", color=_SOFT)
        return
    last = side.x[-1] or 1.0
    places = [left + place / last for place in side.x]
    stacked = areas(side)
    drawn = axes.stackplot(
        places,
        [[size / MIB for size in sizes] for _, sizes in stacked],
        colors=[OF_KIND[parts[0].kind] for parts, _ in stacked],
        linewidth=0.25,
    )
    for (parts, _), area in zip(stacked, drawn, strict=True):
        _hatch(area, parts[0].kind)
    if side.measured is not None:
        measured = [left + place / last for place in side.measured.x]
        sizes = [size / MIB for size in side.measured.bytes]
        for color, width in (("white", 2.4), (_INK, 0.9)):  # light below dark, to stand out
            axes.plot(measured, sizes, color=color, linewidth=width, solid_joinstyle="round")
    if side.gradient_x is not None:
        where = left + side.gradient_x / last
        axes.plot([where] * 2, [0, 1.28 * top / MIB], color=_INK, linewidth=0.8, linestyle=":")
        for text, ha, aside in (("forward", "right", -4), ("gradient", "left", 4)):
            axes.annotate(
                text,
                (where, 1.28 * top / MIB),
                textcoords="offset points",
                xytext=(aside, -3),
                ha=ha,
                va="top",
                fontsize=8,
                color=_SOFT,
            )
    peak = left + side.peak_x / last
    axes.plot([peak], [side.peak_bytes / MIB], marker="v", color=_INK, markersize=5)
    told = f"{side.told_peak} predicted"
    if side.measured_bytes is not None:
        told += f"\n{format_bytes(side.measured_bytes)} measured"
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
    _numbers(axes, side, stacked, places, top)


def _hatch(area: Any, kind: str) -> None:
    """Gives an area, or its field in the legend, the second cue beside its colour."""
    area.set_hatch(3 * HATCHES[kind])
    area.set_edgecolor((*([0.0] * 3 if ink(OF_KIND[kind]) == _INK else [1.0] * 3), 0.35))


def largest(side: Side) -> list[tuple[Part, ...]]:
    """The rows of alike blobs that are named: the largest at the peak."""
    return [row for row in rows(side.parts) if row[0].op_type][:NAMED]


def _numbers(
    axes: Any,
    side: Side,
    stacked: list[tuple[tuple[Part, ...], list[int]]],
    places: list[float],
    top: int,
) -> None:
    """Puts each named row's number into its area at the peak; beside it, where that is thin."""
    index = side.x.index(side.peak_x)
    numbers = {alike(row[0]): number for number, row in enumerate(largest(side), 1)}
    low, thin = 0, []
    for parts, sizes in stacked:
        size, number = sizes[index], numbers.get(alike(parts[0]))
        middle, kind = low + size / 2, parts[0].kind
        if number is not None and size > _THIN * top:
            aside = 0.012 if places[index] % (1 + _GAP) < 0.95 else -0.02
            _number(axes, number, kind, places[index] + aside, middle)
        elif number is not None and size:
            thin.append((middle, number, kind))
        low += size
    aside = _ASIDE if places[index] % (1 + _GAP) < 0.65 else -_ASIDE
    for (middle, number, kind), height in zip(thin, _apart(thin, _APART * top), strict=True):
        ends = [places[index], places[index] + aside], [middle / MIB, height / MIB]
        for color, width in (("white", 2.0), (_INK, 0.7)):
            axes.plot(*ends, color=color, linewidth=width, zorder=5)
        _number(axes, number, kind, places[index] + aside, height)


def _apart(thin: list[tuple[float, int, str]], least: float) -> list[float]:
    """Heights of numbers beside the areas, in their order, so that none covers another."""
    heights: list[float] = []
    for middle, _, _ in thin:
        heights.append(max(middle, heights[-1] + least) if heights else middle)
    return heights


def _number(axes: Any, number: int, kind: str, x: float, height: float) -> None:
    color = OF_KIND[kind]
    axes.text(
        x,
        height / MIB,
        str(number),
        color=ink(color),
        fontsize=8,
        fontweight="bold",
        ha="center",
        va="center",
        zorder=7,
        bbox={"facecolor": color, "edgecolor": "white", "linewidth": 0.6, "pad": 1.5},
    )


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
        color=_SOFT,
    )
    deep = min(total, top // 3)
    axes.fill_between([0, width], -deep / MIB, 0, color="#c9d1d9", alpha=0.45, linewidth=0)
    return max(deep, top // 12)


def _legend(figure: Any, sides: tuple[Side, ...]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    there = {area.part.kind for side in sides for area in side.areas if max(area.bytes, default=0)}
    drawn = [kind for kind in KINDS if kind in there]
    patches: list[Any] = [Patch(facecolor=OF_KIND[kind], label=kind) for kind in drawn]
    for kind, patch in zip(drawn, patches, strict=True):
        _hatch(patch, kind)
    if any(side.measured is not None for side in sides):
        patches.append(Line2D([], [], color=_INK, linewidth=1, label="measured"))
    if patches:
        figure.legend(
            handles=patches,
            loc="lower center",
            bbox_to_anchor=(0.5, 0.285),
            ncols=len(patches),
            frameon=False,
            fontsize=9,
        )


def _largest(figure: Any, side: Side, names: Names, left: float) -> None:
    """Lists the largest blobs at the peak below the areas."""
    found = largest(side)
    if not found:
        return
    figure.text(left, 0.255, f"largest {side.name}, at the peak", fontweight="bold")
    for number, row in enumerate(found, 1):
        size = format_bytes(sum(part.bytes for part in row))
        told = f"{number}  {size:>10}  {title(row)}"
        figure.text(left, 0.255 - 0.042 * number, told, family="monospace", fontsize=8)
        part = row[0]
        where = f"{names.places(row, 2)}, {lines(row)}: {part.decision or part.kind}"
        figure.text(left + 0.03, 0.237 - 0.042 * number, where, fontsize=7.5, color=_SOFT)
