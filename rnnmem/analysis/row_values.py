"""What a blob is where a program runs on some of the rows (axis 0) of its inputs.

It is one of

    Rows      those rows of what the whole program has there
    Sizes     whole numbers made of shapes; ``n`` stands for how many rows there are
    Partial   a part of a sum over the rows: the parts together are the whole program's
    Given     the same as in the whole program
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

from rnnmem.analysis.facts import Fact, Rules
from rnnmem.ir.graph import Op


@dataclasses.dataclass(frozen=True, slots=True)
class Dim:
    """A size: a number times symbols, e.g. ``32 * n``."""

    factor: int
    symbols: tuple[str, ...] = ()

    def __mul__(self, other: Dim) -> Dim:
        """The product."""
        symbols = tuple(sorted((*self.symbols, *other.symbols)))
        return Dim(self.factor * other.factor, symbols if self.factor * other.factor else ())

    def over(self, other: Dim) -> Dim | None:
        """The quotient; None where it is not known to be whole."""
        left = list(self.symbols)
        for symbol in other.symbols:
            if symbol not in left:
                return None
            left.remove(symbol)
        if not other.factor or self.factor % other.factor:
            return None
        return Dim(self.factor // other.factor, tuple(left))

    @property
    def number(self) -> int | None:
        """The size, where it is a number."""
        return None if self.symbols else self.factor

    @property
    def rows(self) -> int:
        """How often the number of rows is a factor."""
        return self.symbols.count("n")

    def at(self, whole: int | None) -> int | None:
        """The size where there are so many rows."""
        if any(symbol != "n" for symbol in self.symbols):
            return None
        if whole is None:
            return self.number
        return self.factor * whole**self.rows


ONE, ROW = Dim(1), Dim(1, ("n",))


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """The same as in the whole program."""

    fact: Fact


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the whole program's blob.

    Attributes:
      shape: of the part; only the first size has ``n`` in it, once.
      ramp: what row j of the part lacks for each row before the part; None: nothing. A whole
        program counts rows 0, 1, 2, ...; a part begins at 0 again.
      base: the blob that was added to such a count.
    """

    shape: tuple[Dim, ...]
    ramp: Dim | None = None
    base: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Sizes:
    """A whole number, or a vector of them."""

    value: Dim | tuple[Dim, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Partial:
    """A part of a sum over the rows."""

    shape: tuple[Dim, ...]


RowValue = Given | Rows | Sizes | Partial
RowRule = Callable[[Op, Sequence[RowValue]], "Sequence[RowValue] | None"]
ROWS: Rules[RowRule] = Rules()
"""Op type -> what it gives for parts; None where it must see all rows."""


def product(dims: Sequence[Dim]) -> Dim:
    """The product of sizes."""
    return functools.reduce(Dim.__mul__, dims, ONE)


def rows_of(name: str, shape: tuple[int | None, ...], first: Dim) -> Rows:
    """A blob of that shape whose first size is ``first``, as rows."""
    return Rows((first, *dims(name, shape)[1:]))


def dims(name: str, shape: tuple[int | None, ...]) -> tuple[Dim, ...]:
    """The sizes of a blob; one that is unknown has a name."""
    return tuple(
        Dim(1, (f"{name}#{axis}",)) if size is None else Dim(size)
        for axis, size in enumerate(shape)
    )


def has_rows(shape: tuple[Dim, ...]) -> bool:
    """Whether only the first size has the number of rows in it, once."""
    if not shape or None in shape or any(dim.factor < 0 for dim in shape):
        return False
    return shape[0].rows == 1 and not any(dim.rows for dim in shape[1:])


def whole_numbers(value: RowValue) -> Dim | tuple[Dim | None, ...] | None:
    """The number or numbers that a blob holds; None where they are not known."""
    if isinstance(value, Sizes):
        return value.value
    if not isinstance(value, Given):
        return None
    held = value.fact.value
    if isinstance(held, bool):
        return None
    if isinstance(held, int):
        return Dim(held)
    if isinstance(held, tuple):
        return tuple(None if one is None else Dim(one) for one in held)
    return None


def numbers(value: RowValue) -> tuple[int, ...] | None:
    """Plain numbers, e.g. axes."""
    held = whole_numbers(value)
    held = (held,) if isinstance(held, Dim) else held
    if held is None or any(one is None or one.number is None for one in held):
        return None
    return tuple(one.factor for one in held)


def rank_of(value: RowValue) -> int | None:
    """How many axes a blob has; None where that is not known."""
    if isinstance(value, Rows):
        return len(value.shape)
    shape = value.fact.shape if isinstance(value, Given) else None
    return None if shape is None else len(shape)


def shape_of(name: str, value: RowValue) -> tuple[Dim, ...]:
    """The sizes of rows or of what is given."""
    return value.shape if isinstance(value, Rows) else dims(name, value.fact.shape)


def broadcast_rows(shape: tuple[Dim, ...], value: RowValue) -> tuple[Dim, ...] | None:
    """The shape of both together, if the first axis is that of the rows in both."""
    if isinstance(value, Rows):
        if len(value.shape) != len(shape) or value.shape[0] != shape[0]:
            return None
        other = value.shape
    else:
        dims = value.fact.shape if isinstance(value, Given) else None
        if dims is None or len(dims) > len(shape) or (len(dims) == len(shape) and dims[0] != 1):
            return None
        # An unknown size is 1 or the other's.
        padded = (*[1] * (len(shape) - len(dims)), *dims)
        other = tuple(
            mine if size is None else Dim(size) for mine, size in zip(shape, padded, strict=True)
        )
    joined = [shape[0]]
    for one, two in zip(shape[1:], other[1:], strict=True):
        if one != two and ONE not in (one, two):
            return None
        joined.append(two if one == ONE else one)
    return tuple(joined)


def counts_rows(values: Sequence[RowValue]) -> bool:
    """Whether one of them tells rows from each other."""
    return any(isinstance(value, Rows) and value.ramp is not None for value in values)


def as_float(sizes: Sizes) -> Sequence[RowValue]:
    """Sizes as numbers of another dtype, which nobody follows."""
    return [Given(Fact(() if isinstance(sizes.value, Dim) else (len(sizes.value),)))]


def resolved(total: Dim, wanted: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """The sizes that a Reshape of so many elements makes; None where that is not known."""
    shape = list(wanted)
    unknown = [axis for axis, dim in enumerate(shape) if dim == Dim(-1)]
    if len(unknown) > 1:
        return None
    if unknown:
        rest = product([dim for axis, dim in enumerate(shape) if axis not in unknown])
        found = total.over(rest)
        if found is None:
            return None
        shape[unknown[0]] = found
    return tuple(shape) if product(shape) == total else None
