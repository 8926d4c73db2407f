"""Residuals outside of loops that run again near the gradient that reads them."""

from __future__ import annotations

import dataclasses

from rnnmem.ir.edges import Edge
from rnnmem.sizes import counted, format_bytes


@dataclasses.dataclass(frozen=True)
class Region:
    """Ops that run again for the part of the gradient that reads them.

    Attributes:
      ops: names of the ops, in order; what else they read is held anyway, or saved for them.
      readers: names of the ops of the gradient that read what the clones write.
      after: blobs of the gradient; the clones start when these are there.
      bytes: of the residuals that are not held any more; None where only a run tells.
      seconds: estimated time of the clones.
      line: the user's line of the first op, or empty.
      asked: how many of the residuals the user asked to recompute.
      edges: by which sums wait for readers of an addend that the clones hold up.
    """

    ops: tuple[str, ...]
    readers: tuple[str, ...]
    after: tuple[str, ...]
    bytes: int | None
    seconds: float
    line: str = ""
    asked: int = 0
    edges: tuple[Edge, ...] = ()

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        where = f" ({self.line})" if self.line else ""
        what = f"{self.ops[0]}{where} runs again near its gradient"
        if len(self.ops) > 1:
            last = f"to {self.ops[-1]} run again near their gradient"
            what = f"{counted(len(self.ops), 'op')} from {self.ops[0]}{where} {last}"
        size = "" if self.bytes is None else f"{format_bytes(self.bytes)} of "
        asked = ", as you asked" if self.asked else ""
        return f"{what}: {size}residuals are not held until then{asked}"
