"""A schedule as a chart of stage against time: as text, or as a picture through matplotlib."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rnnmem.errors import OptionError
from rnnmem.pipeline import schedule as terms
from rnnmem.pipeline.schedule import Action, Schedule
from rnnmem.pipeline.simulator import Costs, Event, Timeline, simulate
from rnnmem.sizes import parse_count

_LETTERS = {terms.FORWARD: "F", terms.BACKWARD: "B", terms.UPDATE: "U"}
_COLORS = {terms.FORWARD: "#7fb2e5", terms.BACKWARD: "#f2b36d", terms.UPDATE: "#a7d3a0"}
_LEGEND = (
    "F forward, B backward, U update; > a value, < a gradient is offered to another stage; "
    "- so many buffers are freed; one column is one time unit"
)


def chart(schedule: Schedule, costs: Costs | None = None, width: int | None = None) -> str:
    """Draws a schedule as text: for each stage its computations, sends and frees.

    Args:
      schedule: it is played, and so checked, first.
      costs: seconds of the computations; by default a forward takes one unit, a backward two.
      width: the most columns of time; the rest is cut off, and the last line says so.

    Raises:
      ScheduleError: the schedule is not right.
      OptionError: ``width`` is no count.
    """
    timeline = simulate(schedule, costs)
    columns = math.ceil(timeline.seconds)
    shown = columns if width is None else min(parse_count(width, "width"), columns)
    lines = []
    for stage in range(schedule.topology.stages):
        events = [event for event in timeline.events if event.action.stage == stage]
        rows = _computations(events), _sends(events), _frees(events)
        for name, cells in zip((f"stage {stage}", "  sends", "  frees"), rows, strict=True):
            if name.startswith("stage") or cells:
                lines.append((name, cells))
    size = max((len(cell) for _, cells in lines for cell in cells.values()), default=1) + 1
    text = [
        f"{name:<9}" + "".join(f"{cells.get(i, ''):<{size}}" for i in range(shown)).rstrip()
        for name, cells in lines
    ]
    cut = "" if shown == columns else f"; {columns - shown} columns more"
    return "\n".join([*text, _LEGEND + cut])


def _computations(events: list[Event]) -> dict[int, str]:
    cells = {}
    for event in events:
        letter = _LETTERS.get(event.action.kind)
        if letter is None:
            continue
        number = "" if event.action.kind == terms.UPDATE else str(event.action.micro_batch)
        first = math.floor(event.start)
        for column in range(first, max(first + 1, math.ceil(event.end))):
            cells[column] = letter + number if column == first else "=" * (len(number) + 1)
    return cells


def _sends(events: list[Event]) -> dict[int, str]:
    cells: dict[int, str] = {}
    for event in events:
        if event.action.kind == terms.SEND:
            buffer = event.action.its_buffer
            arrow = ">" if buffer.kind == terms.VALUE_OUT else "<"
            column = math.floor(event.start)
            cells[column] = cells.get(column, "") + f"{arrow}{buffer.micro_batch}"
    return cells


def _frees(events: list[Event]) -> dict[int, str]:
    counts: dict[int, int] = {}
    for event in events:
        if event.action.kind == terms.FREE:
            column = math.floor(event.start)
            counts[column] = counts.get(column, 0) + 1
    return {column: f"-{count}" for column, count in counts.items()}


def picture(schedule: Schedule, path: str | Path | None = None, costs: Costs | None = None) -> Any:
    """Draws a schedule with matplotlib: stage against time, with sends as arrows, frees as ticks.

    Args:
      schedule: it is played, and so checked, first.
      path: a file to write, of any type that matplotlib knows; None writes none.
      costs: as for :func:`chart`.

    Returns:
      The ``matplotlib.figure.Figure``.

    Raises:
      OptionError: matplotlib is not installed.
      ScheduleError: the schedule is not right.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise OptionError("a picture needs matplotlib: pip install 'rnnmem[report]'") from None
    timeline = simulate(schedule, costs)
    stages = schedule.topology.stages
    figure = Figure(figsize=(min(40.0, 2 + timeline.seconds / 3), 1.2 + 0.8 * stages))
    axes = figure.add_subplot()
    for event in timeline.events:
        _draw(axes, event, timeline)
    axes.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
    axes.set_ylim(stages - 0.4, -0.6)
    axes.set_xlim(0, timeline.seconds)
    axes.set_xlabel("time")
    axes.set_title(f"{schedule.name}, {schedule.micro_batches} micro-batches")
    figure.tight_layout()
    if path is not None:
        figure.savefig(path)
    return figure


def _draw(axes: Any, event: Event, timeline: Timeline) -> None:
    action = event.action
    if action.kind in _COLORS:
        _draw_computation(axes, event)
    elif action.kind == terms.RECEIVE and action.its_buffer.peer != terms.HOST:
        sent = action.its_buffer.other_end
        axes.annotate(
            "",
            xy=(event.end, action.stage),
            xytext=(event.start, sent.stage),
            arrowprops={"arrowstyle": "->", "color": "#666666", "lw": 0.6},
        )
    elif action.kind == terms.FREE:
        axes.plot([event.start] * 2, [action.stage + 0.3, action.stage + 0.42], "k-", lw=0.6)


def _draw_computation(axes: Any, event: Event) -> None:
    action: Action = event.action
    number = "" if action.kind == terms.UPDATE else action.micro_batch
    length = event.end - event.start
    axes.barh(
        action.stage,
        length,
        left=event.start,
        height=0.6,
        color=_COLORS[action.kind],
        edgecolor="white",
    )
    axes.text(
        event.start + length / 2,
        action.stage,
        f"{_LETTERS[action.kind]}{number}",
        ha="center",
        va="center",
        fontsize=7,
    )
