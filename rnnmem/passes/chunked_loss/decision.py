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
      exact: whether what sums over rows is done on the whole, so that results have the same bits.
      lead: sizes, e.g. of batch and time, that are seen as one axis; none: rows are as they are.
      early: whether sizes are asked of what losses are made of, so that one loop does all.
      flat: the view of logits of several axes, ``[B*T, V]``, that all of their readers read.
      compiled: whether it is written for XLA, which compiles only chunks that are all of one size.
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
    exact: bool = False
    lead: tuple[int, ...] = ()
    early: bool = False
    flat: str = ""
    compiled: bool = False

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
        what = "tokens" if self.lead else "rows"
        size = format_bytes(self.bytes)
        held = (
            f"{size} exist once, the gradient in their place"
            if self.exact
            else (f"{size} never exist whole")
        )
        return (
            f"logits by chunks: {name}: {held}; {self.length}{rows} {what} of {self.source} a "
            f"chunk, {passes}"
        )


def by_pass(losses: tuple[ChunkedLoss, ...]) -> dict[str, tuple[ChunkedLoss, ...]]:
    """Pass -> its decisions among these."""
    return {
        "row_chunks": tuple(one for one in losses if one.exact),
        "chunked_loss": tuple(one for one in losses if not one.exact),
    }
