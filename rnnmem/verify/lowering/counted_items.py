"""Whole numbers that a run counts: a size times 1 where inequalities hold, and 0 elsewhere.

a above b:  Minimum(Maximum(a - b, 0), 1)  of sizes of axes, sizes and a number, or numbers
counted:    size * (a above b) * (c above d)
"""

from __future__ import annotations

import dataclasses

from rnnmem.ir.graph import Net, Op
from rnnmem.verify.lowering.patterns import made_by, number

Size = tuple[str, int]
"""A blob, and the axis of it."""


@dataclasses.dataclass(frozen=True)
class Term:
    """A size and a number that is added to it.

    Attributes:
      size: None: the number alone.
      number: what is added.
    """

    size: Size | None
    number: int


@dataclasses.dataclass(frozen=True)
class Counted:
    """A size where all of some inequalities hold, else 0.

    Attributes:
      size: what it is, if it is not 0.
      above: pairs of terms of which the first is above the second.
    """

    size: Size
    above: frozenset[tuple[Term, Term]]

    def is_above(self, size: Size, least: int) -> bool:
        """Whether a size is above a number."""
        return any(
            first == Term(size, 0) and second.size is None and second.number >= least
            for first, second in self.above
        )

    def is_below(self, size: Size, most: int) -> bool:
        """Whether a size is below a number."""
        return any(
            second == Term(size, 0) and first.size is None and first.number <= most
            for first, second in self.above
        )

    def are_equal(self, one: Size, other: Size) -> bool:
        """Whether two sizes are equal."""
        pairs = ((one, other), (other, one))
        return all((Term(a, 1), Term(b, 0)) in self.above for a, b in pairs)


def counted(net: Net, blob: str) -> Counted | None:
    """What a blob counts; None where it is not understood."""
    sizes, above = [], []
    for factor in _factors(net, blob):
        size, pair = size_of(net, factor), _above(net, factor)
        if size is not None:
            sizes.append(size)
        elif pair is not None:
            above.append(pair)
        else:
            return None
    return Counted(sizes[0], frozenset(above)) if len(sizes) == 1 else None


def size_of(net: Net, blob: str) -> Size | None:
    """The axis whose size a blob is; None where it is none."""
    read = made_by(net, blob, "GatherV2")
    shape = None if read is None else made_by(net, read.inputs[0], "Shape")
    if read is None or shape is None or number(net, read.inputs[2]) != 0:
        return None
    axis = number(net, read.inputs[1])
    plain = not read.attributes.get("batch_dims")
    return (shape.inputs[0], axis) if isinstance(axis, int) and plain else None


def operands(net: Net, blob: str, type: str, second: int) -> str | None:
    """What an op of a type, whose second operand is a number, reads first; None: it is another."""
    op = made_by(net, blob, type)
    return op.inputs[0] if op is not None and number(net, op.inputs[1]) == second else None


def _factors(net: Net, blob: str) -> list[str]:
    op: Op | None = made_by(net, blob, "Mul")
    if op is None:
        return [blob]
    return [*_factors(net, op.inputs[0]), *_factors(net, op.inputs[1])]


def _above(net: Net, blob: str) -> tuple[Term, Term] | None:
    most = operands(net, blob, "Minimum", 1)
    least = None if most is None else operands(net, most, "Maximum", 0)
    left = None if least is None else made_by(net, least, "Sub")
    if left is None:
        return None
    first, second = (_term(net, one) for one in left.inputs)
    return None if first is None or second is None else (first, second)


def _term(net: Net, blob: str) -> Term | None:
    known, size = number(net, blob), size_of(net, blob)
    if isinstance(known, int):
        return Term(None, known)
    if size is not None:
        return Term(size, 0)
    added = made_by(net, blob, "AddV2")
    size = None if added is None else size_of(net, added.inputs[0])
    more = None if added is None else number(net, added.inputs[1])
    return Term(size, more) if size is not None and isinstance(more, int) else None
