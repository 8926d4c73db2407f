"""The quick start as its reader sees it, as pages: in a terminal and in a notebook."""

from __future__ import annotations

import html
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZE = (1000, 2400)
"""Columns and rows of pixels that the pages are shown at."""
SHOWN = "#shown"
"""What is to be seen of a page."""
COLUMNS, ROWS = 80, 60
_ARGUMENTS = "float32[32,50,128]"
_COMMANDS = (
    ("explain", "train.py:train_step", _ARGUMENTS),
    ("measure", "train.py:train_step", _ARGUMENTS, "--budget=3MiB"),
)
_CELLS = ("train_step", "train_step.explain(inputs)", "rnnmem.report(train_step, inputs)")
_PAGE = """<!doctype html><meta charset="utf-8"><style>
#shown {{ display: inline-block; padding: 14px 18px; background: #14181d; color: #e6e9ed;
  font: 14px/1.35 "DejaVu Sans Mono", monospace; white-space: pre; }}
b {{ color: #7cc7ff; font-weight: 400; }}</style><div id="shown">{}</div>"""


def program() -> tuple[str, str]:
    """The quick start's first program: the train step, and the lines that call it."""
    page = (ROOT / "docs" / "quick-start.md").read_text("utf-8")
    first = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert first, "docs/quick-start.md has no program"
    step, line, calls = first[1].partition("inputs = ")
    return step.rstrip() + "\n", line + calls


def terminal() -> str:
    """What two commands print to a terminal of 80 columns."""
    told = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(program()[0], "utf-8")
        for command in _COMMANDS:
            line = " ".join(f"'{one}'" if "[" in one else one for one in command)
            told.append(f"<b>$ rnnmem {html.escape(line)}</b>")
            told.append(html.escape(in_terminal(["-m", "rnnmem", *command], folder).rstrip()))
    return _PAGE.format("\n".join(told))


def in_terminal(arguments: list[str], folder: str) -> str:
    """What Python prints with its standard output in a terminal; what it logs is left out.

    Args:
      arguments: Python's.
      folder: where it runs.

    Raises:
      CalledProcessError: it ended with an error.
    """
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env={**os.environ, **_environment(), "COLUMNS": str(COLUMNS), "LINES": str(ROWS)},
            stdout=theirs,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        printed = b"".join(_read(screen))
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, process.args, printed)
    return printed.decode().replace("\r\n", "\n")


def _read(screen):
    """What comes out of a terminal until nobody holds its other end any more."""
    while True:
        try:
            some = screen.read(4096)
        except OSError:  # Linux tells the end so
            return
        if not some:
            return
        yield some


def notebook() -> str:
    """A notebook that was run; what TensorFlow logs into it is left out."""
    try:
        import nbformat
        from nbconvert import HTMLExporter
        from nbconvert.preprocessors import ExecutePreprocessor
    except ImportError:
        sys.exit("the picture of a notebook needs: pip install nbconvert ipykernel")
    step, calls = program()
    first = "\n\n".join((step, calls.partition("\n")[0], _CELLS[0]))
    cells = [nbformat.v4.new_code_cell(one) for one in (first, *_CELLS[1:])]
    made = nbformat.v4.new_notebook(cells=cells)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(_environment())
        ExecutePreprocessor(timeout=600).preprocess(made, {"metadata": {"path": folder}})
    for cell in made.cells:
        cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    exporter = HTMLExporter(template_name="lab", require_js_url="", mathjax_url="")
    body = exporter.from_notebook_node(made)[0]
    return body.replace("<main", '<main id="shown"', 1)


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
