"""What may be known of a blob: its shape, the value of a small integer, what a list holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

from rnnmem.analysis.trip_count import LARGEST
from rnnmem.ir.graph import Blob, Op, Shape
from rnnmem.ir.marks import PART

_Rule = TypeVar("_Rule", bound=Callable)


@dataclasses.dataclass(frozen=True, slots=True)
class Dim:
    """A size: a number times symbols, e.g. ``32 * n``.

    Where what is asked of it depends on the symbols, it raises TypeError.
    """

    factor: int
    symbols: tuple[str, ...] = ()

    def __mul__(self, other: Dim | int) -> Dim:
        """The product."""
        if isinstance(other, int):
            other = Dim(other)
        symbols = tuple(sorted((*self.symbols, *other.symbols)))
        return Dim(self.factor * other.factor, symbols if self.factor * other.factor else ())

    __rmul__ = __mul__

    def __add__(self, other: Dim) -> Dim:
        """The sum of sizes of the same symbols."""
        if not isinstance(other, Dim) or other.symbols != self.symbols:
            return NotImplemented
        return Dim(self.factor + other.factor, self.symbols)

    def __floordiv__(self, other: Dim | int) -> Dim:
        """The quotient, where it is whole."""
        found = self.over(Dim(other) if isinstance(other, int) else other)
        return NotImplemented if found is None else found

    def __rfloordiv__(self, other: int) -> Dim:
        """The quotient of a number, where it is whole."""
        return Dim(other) // self

    def __lt__(self, other: int) -> bool:
        """Whether the size is negative; nothing else can be said of it."""
        return self.factor < 0 if other == 0 else NotImplemented

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


Value = int | Dim | tuple[int | Dim | None, ...] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Fact:
    """What is known of a blob.

    Attributes:
      shape: as in Blob.
      value: of a small integer, or of a vector of them (None where one is unknown); with symbols in
        it where a part of the rows is followed (`rnnmem.analysis.row_rules`).
      element: of a list or an optional, what is known of all that it may hold; of a list's element
        shape, an element of that shape.
      length: of a list, how many elements it has.
      unset: of an element, whether there is none yet: all that is known is what one may be.
      pushed: of a list that one element was pushed to just now, the list before and that element.
      asked: of a list, the shape of what it was told its elements' shape by: a vector, or -1 alone.
      matrix: the rows of a small matrix of integers (None where one is unknown).
    """

    shape: Shape = None
    value: Value = None
    element: Fact | None = None
    length: int | None = None
    unset: bool = False
    pushed: tuple[Fact, Fact] | None = None
    asked: Shape = None
    matrix: tuple[tuple[int | None, ...], ...] | None = None


Rule = Callable[[Op, list[Fact]], list[Fact]]


UNKNOWN = Fact()
"""What is known of a blob of which nothing is."""


class Rules(dict[str, _Rule]):
    """Op type -> its rule: a function, which its decorator enters."""

    def of(self, *names: str) -> Callable[[_Rule], _Rule]:
        """Enters the function that it decorates as the rule of these types."""

        def enter(rule: _Rule) -> _Rule:
            self.update(dict.fromkeys(names, rule))
            return rule

        return enter


SHAPES: Rules[Rule] = Rules()
"""Op type -> what is known of its results, given what is known of its inputs."""
LEADING: Rules[Callable[[Op, list[Fact]], Shape]] = Rules()
"""Op type -> the first dimensions of its only result, of which the trace tells the others."""


def possible(fact: Fact) -> Fact:
    """The fact, without its value where that has another shape."""
    shape, value = fact.shape, fact.value
    if value is None:
        return fact
    if isinstance(value, tuple):
        fits = shape is not None and len(shape) == 1 and shape[0] in (None, len(value))
    else:
        fits = shape == ()
    return fact if fits else dataclasses.replace(fact, value=None)


def common(facts: Sequence[Fact]) -> Fact:
    """What holds whichever of the facts does."""
    first = facts[0]
    for other in facts[1:]:
        if first != other:
            first = _common(first, other)
    return first


def _common(first: Fact, second: Fact) -> Fact:
    if first.unset or second.unset:
        if not (first.unset and second.unset):
            return second if first.unset else first
    element = None
    if first.element is not None and second.element is not None:
        element = common((first.element, second.element))
    return Fact(
        _common_shape(first.shape, second.shape),
        first.value if first.value == second.value else None,
        element,
        first.length if first.length == second.length else None,
        first.unset and second.unset,
        asked=first.asked if first.asked == second.asked else None,
    )


def _common_shape(first: Shape, second: Shape) -> Shape:
    if first is None or second is None or len(first) != len(second):
        return None
    return tuple(a if a == b else None for a, b in zip(first, second, strict=True))


def merged(declared: Blob | Fact, found: Fact) -> Fact:
    """What the trace says and what was found; where they disagree the declared size stands."""
    shape = declared.shape
    if shape is None:
        shape = found.shape
    elif None in shape and found.shape is not None and len(found.shape) == len(shape):
        shape = tuple(b if a is None else a for a, b in zip(shape, found.shape, strict=True))
    if shape == found.shape:
        return found
    return dataclasses.replace(found, shape=shape)


def vector(fact: Fact) -> tuple[int | None, ...] | None:
    """The value as a vector, where it is one."""
    if isinstance(fact.value, tuple):
        return fact.value
    return (fact.value,) if isinstance(fact.value, int | Dim) else None


def of_value(value: Value) -> Fact:
    """A number or a vector of which the value is known."""
    return Fact((len(value),) if isinstance(value, tuple) else (), value)


def without_symbols(value: tuple[int | Dim | None, ...]) -> tuple[int | None, ...]:
    """A vector's whole numbers; None where one is unknown, or has symbols."""
    return tuple(one if isinstance(one, int) else None for one in value)


def to_shape(value: Value) -> Shape:
    """A shape from a vector that may hold -1 for what is unknown."""
    if not isinstance(value, tuple):
        return None
    return tuple(None if size is None or size < 0 else size for size in value)


def broadcast(shapes: list[Shape]) -> Shape:
    """The shape of a pointwise result."""
    if len(set(shapes)) == 1:
        return shapes[0]
    if None in shapes or not shapes:
        return None
    rank = max(len(shape) for shape in shapes)
    result = []
    for axis in range(1, rank + 1):
        sizes = {shape[-axis] for shape in shapes if axis <= len(shape)} - {1}
        known = sizes - {None}
        if len(known) > 1:
            return None  # they fit in no run
        # An unknown size beside a known one above 1 must be that one, or 1.
        result.append(known.pop() if known else (None if sizes else 1))
    return tuple(reversed(result))


def small(value: int | Dim | None) -> int | Dim | None:
    """The number, where a run cannot have wrapped it around."""
    return None if isinstance(value, int) and abs(value) >= LARGEST else value


def changed(held: Fact, **fields) -> Fact:
    """A list in which something else is than was."""
    if fields or held.pushed is not None:
        held = dataclasses.replace(held, pushed=None, **fields)
    return held


MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a rule raises where inputs or attributes fit neither the op nor each other."""


def results_of(op: Op, ins: Sequence[Fact], declared: Sequence[Blob] = ()) -> list[Fact]:
    """What is known of each result of an op; of what no rule understands, nothing.

    Args:
      op: the op.
      ins: what is known of its inputs, which a mistaken trace or caller may have got wrong.
      declared: its results as they were traced.
    """
    rule, count = SHAPES.get(op.type), len(op.outputs)
    try:
        found = rule(op, list(ins))[:count] if rule else _led(op, list(ins), declared)
    except MALFORMED:
        found = []
    if PART in op.attributes:
        found = [_part(one, op.attributes[PART]) for one in found or [Fact((None,))]]
    found = [UNKNOWN if one.shape and _is_negative(one.shape) else one for one in found]
    return found if len(found) == count else [*found, *[UNKNOWN] * (count - len(found))]


def _led(op: Op, ins: list[Fact], declared: Sequence[Blob]) -> list[Fact]:
    """What is known of a result whose first dimensions a rule tells, and whose others the trace."""
    first = LEADING[op.type](op, ins) if op.type in LEADING else None
    traced = declared[0].shape if declared else None
    return [] if first is None or traced is None else [Fact((*first, *traced[len(first) :]))]


def _part(whole: Fact, most: int) -> Fact:
    """What is known of some rows, of which there are so many at most."""
    if not whole.shape:
        return whole
    first, *rest = whole.shape
    return Fact((most if first is None else min(most, first), *rest))


def _is_negative(shape: tuple[int | None, ...]) -> bool:
    for size in shape:  # a generator takes longer than most rules
        if size is not None and size < 0:
            return True
    return False
