"""Lines and tables as plain text: no colours, no markup, no blanks at the ends of lines."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Sequence

from rich.console import Console
from rich.table import Table

_WIDEST = 10_000
"""Columns of what is not folded."""


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
        file=out, width=_WIDEST, no_color=True, highlight=False, markup=False, emoji=False
    )
    for part in parts:
        folds = wraps if isinstance(part, str) else not part.columns[-1].no_wrap
        console.print(part, width=width if folds else None, soft_wrap=not folds)
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())
