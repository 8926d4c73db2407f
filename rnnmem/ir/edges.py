"""Scheduling edges: control edges that decide when an op runs."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Edge:
    """One control edge that a plan adds.

    Attributes:
      op: the op that waits.
      slot: the input of it that is delayed instead; None where the op itself waits.
      after: the op waited for.
      path: of the step net in which both stand, names of ops and attributes in turn.
      by_proxy: whether a completion proxy is waited for instead, an op that reads what that op
        writes.
    """

    op: str
    slot: int | None
    after: str
    path: tuple[str, ...] = ()
    by_proxy: bool = False

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        waiting = self.op if self.slot is None else f"input {self.slot} of {self.op}"
        where = f" in {'/'.join(self.path)}" if self.path else ""
        return f"{waiting} waits for {self.after}{where}"
