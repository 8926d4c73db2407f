"""Saved whole numbers that a gradient loop has by itself."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class InductionVariable:
    """A saved whole number that is a variable of the gradient loop, and in no list.

    Attributes:
      loop: the forward loop.
      blob: of its body, what was saved.
      numbers: what it always is, one number or those of a vector; empty: it follows from loop
        counters, or from lists that stay the same.
    """

    loop: str
    blob: str
    numbers: tuple[int, ...] = ()

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        held = ", ".join(map(str, self.numbers))
        how = f"is always {held}" if held else "is counted in the gradient loop"
        return f"{self.loop}: {self.blob} {how}, and in no list"
