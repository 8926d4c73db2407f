"""Lists that are not made, because loops read what they were made of."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class UnstackedList:
    """A list that loops read, and what its elements are read from in its place.

    Attributes:
      list: the blob of the list.
      source: the blob that it was made of: a list of the same elements, or a tensor.
      axis: of the tensor, along which its items are the elements; None: the source is a list.
      backwards: how many items there are, where element 0 is the last of them; else 0.
    """

    list: str
    source: str
    axis: int | None = None
    backwards: int = 0

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        kind = "of the same elements" if self.axis is None else f"along axis {self.axis}"
        return f"{self.list} is not made: its elements are read from {self.source}, {kind}"
