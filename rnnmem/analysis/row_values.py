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

from rnnmem.analysis.facts import Dim, Fact, Rules, of_value, possible, results_of, vector
from rnnmem.ir.graph import Op

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


def followed(op: Op, values: Sequence[RowValue]) -> list[RowValue] | None:
    """What an op makes of sizes and shapes, by its rule of facts; None where no number is known."""
    facts = [_fact_of(name, value) for name, value in zip(op.inputs, values, strict=True)]
    found = [_sizes_of(possible(one)) for one in results_of(op, facts)]
    return None if None in found else found


def _fact_of(name: str, value: RowValue) -> Fact:
    """A blob as a fact, its sizes numbers or symbols."""
    if isinstance(value, Sizes):
        held = value.value
        return of_value(_plain(held) if isinstance(held, Dim) else tuple(map(_plain, held)))
    shape = value.fact.shape if isinstance(value, Given) else value.shape
    known = None if shape is None else tuple(map(_plain, shape_of(name, value)))
    return dataclasses.replace(value.fact if isinstance(value, Given) else Fact(), shape=known)


def _plain(size: Dim) -> Dim | int:
    return size if size.symbols else size.factor


def _sizes_of(fact: Fact) -> Sizes | Given | None:
    held = fact.value
    if held is None or isinstance(held, tuple) and None in held:
        return None
    sizes = tuple(one if isinstance(one, Dim) else Dim(one) for one in vector(fact))
    return settled(Sizes(sizes if isinstance(held, tuple) else sizes[0]))


def settled(value: RowValue) -> RowValue:
    """The value; sizes that are plain numbers are the same in the whole program."""
    if not isinstance(value, Sizes):
        return value
    held = value.value
    numbers = [dim.number for dim in ((held,) if isinstance(held, Dim) else held)]
    if None in numbers:
        return value
    return Given(of_value(numbers[0] if isinstance(held, Dim) else tuple(numbers)))


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
