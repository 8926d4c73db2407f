"""What was measured beside the peers, as tables and as a picture."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.columns import COLUMNS
from benchmarks.peers.models import MODELS
from rnnmem.sizes import MIB

BEGIN, END = "<!-- peers: python -m benchmarks.peers -->", "<!-- end of peers -->"
OURS = "rnnmem"
"""The column that the others are compared with."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One model in one column.

    Attributes:
      model: a name in `MODELS`.
      column: a name in `COLUMNS`.
      counted_bytes: the peak above the resident state, as the framework counts it.
      process_bytes: the peak of the process's resident set above its idle state.
      seconds: the median time of a step.
      repeats: timed steps.
      first_call_seconds: of tracing, planning, compiling and the first step.
      loss: of the step.
      repeats_itself: whether a second step gave the same bits.
      same_bits: whether loss and gradients have the bits of the framework's own.
      off_plain: the largest difference from it in a gradient, by that gradient's largest element.
      off_tensorflow: likewise from TensorFlow's.
      reason: why there are no figures.
    """

    model: str
    column: str
    counted_bytes: int | None = None
    process_bytes: int | None = None
    seconds: float | None = None
    repeats: int | None = None
    first_call_seconds: float | None = None
    loss: float | None = None
    repeats_itself: bool | None = None
    same_bits: bool | None = None
    off_plain: float | None = None
    off_tensorflow: float | None = None
    reason: str | None = None

    def __str__(self) -> str:
        """One line."""
        name = f"{self.model:18}{self.column:22}"
        if self.reason:
            return f"{name}{self.reason}"
        return (
            f"{name}{_mib(self.counted_bytes):>8} MiB counted {_mib(self.process_bytes):>8} MiB of "
            f"the process {self.seconds:8.3f} s  {_bits(self)}"
        )


Cells = dict[tuple[str, str], Cell]


def read(path: str) -> Cells:
    """The figures of a JSON file; none where there is no file."""
    if not Path(path).is_file():
        return {}
    rows = json.loads(Path(path).read_text(encoding="utf-8"))["results"]
    return {(row["model"], row["column"]): Cell(**row) for row in rows}


def versions() -> dict[str, str | None]:
    """Of the peers."""
    found = {}
    for name in ("jax", "jaxlib", "equinox", "torch"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def _mib(size: int | None) -> str:
    return "not counted" if size is None else f"{size / MIB:.1f}"


def _bits(cell: Cell) -> str:
    if cell.same_bits:
        return "same"
    own = "" if cell.repeats_itself else ", varies by itself"
    return f"off {cell.off_plain:.0e}{own}"


TABLES: dict[str, Callable[[Cell], str]] = {
    "Peak above the resident state as the framework counts it, MiB": lambda cell: _mib(
        cell.counted_bytes
    ),
    "Peak of the process above its idle state, MiB": lambda cell: _mib(cell.process_bytes),
    "Median time of a step, s": lambda cell: f"{cell.seconds:.3f}",
    "Bits of loss and gradients beside the same framework's own": _bits,
}
"""Title -> what stands in a cell."""


SUMMARY = (
    *("tensorflow", "rnnmem", "rnnmem-1.35", "recompute-grad"),
    *("jax", "jax-checkpoint", "jax-nested-checkpoint", "equinox", "torch", "torch-checkpoint"),
)
"""Columns of the short table."""
SUMMARY_TITLE = "Peak above the resident state, MiB"


def summary(cells: Cells) -> str:
    """The short table: memory as the framework counts it."""
    names = [name for name in SUMMARY if any(column == name for _, column in cells)]
    notes: list[str] = []
    rows = _table(cells, SUMMARY_TITLE, names, lambda cell: _mib(cell.counted_bytes), notes)
    return "\n\n".join([rows, *_listed(notes)])


def tables(cells: Cells) -> str:
    """All figures: a table of each kind, a line a column, and the reasons of what is not there."""
    columns = [name for name in COLUMNS if any(column == name for _, column in cells)]
    notes: list[str] = []
    blocks = [_table(cells, title, columns, shown, notes) for title, shown in TABLES.items()]
    return "\n\n".join([*blocks, *_listed(notes), better(cells)])


def _table(
    cells: Cells, title: str, columns: list[str], shown: Callable[[Cell], str], notes: list[str]
) -> str:
    models = [name for name in MODELS if any(model == name for model, _ in cells)]
    lines = [f"| {title} | {' | '.join(models)} |", f"| --- |{' ---: |' * len(models)}"]
    for column in columns:
        row = (_shown(cells.get((model, column)), shown, notes) for model in models)
        lines.append(f"| {COLUMNS[column].title} | {' | '.join(row)} |")
    return "\n".join(lines)


def _listed(notes: list[str]) -> list[str]:
    """The reasons of what is not there, as one block."""
    listed = "\n".join(f"{number}. {note}" for number, note in enumerate(notes, 1))
    return [listed] if listed else []


def _shown(cell: Cell | None, shown: Callable[[Cell], str], notes: list[str]) -> str:
    """A cell's text; a reason is a note's number."""
    if cell is None:
        return ""
    if cell.reason is None:
        return shown(cell)
    if cell.reason not in notes:
        notes.append(cell.reason)
    return f"({notes.index(cell.reason) + 1})"


def better(cells: Cells) -> str:
    """Where another framework needs less memory, or less time, than rnnmem does by default."""
    lines = []
    for (model, column), cell in cells.items():
        ours = cells.get((model, OURS))
        peer = COLUMNS[column].framework != "tensorflow"
        if not peer or ours is None or ours.counted_bytes is None or cell.counted_bytes is None:
            continue
        if cell.counted_bytes < ours.counted_bytes:
            memory = f"{_mib(cell.counted_bytes)} MiB against {_mib(ours.counted_bytes)}"
            lines.append(
                f"* {model}: {COLUMNS[column].title} needs less memory, {memory}, "
                f"at {cell.seconds:.3f} s against {ours.seconds:.3f} s."
            )
    head = "Where a peer needs less memory than rnnmem's default, as each counts it:\n\n"
    return head + "\n".join(lines or ["* nowhere."])


def write_page(told: str, path: str) -> None:
    """Replaces what stands between the markers of a document."""
    text = Path(path).read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{path} has no lines {BEGIN!r} and {END!r}")
    Path(path).write_text(f"{before}{BEGIN}\n\n{told}\n\n{END}{after}", encoding="utf-8")


MARKS = {"tensorflow": "o", "jax": "s", "torch": "^"}


def draw(cells: Cells, path: str) -> None:
    """Memory against time, a panel a model; left and low is better."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    models = [name for name in MODELS if any(model == name for model, _ in cells)]
    figure = Figure(figsize=(14, 7), layout="constrained")
    panels = figure.subplots(2, (len(models) + 2) // 2, squeeze=False).flatten()
    handles = {}
    for model, panel in zip(models, panels, strict=False):
        for number, (name, column) in enumerate(COLUMNS.items()):
            cell = cells.get((model, name))
            if cell is None or cell.counted_bytes is None or cell.seconds is None:
                continue
            handles[column.title.replace("**", "").replace("`", "")] = panel.scatter(
                cell.seconds,
                cell.counted_bytes / MIB,
                marker="*" if name.startswith(OURS) else MARKS[column.framework],
                s=160 if name.startswith(OURS) else 50,
                color=f"C{number % 10}",
                edgecolors="black" if number >= 10 else "none",
            )
        panel.set(title=model, xscale="log", yscale="log", xlabel="s a step", ylabel="MiB")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
        panel.grid(alpha=0.3)
    for panel in panels[len(models) :]:
        panel.axis("off")
    panels[-1].legend(handles.values(), handles.keys(), loc="center", fontsize=8)
    figure.savefig(path, dpi=110)
