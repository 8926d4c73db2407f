"""Shapes that are saved instead of what they are the shapes of."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from rnnmem.sizes import format_bytes


@dataclasses.dataclass(frozen=True)
class SavedShape:
    """A gradient's op that reads shapes alone, and runs in the forward loop.

    Attributes:
      path: of the step net that the loops stand in, names of ops and attributes in turn.
      gradient: the gradient loop.
      op: its op; what it makes is saved instead.
      bytes: that need no longer be saved for it, of all iterations; None where only a run can tell.
      line: the user's line, or empty.
    """

    COUNTED: ClassVar = ("shape saved instead of its blob", "shapes saved instead of their blobs")

    path: tuple[str, ...]
    gradient: str
    op: str
    bytes: int | None
    line: str = ""

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        where = f" ({self.line})" if self.line else ""
        size = "what" if self.bytes is None else f"{format_bytes(self.bytes)} that"
        return f"{self.op}{where}: shapes are saved, {size} it reads nothing else of is not"
