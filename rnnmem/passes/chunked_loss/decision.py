"""What is decided on a projection with its softmax loss."""

from __future__ import annotations

import dataclasses

from rnnmem.ir.graph import Shape, kind_text
from rnnmem.sizes import format_bytes


@dataclasses.dataclass(frozen=True)
class ChunkedLoss:
    """The decision for one projection with its softmax loss.

    Attributes:
      projection: the op that makes the logits.
      closed: why it is left exactly as it is; empty where it runs by chunks.
      blob: the logits.
      dtype: their dtype.
      shape: their shape, with None for what is unknown.
      bytes: of all logits, or None where unknown.
      source: the blob whose rows are cut.
      length: rows of it that a chunk has.
      rows: how many it has, or None where only a run can tell.
      loops: how many loops over the chunks there are: forward and gradient in one, or one each.
      seconds: estimated time beyond the original's.
      line: the user's line, or empty.
    """

    projection: str
    closed: str = ""
    blob: str = ""
    dtype: str = ""
    shape: Shape = None
    bytes: int | None = None
    source: str = ""
    length: int = 0
    rows: int | None = None
    loops: int = 0
    seconds: float = 0.0
    line: str = ""

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        where = f" ({self.line})" if self.line else ""
        name = f"logits {self.blob}{where}, {kind_text(self.dtype, self.shape)}"
        if self.closed:
            return f"left as it was: {name}: {self.closed}"
        passes = "forward and gradient at once"
        if self.loops > 1:
            passes = "once forward, and once more, computed again, for the gradient"
        rows = "" if self.rows is None else f" of {self.rows}"
        return (
            f"logits by chunks: {name}: {format_bytes(self.bytes)} never exist whole; {self.length}"
            f"{rows} rows of {self.source} a chunk, {passes}"
        )
