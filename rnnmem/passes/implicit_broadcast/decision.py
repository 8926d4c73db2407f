"""Operands that an op broadcasts itself."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class ImplicitBroadcast:
    """An operand that an op broadcasts itself, so that it is not made whole.

    Attributes:
      op: the op that reads it.
      slot: the input of it that reads what was repeated, in place of the repeated blob.
      path: of the step net in which it stands, names of ops and attributes in turn.
    """

    op: str
    slot: int
    path: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        where = f" in {'/'.join(self.path)}" if self.path else ""
        return f"input {self.slot} of {self.op}{where} is broadcast by the op, not made whole"
