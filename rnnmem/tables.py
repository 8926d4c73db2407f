"""Lines and tables as plain text, without colours or markup, and as HTML for notebooks."""

from __future__ import annotations

import html
import io
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table

from rnnmem.wrapping import longest_part, longest_word, wrapped

WIDTH = 132
"""Columns of tables where text goes elsewhere than to a terminal; sentences are never longer."""
_NARROWEST = 60
_WIDEST = 10_000
"""Columns of what is not folded."""
_BETWEEN = 2
"""Columns between two of a table's."""
_READABLE = 14
"""Columns of a text that is parted, where there is room for so many."""


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

    What has to be parted is parted between words; names that are longer, at their seams.
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
        if isinstance(part, str):
            told: Table | str = "\n".join(wrapped(part, min(width, WIDTH)) if wraps else [part])
        else:
            told = part if part.columns[-1].no_wrap else _folded(part, width)
        console.print(told, soft_wrap=True)
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def _folded(table: Table, width: int) -> Table:
    """A table with its cells in lines, so that it is no wider than a width."""
    columns = [[str(one.header), *map(str, one.cells)] for one in table.columns]
    widths = _widths(table.columns, columns, width - _BETWEEN * (len(columns) - 1))
    folded = Table(box=None, pad_edge=False, header_style="")
    texts = []
    for one, cells, wide in zip(table.columns, columns, widths, strict=True):
        header, *lines = ("\n".join(wrapped(cell, wide)) for cell in cells)
        folded.add_column(header, justify=one.justify, width=wide, overflow="fold")
        texts.append(lines)
    for row in zip(*texts, strict=True):
        folded.add_row(*row)
    return folded


def _widths(columns: Sequence[Column], texts: Sequence[Sequence[str]], room: int) -> list[int]:
    """How wide each column is: what it needs, else the widest give of theirs.

    Texts give first, down to their longest word, then to the longest part of one; numbers then.
    """
    widths = [
        max(one.min_width or 0, *map(cell_len, cells), 1)
        for one, cells in zip(columns, texts, strict=True)
    ]
    for of_text, of_number in (
        (longest_word, cell_len),
        (longest_part, cell_len),
        (longest_part, longest_word),
        (_nothing, _nothing),
    ):
        floors = []
        for one, cells, wide in zip(columns, texts, widths, strict=True):
            least = of_number if one.justify == "right" else of_text
            asked = one.min_width or (0 if of_text is _nothing else min(wide, _READABLE))
            floors.append(max(asked, of_text(cells[0]), *map(least, cells[1:]), 1))
        _give(widths, floors, room)
    return widths


def _give(widths: list[int], floors: Sequence[int], room: int) -> None:
    """Takes one column after another from the widest that are above their floors."""
    while sum(widths) > room:
        above = [at for at, floor in enumerate(floors) if widths[at] > floor]
        if not above:
            return
        widths[max(above, key=widths.__getitem__)] -= 1


def _nothing(_: str) -> int:
    return 0
