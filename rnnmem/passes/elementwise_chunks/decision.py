"""Chains of elementwise ops that run by chunks of rows."""

from __future__ import annotations

import dataclasses

from rnnmem.sizes import counted, format_bytes


@dataclasses.dataclass(frozen=True)
class ElementwiseChain:
    """Elementwise ops that make one blob that others read as a whole, by chunks of its rows.

    Attributes:
      result: the blob that is made.
      ops: names of the ops, in order; one that several chains need runs in each.
      source: a blob that they read row by row, whose rows are counted.
      rows: how many it has.
      length: how many of them a chunk has; all chunks have as many.
      bytes: of the result, and of each blob that never exists whole.
      between: how many of these there are.
      seconds: estimated time of what runs in other chains too, and of cutting.
      line: the user's line of the result, or empty.
    """

    result: str
    ops: tuple[str, ...]
    source: str
    rows: int
    length: int
    bytes: int
    between: int
    seconds: float
    line: str = ""

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        where, size = f" ({self.line})" if self.line else "", format_bytes(self.bytes)
        return (
            f"{len(self.ops)} elementwise ops that make {self.result}{where} run by chunks of "
            f"{self.length} of {self.rows} rows: {counted(self.between, 'blob')} of {size} "
            f"between them never exist whole"
        )
