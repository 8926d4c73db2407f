"""Products that wait for the gradient."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from rnnmem.sizes import format_bytes


@dataclasses.dataclass(frozen=True)
class LateProduct:
    """A product by a constant that is made once the gradient is there.

    Attributes:
      product: the op to which TensorFlow moves a constant, to multiply it with one factor.
      slot: which of its inputs the factor is.
      awaited: a blob of the gradient that it waits for.
      bytes: of the product.
      line: the user's line, or empty.
    """

    COUNTED: ClassVar = ("product made late", "products made late")

    product: str
    slot: int
    awaited: str
    bytes: int
    line: str = ""

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        where = f" ({self.line})" if self.line else ""
        size = format_bytes(self.bytes)
        return f"{self.product}{where}: {size} are made when the gradient arrives"
