"""Operands that an op broadcasts itself."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from rnnmem.ir.graph import Net, Op


@dataclasses.dataclass(frozen=True)
class ImplicitBroadcast:
    """An operand that an op broadcasts itself, so that it is not made whole.

    One that divides it by a number makes as little, which its own readers broadcast.

    Attributes:
      op: the op that reads it.
      slot: the input of it that reads what was repeated, in place of the repeated blob.
      path: of the step net in which it stands, names of ops and attributes in turn.
    """

    COUNTED: ClassVar = ("operand not made whole", "operands not made whole")

    op: str
    slot: int
    path: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        where = f" in {'/'.join(self.path)}" if self.path else ""
        return f"input {self.slot} of {self.op}{where} is broadcast by the op, not made whole"


def divides_by_number(net: Net, op: Op, blob: str) -> bool:
    """Whether an op divides a blob by a number, so that of a smaller one it makes less.

    Products are grouped anew by TensorFlow, by how large their factors are.
    """
    return op.type == "RealDiv" and op.inputs[0] == blob and net.blobs[op.inputs[1]].shape == ()
