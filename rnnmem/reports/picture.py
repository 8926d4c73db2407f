"""The picture: stacked areas before and after on one axis, what was measured, the largest blobs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rnnmem.errors import OptionError
from rnnmem.ir.names import Names
from rnnmem.reports.colors import HATCHES, OF_KIND, ink
from rnnmem.reports.data import KINDS, RESIDENT, Part, Side
from rnnmem.reports.labels import Box, Line, Point, Task, beside_line, placed
from rnnmem.reports.names import names_of
from rnnmem.reports.rows import alike, areas, largest, lines, title
from rnnmem.sizes import MIB, format_bytes

if TYPE_CHECKING:
    from rnnmem.reports.report import Report

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
_Stacked = list[tuple[tuple[Part, ...], list[int]]]


def drawn(report: Report, form: str) -> bytes:
    """The picture in a form that matplotlib writes, ``png`` or ``svg``.

    Raises:
      OptionError: matplotlib is missing.
    """
    try:
        from matplotlib import rc_context
    except ImportError:
        raise OptionError("a picture needs matplotlib: pip install 'rnnmem[report]'") from None
    # Text stays text, and the same report gives the same file.
    with rc_context(_STYLE):
        out = io.BytesIO()
        metadata = {"Date": None} if form == "svg" else None
        figure(report).savefig(out, format=form, metadata=metadata, facecolor="white")
    return out.getvalue()


def figure(report: Report) -> Any:
    """The picture as a figure of matplotlib.

    Numbers have gids such as ``before-number-1``, and the lines that lead to them
    ``before-leader-1``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(11, 6.4), dpi=120)
    FigureCanvasAgg(made)
    _draw(report, made)
    return made


def _draw(report: Report, figure: Any) -> None:
    axes = figure.add_axes((0.075, 0.37, 0.9, 0.5))
    changed = not report.plan.changes_nothing
    sides = (report.before, report.after) if changed else (report.before,)
    top = max((side.peak_bytes or 0 for side in sides), default=0)
    top = max(top, report.budget or 0, *(side.measured_bytes or 0 for side in sides), 1)
    width = len(sides) * (1 + _GAP) - _GAP
    base = _resident(axes, report.resident, width, top)
    # Before anything is placed among what stands there.
    axes.set_xlim(0, width)
    axes.set_ylim(-base / MIB, 1.32 * top / MIB)
    axes.set_xticks([])
    axes.set_ylabel("MiB above the resident state")
    axes.axhline(0, color=_INK, linewidth=0.8)
    for spine in ("top", "right", "bottom"):
        axes.spines[spine].set_visible(False)
    axes.yaxis.grid(True, color="#e9ecef", linewidth=0.7)
    axes.set_axisbelow(True)
    drawn = [_side(axes, side, n * (1 + _GAP), top) for n, side in enumerate(sides)]
    for number, (side, stacked) in enumerate(zip(sides, drawn, strict=True)):
        if stacked:
            _peak(axes, side, stacked, number * (1 + _GAP), report.budget)
    if report.budget is not None:
        _budget(axes, report.budget, width)
    name = figure.text(0.075, 0.945, report.name, fontsize=13, fontweight="bold")
    headline = figure.text(0.975, 0.945, _headline(report, changed), fontsize=10, ha="right")
    if _box(name).meets(_box(headline)):
        name.set_y(0.955)
        headline.set_y(0.915)
    _shorten(figure, name, 0.975)
    _legend(figure, sides)
    names = names_of((report.before, report.after), report.functions, report.plan.origins)
    for number, side in enumerate(sides):
        width = 0.9 / len(sides)
        _largest(figure, side, names, 0.075 + number * width, 0.065 + (number + 1) * width)


def _headline(report: Report, changed: bool) -> str:
    before, after = report.before.peak_bytes, report.after.peak_bytes
    if not changed:
        return f"peak {report.before.told_peak}, nothing was changed"
    saved = f" ({100 * (after / before - 1):+.0f} %)" if before and after is not None else ""
    return (
        f"peak {report.before.told_peak} before, {report.after.told_peak} after{saved}, "
        f"estimated step time {report.plan.told_time}"
    )


def _side(axes: Any, side: Side, left: float, top: int) -> _Stacked:
    """Draws the areas and the lines of a side; returns the areas."""
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
        return []
    axes.text(
        left + 0.5,
        -0.012,
        "allocations and releases, in order",
        transform=axes.get_xaxis_transform(),
        ha="center",
        va="top",
        fontsize=8,
        color=_SOFT,
        gid=f"{side.name}-axis",
    )
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
    return stacked


def _budget(axes: Any, budget: int, width: float) -> None:
    """Draws the budget, and tells it where nothing else is told, as far to the right as can be."""
    axes.axhline(budget / MIB, color=_INK, linestyle="--", linewidth=1.2)
    to_pixels = axes.transData.transform
    taken = [_box(text) for text in axes.texts]
    leaders = [
        to_pixels(line.get_xydata()) for line in axes.lines if "-leader-" in (line.get_gid() or "")
    ]
    told = axes.text(width, budget / MIB, f"budget {format_bytes(budget)}", fontsize=8)
    box = _box(told)
    room = Box(*axes.get_window_extent().extents)
    height = float(to_pixels((0, budget / MIB))[1])
    _put(axes, told, beside_line(height, box.size, room, taken, leaders))


def _hatch(area: Any, kind: str) -> None:
    """Gives an area, or its field in the legend, the second cue beside its colour."""
    area.set_hatch(3 * HATCHES[kind])
    area.set_edgecolor((*([0.0] * 3 if ink(OF_KIND[kind]) == _INK else [1.0] * 3), 0.35))


def _peak(axes: Any, side: Side, stacked: _Stacked, left: float, budget: int | None) -> None:
    """Marks the peak, tells its bytes, and puts each named row's number into its area there.

    Where an area is too thin, its number stands beside it.
    """
    peak = left + side.peak_x / (side.x[-1] or 1.0), (side.peak_bytes or 0) / MIB
    axes.plot(*([one] for one in peak), marker="v", color=_INK, markersize=5)
    number, thin = _numbers(axes, side, stacked, peak)
    told = _told(axes, side, peak)
    text = _box(told)
    told.set_visible(False)  # until it has a place
    room = _room(axes, left)
    x, y = axes.transData.transform(peak)
    found = placed(
        Task(
            peak=(float(x), float(y)),
            text=text.size,
            number=number,
            thin=tuple(middle for middle, _ in thin),
            room=room,
            taken=tuple(_box(text) for text in axes.texts if text.get_visible()),
            lines=tuple(_lines(axes, side, left, budget, room)),
        )
    )
    _put(axes, told, found.text)
    column = found.column
    for (_, one), place, leader in zip(thin, column.numbers, column.leaders, strict=True):
        _put(axes, one, place)
        _lead(axes, leader, one.get_gid().replace("number", "leader"))


def _told(axes: Any, side: Side, peak: Point) -> Any:
    told = f"{side.told_peak} predicted"
    if side.measured_bytes is not None:
        told += f"\n{format_bytes(side.measured_bytes)} measured"
    white = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1}
    return axes.text(*peak, told, fontsize=8, bbox=white, zorder=6, gid=f"{side.name}-peak")


def _numbers(
    axes: Any, side: Side, stacked: _Stacked, peak: Point
) -> tuple[Point, list[tuple[float, Any]]]:
    """Puts numbers into their areas at the peak.

    Returns:
      (Width and height of a number, [(middle of an area, in pixels, its number)] where the area is
      too thin, the lowest first).
    """
    texts = []
    for number, kind in _numbered(side, stacked):
        texts.append(axes.text(*peak, str(number), **_number_style(kind)))
        texts[-1].set_gid(f"{side.name}-number-{number}")
    sizes = [_box(text).size for text in texts] or [(0.0, 0.0)]
    wide, high = map(max, zip(*sizes, strict=True))
    thin = []
    for text, between in zip(texts, _heights(side, stacked), strict=True):
        bottom, top = (float(axes.transData.transform((0, one / MIB))[1]) for one in between)
        if top - bottom > high:
            text.set_y(sum(between) / 2 / MIB)
        else:
            text.set_visible(False)  # until it has a place
            thin.append(((bottom + top) / 2, text))
    return (wide, high), thin


def _lead(axes: Any, leader: Line, gid: str) -> None:
    points = axes.transData.inverted().transform(leader).T
    for color, width in (("white", 2.0), (_INK, 0.7)):
        (line,) = axes.plot(*points, color=color, linewidth=width, zorder=5)
    line.set_gid(gid)


def _room(axes: Any, left: float) -> Box:
    """Where texts of one side may stand."""
    frame = axes.get_window_extent()
    (start, bottom), (end, _) = axes.transData.transform(
        [(left - _GAP / 2, 0), (left + 1 + _GAP / 2, 0)]
    )
    return Box(max(frame.x0, start), bottom, min(frame.x1, end), frame.y1)


def _numbered(side: Side, stacked: _Stacked) -> list[tuple[int, str]]:
    """Numbers of the named rows, the lowest at the peak first, and their kinds."""
    numbers = {alike(row[0]): number for number, row in enumerate(largest(side.parts), 1)}
    found = (parts[0] for parts, _ in stacked)
    return [(numbers[alike(part)], part.kind) for part in found if alike(part) in numbers]


def _heights(side: Side, stacked: _Stacked) -> list[tuple[int, int]]:
    """Between which bytes the areas of the named rows stand at the peak."""
    at = max(
        (index for index, place in enumerate(side.x) if place == side.peak_x),
        key=lambda index: sum(sizes[index] for _, sizes in stacked),
    )
    named = {alike(row[0]) for row in largest(side.parts)}
    low, found = 0, []
    for parts, sizes in stacked:
        if alike(parts[0]) in named:
            found.append((low, low + sizes[at]))
        low += sizes[at]
    return found


def _number_style(kind: str) -> dict[str, Any]:
    color = OF_KIND[kind]
    return {
        "color": ink(color),
        "fontsize": 8,
        "fontweight": "bold",
        "ha": "center",
        "va": "center",
        "zorder": 7,
        "bbox": {"facecolor": color, "edgecolor": "white", "linewidth": 0.6, "pad": 1.5},
    }


def _lines(axes: Any, side: Side, left: float, budget: int | None, room: Box) -> Iterator[Box]:
    """The budget, and where the gradient begins."""
    to_pixels = axes.transData.transform
    if budget is not None:
        height = to_pixels((0, budget / MIB))[1]
        yield Box(room.left, height - 1, room.right, height + 1)
    if side.gradient_x is not None:
        place = to_pixels((left + side.gradient_x / (side.x[-1] or 1.0), 0))[0]
        yield Box(place - 1, room.bottom, place + 1, room.top)


def _box(text: Any) -> Box:
    """Where a text stands, the field behind it included."""
    renderer = text.figure.canvas.get_renderer()
    text.update_bbox_position_size(renderer)
    extent = (text.get_bbox_patch() or text).get_window_extent(renderer)
    return Box(extent.x0, extent.y0, extent.x1, extent.y1)


def _put(axes: Any, text: Any, box: Box) -> None:
    """Moves a text into the middle of a box, and shows it."""
    middle = (box.left + box.right) / 2, (box.bottom + box.top) / 2
    text.set_position(axes.transData.inverted().transform(middle))
    text.set(ha="center", va="center", multialignment="left", visible=True)


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


def _largest(figure: Any, side: Side, names: Names, left: float, right: float) -> None:
    """Lists the largest blobs at the peak below the areas, between two shares of the width."""
    found = largest(side.parts)
    if not found:
        return
    figure.text(left, 0.255, f"largest {side.name}, at the peak", fontweight="bold")
    for number, row in enumerate(found, 1):
        size = format_bytes(sum(part.bytes for part in row))
        told = f"{number}  {size:>10}  {title(row)}"
        made = figure.text(left, 0.255 - 0.042 * number, told, family="monospace", fontsize=8)
        _shorten(figure, made, right)
        part = row[0]
        where = f"{names.places(row, 2)}, {lines(row)}: {part.decision or part.kind}"
        below = (left + 0.03, 0.236 - 0.042 * number)
        _shorten(figure, figure.text(*below, where, fontsize=7.5, color=_SOFT), right)


def _shorten(figure: Any, text: Any, right: float) -> None:
    """Cuts the middle out of a text that goes on behind a share of the figure's width."""
    whole = text.get_text()
    kept = len(whole)
    while kept > 1 and _box(text).right > right * figure.bbox.width:
        kept -= 1
        text.set_text(f"{whole[: (kept + 1) // 2]}…{whole[len(whole) - kept // 2 :]}")
