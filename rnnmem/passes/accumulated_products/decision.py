"""Sums of batched products of which no more than a few items exist at once."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from rnnmem.sizes import format_bytes


@dataclasses.dataclass(frozen=True)
class AccumulatedProduct:
    """A batched product that is added up item by item.

    Attributes:
      product: the op that made all items.
      total: the op that added them up.
      items: how many there are.
      bytes: of all of them.
      line: the user's line, or empty.
      counted: whether each run counts them, as sizes are open; these are those of the first call.
      at_once: how many are made at once: 1, or one for each of the kernel's sums.
      awaiting: names of sums that wait for it, as the product was done before they began.
    """

    COUNTED: ClassVar = ("product added up item by item", "products added up item by item")

    product: str
    total: str
    items: int
    bytes: int
    line: str = ""
    counted: bool = False
    at_once: int = 1
    awaiting: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        where = f" ({self.line})" if self.line else ""
        size = format_bytes(self.bytes)
        how = f"{self.at_once} by {self.at_once}" if self.at_once > 1 else "one by one"
        return f"{self.product}{where}: {self.items} products, {size}, are added up {how}"
