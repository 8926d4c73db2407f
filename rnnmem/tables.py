"""Lines and tables as plain text, without colours or markup, and as HTML for notebooks."""

from __future__ import annotations

import html
import io
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence

from rich.console import Console
from rich.table import Table

WIDTH = 132
"""Columns of tables where text goes elsewhere than to a terminal."""
_NARROWEST = 60
_WIDEST = 10_000
"""Columns of what is not folded."""


def terminal_width() -> int | None:
    """Columns of the terminal that is printed to; None where there is none: a log is searched."""
    if not sys.stdout.isatty():
        return None
    return max(_NARROWEST, shutil.get_terminal_size((WIDTH, 24)).columns)


def as_html(parts: Iterable[Table | str]) -> str:
    """Lines and tables for a notebook: paragraphs, and tables that may be scrolled sideways."""
    return "".join(map(_as_html, parts))


def _as_html(part: Table | str) -> str:
    if isinstance(part, str):
        return f"<p>{html.escape(part)}</p>"
    sides = [f'style="text-align:{one.justify}"' for one in part.columns]
    headings = "".join(
        f"<th {side}>{html.escape(str(one.header))}</th>"
        for side, one in zip(sides, part.columns, strict=True)
    )
    rows = zip(*(column.cells for column in part.columns), strict=True)
    cells = (
        "".join(
            f"<td {side}>{html.escape(str(cell))}</td>"
            for side, cell in zip(sides, row, strict=True)
        )
        for row in rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f'<div style="overflow-x:auto"><table><tr>{headings}</tr>{body}</table></div>'


def table_of(
    headings: Sequence[str],
    numbers: Collection[str] = (),
    *,
    width: int | None = None,
    folds: bool = True,
) -> Table:
    """An empty table without a frame.

    Args:
      headings: of the columns.
      numbers: those whose columns stand to the right.
      width: the least that a column of numbers has; None: what it needs.
      folds: whether long cells are folded.
    """
    table = Table(box=None, pad_edge=False, header_style="")
    for heading in headings:
        right = heading in numbers
        table.add_column(
            heading,
            justify="right" if right else "left",
            min_width=width if right else None,
            overflow="fold",
            no_wrap=not folds,
        )
    return table


def plain_text(parts: Iterable[Table | str], width: int = _WIDEST, *, wraps: bool = False) -> str:
    """Lines and tables, one below the other.

    Args:
      parts: them.
      width: columns of tables that fold; of lines too, where these are wrapped.
      wraps: whether long lines are wrapped.
    """
    out = io.StringIO()
    console = Console(
        file=out,
        width=_WIDEST,
        no_color=True,
        highlight=False,
        markup=False,
        emoji=False,
        force_jupyter=False,  # else it shows what it prints in the notebook, and writes nothing
    )
    for part in parts:
        folds = wraps if isinstance(part, str) else not part.columns[-1].no_wrap
        console.print(part, width=width if folds else None, soft_wrap=not folds)
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())
