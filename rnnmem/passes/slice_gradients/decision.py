"""Gradients of slices that are put side by side."""

from __future__ import annotations

import dataclasses
from typing import ClassVar


@dataclasses.dataclass(frozen=True)
class Part:
    """The gradient of one slice.

    Attributes:
      op: the op that put it between zeros.
      before: how many zeros stand in front of it in its layer, where no other part does.
      behind: how many stand behind it.
    """

    op: str
    before: int = 0
    behind: int = 0


@dataclasses.dataclass(frozen=True)
class SliceGradients:
    """Gradients of slices of one blob that are put side by side where they were added up.

    Attributes:
      total: the op that added them up.
      layers: the gradients, in the order of their slices; those of a layer have no element in
        common.
      axis: the axis that was sliced.
      rank: how many axes there are.
      path: of the step net in which it stands, names of ops and attributes in turn.
    """

    COUNTED: ClassVar = ("sum of slices' gradients joined", "sums of slices' gradients joined")

    total: str
    layers: tuple[tuple[Part, ...], ...]
    axis: int
    rank: int
    path: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        where = f" in {'/'.join(self.path)}" if self.path else ""
        count = sum(map(len, self.layers))
        return f"{self.total}{where}: gradients of {count} slices are joined, none is made whole"
