"""The verifier's two core lemmas, and what follows at once, as obligations for an SMT solver.

Values, ops and step nets are uninterpreted: nothing is known of an op but that equal inputs give
equal results. An induction is stated as its base and its step, with the hypothesis among what is
given; that base and step give the claim for every iteration is the principle itself, which no
solver of first-order logic proves. docs/correctness.md says which code rests on which lemma.

Each lemma has controls: the same with one condition gone. The solver must find a model of what is
given in which the claim is false, or the condition was not needed, or what is given is never so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import z3

VALUE = z3.DeclareSort("Value")
OPERATOR = z3.DeclareSort("Operator")
NUMBER = z3.DeclareSort("Number")
INT = z3.IntSort()
LIST = z3.ArraySort(INT, VALUE)


@dataclasses.dataclass(frozen=True)
class Obligation:
    """What is to be shown.

    Attributes:
      lemma: which lemma it belongs to.
      part: base, step, or what follows.
      given: condition in words -> its formula; without any of them the claim does not follow.
      claim: what must follow.
    """

    lemma: str
    part: str
    given: dict[str, z3.BoolRef]
    claim: z3.BoolRef

    def counterexample(self, without: str = "") -> z3.ModelRef | None:
        """A model in which all that is given holds, but for one condition, and the claim does not.

        Raises:
          RuntimeError: the solver cannot tell.
        """
        given = [formula for name, formula in self.given.items() if name != without]
        return _model(*given, z3.Not(self.claim))

    def example(self) -> z3.ModelRef | None:
        """A model of what is given: without one the claim would follow from nothing."""
        return _model(*self.given.values())


def _model(*formulas: z3.BoolRef) -> z3.ModelRef | None:
    solver = z3.Solver()
    solver.set("timeout", 20_000)
    solver.add(*formulas)
    found = solver.check()
    if found == z3.unknown:
        raise RuntimeError(f"the solver cannot tell: {solver.reason_unknown()}")
    return solver.model() if found == z3.sat else None


def obligations() -> Iterator[Obligation]:
    """All of them, the lemmas in the order in which they rest on each other."""
    for lemma in (value_numbering, two_nets, loops, trips, pushes, pops, clones, replays, refills):
        yield from lemma()


# --- value numbering


def value_numbering() -> Iterator[Obligation]:
    """A blob holds what its number means, whatever the inputs of the Net are.

    By induction over a running order: the op of ``blob`` reads ``a`` and ``b``, which ran before.
    Numbers of more or fewer inputs are the same with more or fewer children.
    """
    apply = z3.Function("apply", OPERATOR, VALUE, VALUE, VALUE)
    meaning = z3.Function("meaning", NUMBER, VALUE)
    operator = z3.Function("operator", NUMBER, OPERATOR)
    left, right = (z3.Function(name, NUMBER, NUMBER) for name in ("left", "right"))
    op = z3.Const("op", OPERATOR)
    blob, a, b = z3.Consts("blob a b", VALUE)
    number, of_a, of_b = z3.Consts("number of_a of_b", NUMBER)
    means = apply(operator(number), meaning(left(number)), meaning(right(number)))
    given = {
        "an op gives a function of what it reads": blob == apply(op, a, b),
        "a number means its operator over the numbers it reads": meaning(number) == means,
        "the number's operator is the op's": operator(number) == op,
        "its first child is the first input's number": left(number) == of_a,
        "its second child is the second input's": right(number) == of_b,
        "the first input holds what its number means": a == meaning(of_a),
        "the second one too": b == meaning(of_b),
    }
    yield Obligation("value numbering", "step", given, blob == meaning(number))
    swapped = apply(op, meaning(of_a), meaning(of_b)) == apply(op, meaning(of_b), meaning(of_a))
    given = {
        **given,
        "its first child is the first input's number": left(number) == of_b,
        "its second child is the second input's": right(number) == of_a,
        "the op commutes": swapped,
    }
    yield Obligation(
        "value numbering", "step of an op whose inputs were sorted", given,
        blob == meaning(number),
    )  # fmt: skip


def two_nets() -> Iterator[Obligation]:
    """Blobs of two Nets hold the same if both have one number and the Nets are given the same."""
    mine, others = (z3.Function(name, NUMBER, VALUE) for name in ("mine", "others"))
    one, other = z3.Consts("one other", VALUE)
    number, second = z3.Consts("number second", NUMBER)
    given = {
        "a number means the same in both": z3.ForAll(
            [number], mine(number) == others(number), patterns=[mine(number)]
        ),
        "the blob holds what its number means": one == mine(number),
        "the other one too": other == others(second),
        "both have one number": number == second,
    }
    yield Obligation("value numbering", "of two Nets", given, one == other)


# --- loops


def loops() -> Iterator[Obligation]:
    """Two loops with the same starts and the same step run through the same states.

    A state here is all variables that depend on each other; ``w`` is what the step reads besides.
    """
    step, theirs = (z3.Function(name, VALUE, VALUE, VALUE) for name in ("step", "their_step"))
    x, y = (z3.Function(name, INT, VALUE) for name in ("x", "y"))
    start, their_start, w, their_w = z3.Consts("start their_start w their_w", VALUE)
    n = z3.Int("n")
    yield Obligation(
        "loops", "base",
        {"the loop begins with its start": x(0) == start,
         "the other one too": y(0) == their_start,
         "the starts have one number": start == their_start},
        x(0) == y(0),
    )  # fmt: skip
    state, more = z3.Consts("state more", VALUE)
    same = z3.ForAll([state, more], step(state, more) == theirs(state, more),
                     patterns=[step(state, more)])  # fmt: skip
    given = {
        "equal states so far": x(n) == y(n),
        "the next state is the step's": x(n + 1) == step(x(n), w),
        "the other one's too": y(n + 1) == theirs(y(n), their_w),
        "the steps have one number": same,
        "so has what they read besides": w == their_w,
    }
    yield Obligation("loops", "step", given, x(n + 1) == y(n + 1))


def trips() -> Iterator[Obligation]:
    """Two loops that run through the same states and ask the same end in the same iteration."""
    x, y = (z3.Function(name, INT, VALUE) for name in ("x", "y"))
    more, theirs = (z3.Function(name, VALUE, z3.BoolSort()) for name in ("more", "their_more"))
    mine, others, n, m = z3.Ints("trips their_trips n m")
    state = z3.Const("state", VALUE)
    given = {
        "equal states": z3.ForAll([n], x(n) == y(n), patterns=[x(n)]),
        "the conds have one number": z3.ForAll(
            [state], more(state) == theirs(state), patterns=[more(state)]
        ),
        "trips are not negative": z3.And(mine >= 0, others >= 0),
        "the loop ends": z3.Not(more(x(mine))),
        "it goes on until then": z3.ForAll(
            [n], z3.Implies(z3.And(0 <= n, n < mine), more(x(n))), patterns=[x(n)]
        ),
        "the other one ends": z3.Not(theirs(y(others))),
        "that goes on until then": z3.ForAll(
            [m], z3.Implies(z3.And(0 <= m, m < others), theirs(y(m))), patterns=[y(m)]
        ),
    }
    yield Obligation(
        "loops", "trips and last states", given,
        z3.And(mine == others, x(mine) == y(others)),
    )  # fmt: skip


# --- lists


def pushes() -> Iterator[Obligation]:
    """A list that a loop fills holds, after n iterations, what each of them pushed."""
    v = z3.Function("v", INT, VALUE)
    before, after = z3.Consts("before after", LIST)
    length, then, n, k, j = z3.Ints("length then n k j")
    held = z3.ForAll([k], z3.Implies(z3.And(0 <= k, k < n), before[k] == v(k)))
    given = {
        "as many as iterations": length == n,
        "each is what its iteration pushed": held,
        "one is pushed": z3.And(after == z3.Store(before, length, v(n)), then == length + 1),
    }
    claim = z3.And(then == n + 1, z3.Implies(z3.And(0 <= j, j < n + 1), after[j] == v(j)))
    yield Obligation("lists", "step of pushes", given, claim)


def pops() -> Iterator[Obligation]:
    """What the gradient loop pops in its iteration s was pushed in iteration ``filled - 1 - s``.

    ``filled`` is how often the forward loop ran, in which each iteration pushed its v.
    """
    v = z3.Function("v", INT, VALUE)
    held = z3.Const("held", LIST)
    popped = z3.Const("popped", VALUE)
    filled, length, then, s, k, j = z3.Ints("filled length then s k j")
    values = z3.ForAll([k], z3.Implies(z3.And(0 <= k, k < length), held[k] == v(k)))
    rest = z3.Implies(z3.And(0 <= j, j < then), held[j] == v(j))
    given = {
        "the list begins empty, and each iteration pushed one": length == filled,
        "each is what its iteration pushed": values,
        "the gradient loop begins with the whole list": then == length,
    }
    yield Obligation("lists", "base of pops", given, z3.And(then == filled - 0, rest))
    given = {
        "as many are left as were not popped": length == filled - s,
        "the gradient loop runs no more often than the forward loop": z3.And(0 <= s, s < filled),
        "each is what its iteration pushed": values,
        "the last is popped": z3.And(popped == held[length - 1], then == length - 1),
    }
    claim = z3.And(length > 0, popped == v(filled - 1 - s), then == filled - (s + 1), rest)
    yield Obligation("lists", "step of pops", given, claim)


def clones() -> Iterator[Obligation]:
    """A gradient loop that pops what an op read, and runs it again, goes as the one that popped it.

    By induction over its iterations; the forward loop's value of iteration n is v(n).
    """
    f = z3.Function("f", VALUE, VALUE, VALUE)
    back = z3.Function("back", VALUE, VALUE, VALUE)
    v, h = (z3.Function(name, INT, VALUE) for name in ("v", "h"))
    g, again = (z3.Function(name, INT, VALUE) for name in ("g", "again"))
    w, brought = z3.Consts("w brought", VALUE)
    trips, s, n = z3.Ints("trips s n")
    clone = f(h(trips - 1 - s), brought)
    given = {
        "the op made the value in every iteration": z3.ForAll(
            [n], v(n) == f(h(n), w), patterns=[v(n)]
        ),
        "equal gradients so far": g(s) == again(s),
        "the original pops the value": g(s + 1) == back(g(s), v(trips - 1 - s)),
        "the rewritten loop pops what the op read": again(s + 1) == back(again(s), clone),
        "and is given the same invariant": w == brought,
    }
    yield Obligation("gradient loops", "step", given, g(s + 1) == again(s + 1))


# --- segments


def replays() -> Iterator[Obligation]:
    """A replay from a checkpoint of iteration ``start`` is in its iteration k at ``start + k``."""
    step = z3.Function("step", VALUE, VALUE)
    x, r = (z3.Function(name, INT, VALUE) for name in ("x", "r"))
    kept = z3.Const("kept", VALUE)
    start, k = z3.Ints("start k")
    given = {
        "the checkpoint is the state of its iteration": kept == x(start),
        "the replay begins with it": r(0) == kept,
    }
    yield Obligation("segments", "base of a replay", given, r(0) == x(start))
    given = {
        "equal states so far": r(k) == x(start + k),
        "the forward loop steps": x(start + k + 1) == step(x(start + k)),
        "the replay steps in the same way": r(k + 1) == step(r(k)),
    }
    yield Obligation("segments", "step of a replay", given, r(k + 1) == x(start + k + 1))


def refills() -> Iterator[Obligation]:
    """With ``left`` iterations left, the list holds what those from ``start`` on would have pushed.

    Where none is left of the segment, a replay of the one before fills it again.
    """
    v = z3.Function("v", INT, VALUE)
    held, refilled = z3.Consts("held refilled", LIST)
    left, start, length, before, k, j = z3.Ints("left start length before k j")
    count, end = z3.Ints("count end")
    pushed = z3.ForAll([k], z3.Implies(z3.And(0 <= k, k < length), held[k] == v(end + k)))
    given = {
        "the forward loop pushes from end on": pushed,
        "as often as it runs from there on": length == count - end,
        "all iterations are left": left == count,
        "the segment behind the last begins at end": start == end,
    }
    within = z3.Implies(z3.And(0 <= j, j < length), held[j] == v(start + j))
    yield Obligation("segments", "base of a tail", given, z3.And(length == left - start, within))
    element = z3.ForAll([k], z3.Implies(z3.And(0 <= k, k < length), held[k] == v(start + k)))
    given = {
        "the list holds the segment so far": element,
        "and no more": length == left - start,
        "the segment is not used up": left > start,
    }
    rest = z3.Implies(z3.And(0 <= j, j < length - 1), held[j] == v(start + j))
    yield Obligation(
        "segments", "step of a segment's pops", given,
        z3.And(length > 0, held[length - 1] == v(left - 1), length - 1 == (left - 1) - start, rest),
    )  # fmt: skip
    values = z3.ForAll(
        [k], z3.Implies(z3.And(0 <= k, k < left - before), refilled[k] == v(before + k))
    )
    given = {
        "a checkpoint in front is taken": z3.And(0 <= before, before < left),
        "the replay runs the iterations between": length == left - before,
        "each pushes what the forward loop's would": values,
    }
    yield Obligation(
        "segments", "a refill", given,
        z3.And(length > 0, refilled[length - 1] == v(left - 1), length == left - before),
    )  # fmt: skip


FALSE_CLAIMS: dict[str, Callable[[], Obligation]] = {}
"""Claims that are false though all conditions hold; each must have a counterexample."""


def _false(claim: Callable[[], Obligation]) -> Callable[[], Obligation]:
    FALSE_CLAIMS[(claim.__doc__ or "").rstrip(".")] = claim
    return claim


@_false
def _first_in_first_out() -> Obligation:
    """The gradient loop pops in its iteration s what was pushed in iteration s."""
    *_, step = pops()
    v, popped, s = z3.Function("v", INT, VALUE), z3.Const("popped", VALUE), z3.Int("s")
    return dataclasses.replace(step, claim=popped == v(s))


@_false
def _the_state_behind() -> Obligation:
    """An op that is run again may read the state behind its iteration."""
    (step,) = clones()
    f, back = (z3.Function(name, VALUE, VALUE, VALUE) for name in ("f", "back"))
    h, again = (z3.Function(name, INT, VALUE) for name in ("h", "again"))
    trips, s, brought = z3.Int("trips"), z3.Int("s"), z3.Const("brought", VALUE)
    late = again(s + 1) == back(again(s), f(h(trips - s), brought))
    given = {**step.given, "the rewritten loop pops what the op read": late}
    return dataclasses.replace(step, given=given)


@_false
def _one_iteration_late() -> Obligation:
    """A replay may begin with the state one iteration behind its start."""
    base, _ = replays()
    x, kept, start = z3.Function("x", INT, VALUE), z3.Const("kept", VALUE), z3.Int("start")
    given = {**base.given, "the checkpoint is the state of its iteration": kept == x(start + 1)}
    return dataclasses.replace(base, given=given)


@_false
def _one_iteration_short() -> Obligation:
    """A replay may run one iteration less than there are in its segment."""
    *_, refill = refills()
    left, before, length = z3.Ints("left before length")
    short = length == left - before - 1
    given = {**refill.given, "the replay runs the iterations between": short}
    refilled, v = z3.Const("refilled", LIST), z3.Function("v", INT, VALUE)
    return dataclasses.replace(refill, given=given, claim=refilled[length - 1] == v(left - 1))
