"""Numbers for values: two blobs get one number only if they always hold the same value.

A number stands for an expression: a head (what is computed) over the numbers that it reads. Each
expression is kept once, so equal numbers are equal values (value numbering; Cocke and Schwartz
1970, "Programming Languages and Their Compilers").

Inside loops a value is a function of the iterations that run around it. Level 1 is the outermost
loop around a place, level 2 the next one. A bit mask says which levels an expression depends on:

    variable(d, i) over system    a loop's sequence x(0) = start, x(s + 1) = next(x(s)) at level d
    trips(d) over cond            how often that loop runs: the first s at which cond(s) is false
    final(d) over trips, x        x(trips): what the loop hands outside
    reversed(d) over trips, x     x(trips - 1 - s): what a gradient loop sees in its iteration s

A list that a loop fills, one push an iteration, and that another loop empties, one pop an
iteration, gives back what was pushed, last first. So a pop is not an opaque value: it is the pushed
expression with every iteration of its level reversed. Recomputing an op from popped inputs then
has, by construction, the number of the pop of that op's output. Zeros like a list are a list of
zeros like its elements, so what is popped there is zeros like what would be popped from the list.

An item of a list that was cut from a tensor is an item of the tensor, along its first axis. Where
that tensor's items were looked up in another one by their places, it is an item of the other:

    item(item(table, places), t)  =  item(table, item(places, t))
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from types import MappingProxyType

LEAF, OP, PUSH, POPPED_LIST, POPPED_ELEMENT = "leaf", "op", "push", "popped list", "popped"
SYSTEM, VARIABLE, TRIPS, FINAL, REVERSED = "system", "variable", "trips", "final", "reversed"
RAW, OWN, EFFECT = "raw variable", "own variable", "effect"
ZEROS = "zeros"
ITEM, GOT = "item", "got item"
ENCODING, DECODING = "encoding", "decoding"

_NOTHING: Mapping[int, int] = MappingProxyType({})
_ATOMS = frozenset({RAW, OWN, VARIABLE, REVERSED})
_OF_THEIR_LEVEL = _ATOMS | {EFFECT, TRIPS, FINAL}
"""Kinds that depend on other levels than what they read."""

Rule = Callable[["Operator", tuple[int, ...]], int | None]


class Operator:
    """What an expression computes; kept once, so it is compared by identity.

    Attributes:
      numbers: children -> the number of this head over them.
      rule: gives a simpler number for the same value, where there is one.
    """

    __slots__ = ("data", "kind", "level", "numbers", "rule", "text")

    def __init__(self, kind: str, level: int, data: Hashable, text: str, rule: Rule | None):
        """Made by :meth:`Table.head` only."""
        self.kind, self.level, self.data, self.text, self.rule = kind, level, data, text, rule
        self.numbers: dict[tuple[int, ...], int] = {}


class Table:
    """All expressions of one check; a number is a position in these lists.

    Attributes:
      operators: number -> what it computes.
      children: number -> the numbers that it reads, each smaller than itself.
      levels: number -> bit mask of the loop levels whose iteration it depends on.
      origins: number -> the op that first computed it, for messages.
    """

    def __init__(self) -> None:
        """An empty table."""
        self.operators: list[Operator] = []
        self.children: list[tuple[int, ...]] = []
        self.levels: list[int] = []
        self.origins: list[str] = []
        self._open: list[int] = []  # number -> levels of the loop variables that it leaves open
        self._operator_of: dict[Hashable, Operator] = {}
        self._reversals: dict[tuple[int, int], dict[int, int]] = {}
        self._rules: dict[str, Rule] = {
            POPPED_LIST: self._popped_list,
            POPPED_ELEMENT: self._popped_element,
            FINAL: self._final,
            DECODING: self._decoding,
            GOT: self._got,
        }

    def operator(
        self, kind: str, level: int = 0, data: Hashable = None, text: str = ""
    ) -> Operator:
        """The one head of that kind, level and data."""
        key = (kind, level, data)
        found = self._operator_of.get(key)
        if found is None:
            rule = self._rules.get(kind)
            found = self._operator_of[key] = Operator(kind, level, data, text or kind, rule)
        return found

    def make(self, operator: Operator, children: tuple[int, ...] = (), origin: str = "") -> int:
        """The number of ``operator`` over ``children``, after the rules of its kind."""
        if (rule := operator.rule) is not None and (
            simpler := rule(operator, children)
        ) is not None:
            return simpler
        found = operator.numbers.get(children)
        if found is None:
            found = operator.numbers[children] = len(self.operators)
            levels, unbound = self.levels, self._open
            mask = left_open = 0
            for child in children:
                mask |= levels[child]
                left_open |= unbound[child]
            if operator.kind in _OF_THEIR_LEVEL:
                mask, left_open = _at_its_level(operator, mask, left_open)
            self.operators.append(operator)
            self.children.append(children)
            levels.append(mask)
            unbound.append(left_open)
            self.origins.append(origin)
        return found

    def fresh(self, operators: Iterable[Operator]) -> int:
        """Numbers for new leaves, one after the other; returns the first."""
        first = len(self.operators)
        for operator in operators:
            self.make(operator)
        return first

    def reversed(self, number: int, level: int, trips: int) -> int:
        """The value with iteration ``trips - 1 - s`` in place of ``s``, at one level."""
        bit = 1 << level
        levels, operators = self.levels, self.operators
        done = self._reversals.setdefault((level, trips), {})
        wrap = self.operator(REVERSED, level)
        stack, inner = [number], set()
        while stack:
            one = stack.pop()
            if one in done or one in inner or not levels[one] & bit:
                continue
            operator = operators[one]
            if operator.kind == EFFECT or (operator.kind in _ATOMS and operator.level == level):
                done[one] = self.make(wrap, (trips, one), self.origins[one])
            else:
                inner.add(one)
                stack.extend(self.children[one])
        for one in sorted(inner):
            done[one] = self.remade(one, done)
        return done.get(number, number)

    def below(self, roots: Iterable[int], first: int, known: Container[int]) -> list[int]:
        """The numbers from ``first`` on that roots reach over such ones; what is read comes first.

        Numbers that are known already are left out, and not looked behind.
        """
        children = self.children
        seen: set[int] = set()
        stack = list(roots)
        while stack:
            one = stack.pop()
            if one >= first and one not in seen and one not in known:
                seen.add(one)
                stack.extend(children[one])
        return sorted(seen)

    def remade(
        self, number: int, mapping: Mapping[int, int], else_mapping: Mapping[int, int] = _NOTHING
    ) -> int:
        """The expression over what the first mapping that knows a child has in its place."""
        old = self.children[number]
        if else_mapping:
            new = tuple([mapping.get(one, else_mapping.get(one, one)) for one in old])
        else:
            new = tuple([mapping.get(one, one) for one in old])
        return (
            number if new == old else self.make(self.operators[number], new, self.origins[number])
        )

    def filled(self, number: int) -> tuple[int, int, int] | None:
        """``(trips, start, push)`` where the value is a list that a loop pushed into each time."""
        if self.operators[number].kind != FINAL:
            return None
        trips, variable = self.children[number]
        alone = self.alone(variable)
        if alone is None or self.operators[variable].level != self.operators[number].level:
            return None
        start, push = alone
        if self.operators[push].kind != PUSH or not self.is_own(self.children[push][0], variable):
            return None
        return trips, start, push

    def alone(self, number: int) -> tuple[int, int] | None:
        """``(start, next)`` where the value is a loop variable that no circle binds to others."""
        if self.operators[number].kind != VARIABLE:
            return None
        equations = self.children[self.children[number][0]]
        return (equations[0], equations[1]) if len(equations) == 2 else None

    def emptied(self, number: int) -> tuple[int, int] | None:
        """``(whole list, pop)`` where the value is a list that a loop pops once each time."""
        alone = self.alone(number)
        if alone is None or self.operators[alone[1]].kind != POPPED_LIST:
            return None
        (popped,) = self.children[alone[1]]
        return alone if self.is_own(popped, number) else None

    def held(self, optional: int) -> tuple[int, ...]:
        """What was put into an optional; empty where that is not known."""
        operator = self.operators[optional]
        known = operator.kind == OP and operator.text == "OptionalFromValue"
        return self.children[optional] if known else ()

    def is_own(self, number: int, variable: int) -> bool:
        """Whether the value is what the loop variable itself holds, in its own equation."""
        operator = self.operators[number]
        return operator.kind == OWN and operator.level == self.operators[variable].level

    def resolved(self, number: int) -> tuple[int, int] | None:
        """``(trips, pushed)`` where the value is a list being emptied whose elements are known."""
        emptied = self.emptied(number)
        if emptied is None:
            return None
        whole, zeros = emptied[0], self.operators[emptied[0]].kind == ZEROS
        if zeros:
            (whole,) = self.children[whole]
        filled = self.filled(whole)
        if filled is None:
            return None
        trips, start, push = filled
        pushed, level = self.children[push][1], self.operators[number].level
        if zeros:
            pushed = self.make(self.operator(ZEROS), (pushed,))
        understood = (
            self.operators[start].text == "EmptyTensorList"
            and self.operators[whole].level == level
            and self.operators[emptied[1]].data == self.operators[push].data
            and not self._open[pushed] >> level & 1
        )
        return (trips, pushed) if understood else None

    def _final(self, operator: Operator, children: tuple[int, ...]) -> int | None:
        """What does not change from one iteration to the next is the same at the end."""
        return None if self.levels[children[1]] >> operator.level & 1 else children[1]

    def _decoding(self, operator: Operator, children: tuple[int, ...]) -> int | None:
        """Decoding undoes encoding in the same form."""
        coded = self.operators[children[0]]
        lowered = coded.kind == ENCODING and coded.data == operator.data
        return self.children[children[0]][0] if lowered else None

    def _got(self, operator: Operator, children: tuple[int, ...]) -> int | None:
        """An item of a list cut from a tensor is one of the tensor; of looked-up rows, one of them.

        The list has that item, or taking it fails.
        """
        held = self.operators[children[0]]
        if held.kind != OP or held.text != "TensorListFromTensor":
            return None
        whole, place = self.children[children[0]][0], children[1]
        item = self.operator(ITEM)
        if self.operators[whole].kind != ITEM:
            return self.make(item, (whole, place))
        rows, places = self.children[whole]
        return self.make(item, (rows, self.make(item, (places, place))))

    def _popped_list(self, operator: Operator, children: tuple[int, ...]) -> int | None:
        """Popping what was just pushed gives back the list."""
        top = self.operators[children[0]]
        if top.kind == PUSH and top.data == operator.data:
            return self.children[children[0]][0]
        return None

    def _popped_element(self, operator: Operator, children: tuple[int, ...]) -> int | None:
        """Popping gives what was just pushed, or what the loop pushed in the reversed iteration."""
        top = self.operators[children[0]]
        if top.kind == PUSH and top.data == operator.data:
            return self.children[children[0]][1]
        found = self.resolved(children[0])
        if found is None:
            return None
        trips, pushed = found
        return self.reversed(pushed, top.level, trips)


def _at_its_level(operator: Operator, mask: int, left_open: int) -> tuple[int, int]:
    """The levels that a head depends on and leaves open, given those of what it reads."""
    kind, bit = operator.kind, 1 << operator.level
    if kind == OWN:
        return mask | bit, left_open | bit
    if kind == VARIABLE:
        return mask | bit, left_open & ~bit
    if kind in _ATOMS:
        return mask | bit, left_open
    if kind == EFFECT:
        return 2 * bit - 2, left_open
    return mask & ~bit, left_open
