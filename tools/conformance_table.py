"""Writes what works into README.md and docs/what-works.md: python -m tools.conformance_table.

It runs tests/conformance once, or reads the cells of such a run (--cells=FILE, which a run with
RNNMEM_CELLS=FILE in its environment writes). The README gets a line a group of programs, between
two markers; the document a line a program.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.conformance.programs import PROGRAMS

ROOT = Path(__file__).resolve().parent.parent
README, DOCUMENT = ROOT / "README.md", ROOT / "docs" / "what-works.md"
BEGIN, END = "<!-- what works: make conformance-table -->", "<!-- end of what works -->"

COLUMNS = {
    "same bits": ("bits",),
    "bits, fusions off": ("bits without fusions",),
    "side effects": ("side effects",),
    "peak no higher": ("peak",),
    "peak as predicted": ("prediction", "prediction as it was"),
}
"""What every program is asked; column -> properties, all of which must hold."""

GROUPS = {
    "while": "`tf.while_loop`",
    "autograph": "AutoGraph `for`, `while`",
    "functional": "`tf.scan`, `foldl`, `map_fn`",
    "tensorarray": "TensorArrays",
    "nested": "loops in loops",
    "branch": "`tf.cond`, `tf.switch_case`",
    "several": "several loops",
    "gradients": "two losses, custom and second gradients",
    "calls": "functions with a backward half of their own",
    "training": "training loops with the tape inside",
    "sparse": "embeddings",
    "ragged": "ragged and variable length",
    "random": "random ops in the body",
    "effects": "prints, assigns, Python, asserts",
    "keras": "Keras layers",
    "keras_like": "Keras models",
    "straight": "steps without a loop, and code beside one or in a training loop",
}
"""Beginning of a program's name -> what its group is called."""

YES, NO, NOT_ASKED = "yes", "**no**", "–"


@dataclasses.dataclass
class Row:
    """One program's cells.

    Attributes:
      name: the program.
      problems: property -> why it does not hold, empty where it does.
      facts: "peak before", "peak by default", "peak with most time" in bytes; "reasons".
    """

    name: str
    problems: dict[str, str] = dataclasses.field(default_factory=dict)
    facts: dict[str, object] = dataclasses.field(default_factory=dict)

    @property
    def group(self) -> str:
        """The beginning of its name."""
        return self.name.split(".")[0]

    def saved(self, label: str) -> float | None:
        """The part of the peak that is gone, 0 to 1; None where it was not measured."""
        before = self.facts.get("peak before")
        after = self.facts.get(label, self.facts.get("peak with most time"))
        return None if not before or after is None else max(0.0, 1.0 - after / before)

    def cell(self, column: str) -> str:
        """Whether a column's properties hold, in a word."""
        asked = [one for one in COLUMNS[column] if one in self.problems]
        if not asked:
            return NOT_ASKED
        return NO if any(self.problems[one] for one in asked) else YES

    def others(self) -> tuple[str, ...]:
        """Properties asked beside the columns, that hold."""
        columns = {one for some in COLUMNS.values() for one in some}
        return tuple(k for k, problem in self.problems.items() if k not in columns and not problem)

    def remarks(self) -> str:
        """Why it is left alone, or a cell does not hold."""
        left = self.facts.get("reasons") or []
        gaps = [f"{name}: {problem}" for name, problem in self.problems.items() if problem]
        return "; ".join([*left, *gaps])


def rows_of(cells: Iterable[list]) -> list[Row]:
    """Gathers ``[program, property, value]`` by program, in the order of the programs."""
    rows: dict[str, Row] = {}
    for program, name, value in cells:
        row = rows.setdefault(program, Row(program))
        fact = name == "reasons" or (name.startswith("peak") and name != "peak")
        if fact:
            row.facts[name] = value
        elif not row.problems.get(name):
            row.problems[name] = value
    return [rows[name] for name in PROGRAMS if name in rows]


def by_group(rows: list[Row]) -> list[str]:
    """The README's table: a line a group."""
    lines = [
        f"| programs | how many | {' | '.join(COLUMNS)} | improved | peak saved, median |",
        f"| --- | ---: | {' | '.join('---:' for _ in COLUMNS)} | ---: | ---: |",
    ]
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    for group, some in groups.items():
        counts = [_share([row.cell(column) for row in some]) for column in COLUMNS]
        saved = sorted(row.saved("peak by default") or 0.0 for row in some)
        left = sum(bool(row.facts.get("reasons")) for row in some)
        cells = (
            GROUPS[group],
            str(len(some)),
            *counts,
            f"{len(some) - left}",
            f"{saved[len(saved) // 2]:.0%}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _share(cells: list[str]) -> str:
    asked = [cell for cell in cells if cell != NOT_ASKED]
    if not asked:
        return NOT_ASKED
    held = asked.count(YES)
    return "all" if held == len(asked) else f"{held} of {len(asked)}"


def by_program(rows: list[Row]) -> list[str]:
    """The document's table: a line a program."""
    lines = [
        f"| program | {' | '.join(COLUMNS)} | saved | saved, most time | also holds | remarks |",
        f"| --- | {' | '.join('---' for _ in COLUMNS)} | ---: | ---: | --- | --- |",
    ]
    for row in rows:
        saved = [row.saved(label) for label in ("peak by default", "peak with most time")]
        cells = (
            f"`{row.name}`",
            *(row.cell(column) for column in COLUMNS),
            *("–" if one is None else f"{one:.0%}" for one in saved),
            ", ".join(row.others()),
            row.remarks(),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def readme_with(text: str, table: list[str]) -> str:
    """The README's text with the table between its markers.

    Raises:
      ValueError: a marker is missing.
    """
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise ValueError(f"README.md must hold {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n" + "\n".join(table) + f"\n\n{END}{after}"


DOCUMENT_HEAD = """\
# What works

`make conformance-table` writes this file from a run of `tests/conformance`. Every program runs
three train steps as it is and optimised, and outputs, gradients, variables and side effects are
compared; *saved* is the part of the peak that is gone, by default and with all the time of the
world; *fusions off* is without the three passes of TensorFlow's graph optimizer that fuse by
neighbourhood; *peak as predicted* asks whether the measured peaks lie between the lowest and the
highest predicted one, where all shapes are fixed. *Also holds* lists the properties that only some
programs are tested for. Where something does not hold or is left alone, the last column says why.

"""


def cells_of_a_run() -> list[list]:
    """Runs the conformance tests and returns the cells that they wrote."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cells"
        environment = {**os.environ, "RNNMEM_CELLS": str(path)}
        command = [sys.executable, "-m", "pytest", "-q", "tests/conformance"]
        command += ["-n", "auto", "--dist=worksteal"]
        subprocess.run(command, cwd=ROOT, env=environment, check=False)
        return read(path)


def read(path: Path) -> list[list]:
    """The cells of a file, one in a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Writes both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=Path, help="cells of a run, instead of a run")
    options = parser.parse_args()
    rows = rows_of(read(options.cells) if options.cells else cells_of_a_run())
    README.write_text(readme_with(README.read_text("utf-8"), by_group(rows)), encoding="utf-8")
    DOCUMENT.write_text(DOCUMENT_HEAD + "\n".join(by_program(rows)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
