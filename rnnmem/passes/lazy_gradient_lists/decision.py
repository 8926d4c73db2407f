"""Lists of gradients that begin without elements."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class LazyGradientList:
    """A list of gradients that a gradient loop begins without elements, not with zeros.

    Attributes:
      zeros: the op that makes the list of zeros.
      loop: the gradient loop that begins with it.
      items: ops of its body that put a gradient into a list which is added to it.
    """

    zeros: str
    loop: str
    items: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        return f"{self.zeros}: {self.loop} begins with a list without elements"
