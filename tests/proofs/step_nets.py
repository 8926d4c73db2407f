"""Every small step net: recipes as plain data, and the forward and gradient loops drawn of one.

A recipe lists ops in order. Each reads values by number: first the states, then the loop-invariant
``w``, then the results of the ops before it. There are eight types:

    add     AddV2(a, b)                    read    TensorListGetItem(xs, i), of the iteration
    mul     Mul(a, b)                      scale   Mul(a, 3/4), a product by a constant
    sum     AddN(a, b, c)                  tanh    Tanh(a), whose gradient reads its result
    relu    Relu(a), whose gradient        branch  If(a > 1/2, then a * b, else a + b), whose
            asks for a sign only                   gradient is a branch on the same predicate

Left out is what is equal to something listed:

* a recipe that another becomes by carrying the states in another order, or by listing its ops in
  another order: the same Net but for names, and no rewrite looks at either;
* another order of the inputs of add and mul, which the op table says commute, and of sum;
* an op that neither the next state nor a later op reads: dead code, which is gone before planning,
  so that a recipe of fewer ops is left;
* a state that stays as it is: it is a loop-invariant, as ``w`` is;
* a state that nobody reads: its part of the Net is dead code in the gradient, and a recipe of fewer
  states is left.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Iterator

READS = {"add": 2, "mul": 2, "sum": 3, "scale": 1, "tanh": 1, "relu": 1, "read": 0, "branch": 2}
"""Types, and how many values one of each reads."""
_ANY_ORDER = ("add", "mul", "sum")

Step = tuple[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A step net.

    Attributes:
      states: how many states it carries.
      ops: type and the numbers of what it reads, of each op.
      following: the number of what each state becomes: an op's result or another state.
    """

    states: int
    ops: tuple[Step, ...]
    following: tuple[int, ...]

    @property
    def first(self) -> int:
        """The number of the first op's result; that of ``w`` is one below."""
        return self.states + 1

    def __str__(self) -> str:
        ops = "; ".join(f"{self._name(self.first + k)} = {kind}({', '.join(map(self._name, read))})"
                        for k, (kind, read) in enumerate(self.ops))  # fmt: skip
        after = ", ".join(f"s{k}' = {self._name(one)}" for k, one in enumerate(self.following))
        return f"{ops}; {after}"

    def _name(self, number: int) -> str:
        if number < self.states:
            return f"s{number}"
        return "w" if number == self.states else f"v{number - self.first}"


def recipes(states: int, ops: int) -> Iterator[Recipe]:
    """Every step net of exactly so many states and ops, one of each that are equal."""
    for listed in _listed(states, ops):
        for recipe in _closed(states, listed):
            if _is_first(recipe):
                yield recipe


def drawn(states: int, ops: int, seed: int) -> Recipe:
    """One of the step nets of exactly so many states and ops, drawn at random.

    Types are drawn first, then what each reads, so that sums of three are not most of all; what
    would leave something dead is drawn again.
    """
    dice = random.Random(seed)
    while True:
        listed: list[Step] = []
        for place in range(ops):
            kind = dice.choice(list(READS))
            read = tuple(dice.randrange(states + 1 + place) for _ in range(READS[kind]))
            listed.append((kind, tuple(sorted(read)) if kind in _ANY_ORDER else read))
        closed = list(_closed(states, tuple(listed)))
        if closed:
            return dice.choice(closed)


def _listed(states: int, count: int) -> Iterator[tuple[Step, ...]]:
    """Every list of ops whose independent neighbours stand in order."""
    if not count:
        yield ()
        return
    for before in _listed(states, count - 1):
        newest = states + len(before)
        for step in _steps(newest + 1):
            if before and newest not in step[1] and step < before[-1]:
                continue  # the two could change places
            yield (*before, step)


@functools.cache
def _steps(values: int) -> tuple[Step, ...]:
    """Every op over so many values."""
    found = []
    for kind, count in READS.items():
        numbers = range(values)
        choose = itertools.combinations_with_replacement if kind in _ANY_ORDER else None
        if choose is None:
            found += [(kind, read) for read in itertools.product(numbers, repeat=count)]
        else:
            found += [(kind, read) for read in choose(numbers, count)]
    return tuple(sorted(found))


def _closed(states: int, ops: tuple[Step, ...]) -> Iterator[Recipe]:
    """The recipes that these ops make: with each choice of next states that leaves nothing dead."""
    first = states + 1
    results = range(first, first + len(ops))
    read = {number for _, numbers in ops for number in numbers}
    choices = [[*(other for other in range(states) if other != one), *results]
               for one in range(states)]  # fmt: skip
    for following in itertools.product(*choices):
        used = read | set(following)
        if used.issuperset(results) and used.issuperset(range(states)):
            yield Recipe(states, ops, following)


def _is_first(recipe: Recipe) -> bool:
    """Whether no other order of its states and ops makes a recipe that sorts before it."""
    mine = (recipe.ops, recipe.following)
    return all(mine <= other for other in _renamed(recipe))


def _renamed(recipe: Recipe) -> Iterator[tuple[tuple[Step, ...], tuple[int, ...]]]:
    """The recipe with its states, and its ops, in every order that they may stand in."""
    states, first, count = recipe.states, recipe.first, len(recipe.ops)
    for carried in itertools.permutations(range(states)):
        for order in itertools.permutations(range(count)):
            place = {first + old: first + new for new, old in enumerate(order)}
            place |= {old: new for new, old in enumerate(carried)} | {states: states}
            ops = []
            for new, old in enumerate(order):
                kind, read = recipe.ops[old]
                read = tuple(place[one] for one in read)
                if any(one >= first + new for one in read):
                    break
                ops.append((kind, tuple(sorted(read)) if kind in _ANY_ORDER else read))
            else:
                yield tuple(ops), tuple(place[recipe.following[old]] for old in carried)
