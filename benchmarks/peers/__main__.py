"""The same models in rnnmem and in its peers: memory, time, and whether gradients keep their bits.

    python -m benchmarks.peers                                    # everything; needs ".[peers]"
    python -m benchmarks.peers --models=nmt-150 --only=rnnmem,jax-checkpoint
    python -m benchmarks.peers --page=docs/peers.md --picture=docs/images/peers.png --nomeasure

Every model runs in every column in a process of its own, one after the other; what a filter leaves
out keeps its figures in the JSON. A framework that is not installed, or a step that takes longer
than `--timeout`, has its reason in the place of figures.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from absl import app, flags

from benchmarks.peers import child, table
from benchmarks.peers.columns import COLUMNS
from benchmarks.peers.models import MODELS
from benchmarks.peers.table import Cell

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the knobs; not on import, so that these programs can be imported side by side."""
    flags.DEFINE_list("models", list(MODELS), "which models to run")
    flags.DEFINE_list("only", list(COLUMNS), "which columns to run, and what they are held against")
    flags.DEFINE_bool("small", False, "small sizes, for tests")
    flags.DEFINE_bool("measure", True, "run; otherwise only draw what the JSON holds")
    flags.DEFINE_float("timeout", 120, "seconds that a process may take")
    flags.DEFINE_string("json", "benchmarks/results/peers-cpu.json", "where the figures are kept")
    flags.DEFINE_string("page", None, "write the tables into this document, between its markers")
    flags.DEFINE_string("summary", None, "write the short table into this document")
    flags.DEFINE_string("picture", None, "draw the figures into this file")
    for name, known in (("models", MODELS), ("only", COLUMNS)):
        flags.register_validator(
            name,
            lambda names, known=known: all(one in known for one in names),
            f"choose from {', '.join(known)}",
        )


def with_references(names: list[str]) -> list[str]:
    """The columns and those that their gradients are held against, in the order of `COLUMNS`."""
    wanted = {"tensorflow", *names, *(COLUMNS[name].plain for name in names)}
    return [name for name in COLUMNS if name in wanted]


def run(model: str, column: str, folder: Path, small: bool, timeout: float) -> Cell:
    """Measures one model in one column; its arrays go to the folder."""
    if COLUMNS[column].missing:
        return Cell(model, column, reason=f"{COLUMNS[column].missing} is not installed")
    found: dict = {}
    asked = {"model": model, "column": column, "small": small}
    for figures in child.runs(column):
        # What a run finds first stays; another run of the column only adds to it.
        arrays = str(folder / (f"{column}.npz" if not found else "again.npz"))
        given = json.dumps({**asked, "figures": figures, "arrays": arrays})
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.peers.child", given]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return Cell(model, column, reason=f"not done in {timeout:g} s")
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.strip()] or [""]
            return Cell(model, column, reason=said[-1].strip()[:200])
        found = json.loads(done.stdout.splitlines()[-1]) | found
    cell = Cell(model, column, **found)
    return dataclasses.replace(cell, **compared(cell, folder))


def compared(cell: Cell, folder: Path) -> dict:
    """The loss and the gradients held against the framework's own and against TensorFlow's."""
    found = np.load(folder / f"{cell.column}.npz")
    plain = np.load(folder / f"{COLUMNS[cell.column].plain}.npz")
    tensorflow = np.load(folder / "tensorflow.npz")
    return {
        "loss": float(found["loss"]),
        "same_bits": all(found[name].tobytes() == plain[name].tobytes() for name in plain),
        "off_plain": largest_difference(found, plain),
        "off_tensorflow": largest_difference(found, tensorflow),
    }


def largest_difference(found, other) -> float:
    """The largest difference of an element of a gradient, by the largest element of it."""
    return max(
        float(np.abs(found[name] - other[name]).max() / np.abs(other[name]).max()) for name in other
    )


def measure(cells: dict[tuple[str, str], Cell]) -> None:
    """Runs what the flags ask for, and writes the JSON after each."""
    for model in FLAGS.models:
        with tempfile.TemporaryDirectory() as folder:
            for column in with_references(FLAGS.only):
                cell = run(model, column, Path(folder), FLAGS.small, FLAGS.timeout)
                cells[model, column] = cell
                print(cell, flush=True)
                write(cells)


def write(cells: dict[tuple[str, str], Cell]) -> None:
    """Writes the figures, the machine and the versions."""
    from models.nmt.benchmark import environment

    document = {
        "results": [dataclasses.asdict(cell) for cell in cells.values()],
        **environment(),
        "peers": table.versions(),
        "flags": {"small": FLAGS.small, "timeout": FLAGS.timeout},
    }
    Path(FLAGS.json).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def main(_) -> None:
    """Measures, and writes JSON, page and picture."""
    cells = table.read(FLAGS.json)
    if FLAGS.measure:
        measure(cells)
    print(table.tables(cells))
    if FLAGS.page:
        table.write_page(table.tables(cells), FLAGS.page)
    if FLAGS.summary:
        table.write_page(table.summary(cells), FLAGS.summary)
    if FLAGS.picture:
        table.draw(cells, FLAGS.picture)


if __name__ == "__main__":
    define_flags()
    app.run(main)
