"""Rows that are read from a list, or put there, without a tensor of all rows."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class SliceOfStack:
    """A row that is read from a list or put into one, where a tensor of all rows stood between.

    Attributes:
      op: the op that takes the row of the stacked list, or cuts a gradient into a list.
      whole: the op that made the tensor of all rows.
      row: number of the row.
    """

    op: str
    whole: str
    row: int

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        return f"{self.op}: row {self.row} by itself, {self.whole} is not made"
