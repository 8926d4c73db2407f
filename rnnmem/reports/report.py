"""``Report``: everything that is said of one function, and the forms that it can be told in."""

from __future__ import annotations

import dataclasses
import html
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from rnnmem.errors import OptionError
from rnnmem.planning.plan import Plan
from rnnmem.planning.sentences import sentences
from rnnmem.reports import terminal
from rnnmem.reports.data import Graph, Part, Side


@dataclasses.dataclass(frozen=True)
class Report:
    """Where the memory of a function goes, before and after; ``print`` it, or ``save`` it.

    Attributes:
      name: the function's name.
      before: the function as TensorFlow runs it.
      after: as rnnmem runs it; equal to ``before`` but for its name where nothing was changed.
      plan: the decisions.
      resident: what is in memory before the function runs, the largest first.
      budget: bytes that the user gave, or None.
      graphs: the step nets, before and after.
      notes: what a reader should know, in sentences.
      seconds: what took how long: ``plan`` (tracing included), ``report``, ``measure``.
      functions: loops -> the user's Python functions that made them, where known.
      applied: whether the function runs as ``after``; else that is what rnnmem would make of it.
      made: where the report comes from: device, versions, arguments, options, date; in words.
    """

    name: str
    before: Side
    after: Side
    plan: Plan
    resident: tuple[Part, ...] = ()
    budget: int | None = None
    graphs: tuple[Graph, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    functions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    made: Mapping[str, str] = dataclasses.field(default_factory=dict)
    applied: bool = True

    @property
    def running(self) -> Side:
        """The one of the two sides as which the function runs."""
        return self.after if self.applied else self.before

    def __str__(self) -> str:
        """The report as text that fits the terminal."""
        return self.text()

    __repr__ = __str__

    def text(self, width: int | None = None) -> str:
        """The report as text.

        Args:
          width: columns; None: those of the terminal, 80 where there is none.
        """
        return terminal.text(self, width)

    def _repr_html_(self) -> str:
        """The page in a frame of a notebook."""
        page = html.escape(self.to_html(), quote=True)
        style = "width:100%;height:720px;border:0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'

    def summary(self) -> str:
        """The first lines of the report: what was changed, and the peaks."""
        return terminal.summary(self)

    def to_dict(self) -> dict[str, Any]:
        """The report as dicts, lists, texts and numbers; sizes in bytes, unknown ones None."""
        return {
            "name": self.name,
            "budget_bytes": self.budget,
            "applied": self.applied,
            "notes": list(self.notes),
            "made": dict(self.made),
            "seconds": dict(self.seconds),
            "functions": dict(self.functions),
            "resident": [dataclasses.asdict(part) for part in self.resident],
            "before": _side(self.before),
            "after": _side(self.after),
            "plan": self.plan.to_data(),
            "decisions": list(sentences(self.plan)),
        }

    def to_json(self) -> str:
        """The report as JSON text; see :meth:`to_dict`."""
        return json.dumps(self.to_dict(), indent=1)

    def to_html(self) -> str:
        """One page that needs no network: timelines to hover over, step nets to click into."""
        from rnnmem.reports import page

        return page.html(self)

    def to_trace(self) -> str:
        """JSON for ``chrome://tracing`` or ui.perfetto.dev: counters of bytes, slices of loops."""
        from rnnmem.reports import trace

        return json.dumps(trace.events(self))

    def to_png(self) -> bytes:
        """The picture of both timelines on one axis, as PNG.

        Raises:
          OptionError: matplotlib is missing.
        """
        from rnnmem.reports import picture

        return picture.drawn(self, "png")

    def to_svg(self) -> str:
        """The same picture as SVG text.

        Raises:
          OptionError: matplotlib is missing.
        """
        from rnnmem.reports import picture

        return picture.drawn(self, "svg").decode()

    def to_tensorboard(self, log_dir: str | os.PathLike, step: int = 0) -> None:
        """Writes peaks as scalars and the picture as an image, for TensorBoard.

        Args:
          log_dir: folder of the event files.
          step: the training step that they are told for.

        Raises:
          OptionError: tensorboard or matplotlib is missing.
        """
        from rnnmem.reports import tensorboard

        with tensorboard.Writer(log_dir) as writer:
            writer.report(self, step)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the report to a file, in the form that its ending names.

        Args:
          path: ends in ``.html``, ``.json``, ``.png``, ``.svg``, ``.txt``, or in ``.trace.json``
            for a trace.

        Raises:
          OptionError: another ending, a path that cannot be written to, or matplotlib is missing
            for a picture.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise OptionError(f"path={path!r} must be the path of a file")
        path = os.fsdecode(path)
        ending = next((one for one in _FORMS if path.lower().endswith(one)), None)
        if ending is None:
            raise OptionError(f"path={path!r} must end in one of {', '.join(_FORMS)}")
        content = _FORMS[ending](self)
        try:
            with open(path, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
        except (OSError, ValueError) as error:  # a ValueError: a NUL byte
            why = getattr(error, "strerror", None) or error
            raise OptionError(f"path={path!r} cannot be written: {why}") from None


_FORMS: Mapping[str, Callable[[Report], str | bytes]] = {
    ".trace.json": Report.to_trace,
    ".json": Report.to_json,
    ".html": Report.to_html,
    ".png": Report.to_png,
    ".svg": Report.to_svg,
    ".txt": str,
}


def _side(side: Side) -> dict[str, Any]:
    told = dataclasses.asdict(side)
    told["peak_by_kind"] = side.by_kind()
    told["timeline"] = {
        "x": list(side.x),
        "bytes_in_use": list(side.totals),
        "areas": told.pop("areas"),
    }
    del told["x"]
    return told
