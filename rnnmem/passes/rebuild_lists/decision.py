"""Lists that gradient loops are given again."""

from __future__ import annotations

import dataclasses

from rnnmem.sizes import format_bytes


@dataclasses.dataclass(frozen=True)
class RebuiltList:
    """A list that a forward loop reads and its gradient loop is given again, not kept in between.

    Attributes:
      blob: the list.
      ops: the ops that run again, in order; they only move data that is resident anyway.
      gradients: names of the gradient loops that are given what they make.
      bytes: of the list.
      seconds: estimated time to make it once.
      zeros: names of the ops that make a list of zeros like it; they are given the new one too.
      table: the shape of the variable, where the gradient loops look its rows up one by one, and
        no list is made; empty where the list is.
    """

    blob: str
    ops: tuple[str, ...]
    gradients: tuple[str, ...]
    bytes: int
    seconds: float
    zeros: tuple[str, ...] = ()
    table: tuple[int, ...] = ()

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        how = "its rows are looked up one by one" if self.table else "made again"
        return f"{self.blob}: {format_bytes(self.bytes)}, {how} for {', '.join(self.gradients)}"
