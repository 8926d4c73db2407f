"""The small scope: a slice of it proven, what is enumerated, and that what is wrong is found."""

import itertools
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest

from rnnmem.errors import CheckError
from rnnmem.ir.builders import integer, number
from rnnmem.passes.checkpoint import replay
from rnnmem.passes.checkpoint.storage import Stack
from rnnmem.passes.encode import codecs
from rnnmem.passes.rematerialise.clone import Materialiser
from tests.drawing import encoded
from tests.proofs import small_scope
from tests.proofs.exact import Exact, Run, results
from tests.proofs.plans import CUTS, EDGES, FULL, PRODUCTS, SAVED_SETS, TWO_FORMS, Selection
from tests.proofs.small_scope import Wrong, prove
from tests.proofs.step_nets import (
    READS,
    Recipe,
    _closed,
    _is_first,
    _renamed,
    _steps,
    drawn,
    recipes,
)
from tests.proofs.training_steps import training_step

BRANCH = Recipe(1, (("tanh", (0,)), ("branch", (0, 2))), (3,))
SWAP = Recipe(2, (("mul", (0, 1)), ("tanh", (3,))), (1, 4))


# --- what is proven


@pytest.mark.slow
def test_every_step_net_of_one_op_gives_the_same_under_every_plan():
    every = [recipe for size in ((1, 0), (2, 0), (1, 1), (2, 1)) for recipe in recipes(*size)]
    assert len(every) == 39
    assert sum(prove(recipe)[0] for recipe in every) == 1346


@pytest.mark.slow
def test_an_edge_between_any_two_ops_of_a_gradient_step_net_changes_nothing():
    assert sum(prove(recipe, EDGES)[0] for recipe in recipes(1, 1)) == 1513


@pytest.mark.slow
@pytest.mark.parametrize("states", [1, 2])
def test_some_step_nets_of_two_ops_give_the_same_under_every_plan(states):
    some = list(recipes(states, 2))[7 :: 60 * states]
    assert sum(prove(recipe, TWO_FORMS)[0] for recipe in some) > 25 * len(some)


@pytest.mark.parametrize("size", [(2, 3), (1, 4), (2, 4)])
def test_a_drawn_step_net_gives_the_same(size):
    for seed in range(3):
        prove(drawn(*size, seed), SAVED_SETS)


def test_the_parts_of_the_scope_name_what_they_are():
    parts = small_scope.scope(30)
    assert {part.product for part in parts} == set(PRODUCTS)
    assert [len(list(part.recipes())) for part in (parts[0], parts[-1])] == [39, 1]


# --- what is enumerated


def test_how_many_step_nets_there_are():
    counts = {size: sum(1 for _ in recipes(*size)) for size in itertools.product((1, 2), range(3))}
    assert counts == {(1, 0): 0, (1, 1): 13, (1, 2): 316, (2, 0): 1, (2, 1): 25, (2, 2): 1819}
    kinds = {kind for recipe in recipes(2, 2) for kind, _ in recipe.ops}
    assert kinds == set(READS) and len(kinds) == 8


@pytest.mark.parametrize("states, ops", [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_every_step_net_is_one_of_those_enumerated_but_for_names(states, ops):
    """Against all lists of ops there are, none left out because it could stand in another order."""
    listed = {(one.ops, one.following) for one in recipes(states, ops)}
    seen = set()
    for steps in itertools.product(*(_steps(states + 1 + place) for place in range(ops))):
        for recipe in _closed(states, steps):
            least = min(_renamed(recipe))
            assert least in listed, recipe
            seen.add(least)
    assert seen == listed


def test_what_is_drawn_is_in_the_scope():
    for seed in range(200):
        recipe = drawn(1 + seed % 2, 2, seed)
        ops, following = min(_renamed(recipe))
        assert _is_first(Recipe(recipe.states, ops, following))


def test_plans_are_all_that_may_be_saved_or_run_again():
    # v0 = tanh(s0), v1 = branch(s0, v0): s0, v0 and the truth are read; v0 and it may run again
    choices = list(Selection(training_step(BRANCH)).choices(FULL))
    (plans,) = zip(*(choice.plan.loops for choice in choices), strict=True)
    assert {(plan.saved, plan.recomputed) for plan in plans} == {
        (("s0", "v0:0", "v1_if:0"), ()),
        (("s0", "v1_if:0"), ("v0",)),
        (("s0", "v0:0"), ("const3", "v1_if")),
        (("s0",), ("v0", "const3", "v1_if")),
    }
    techniques = {one.techniques for plan in plans for one in plan.encodings}
    assert techniques == {("bits",), ("offload",), ("bits", "offload")}
    cuts = {
        tuple(getattr(plan.segments, field) for field in CUTS[0]) for plan in plans if plan.segments
    }
    assert cuts == {tuple(cut.values()) for cut in CUTS}
    assert {plan.parallel_iterations for plan in plans} == {1, 10}
    assert {choice.keeps_alive for choice in choices} == {False, True}
    assert any(choice.plan.decisions for choice in choices)


# --- what the proof rests on


# What stands for Tanh has no derivative.
SMOOTH = [
    recipe
    for recipe in (*recipes(1, 1), *itertools.islice(recipes(2, 2), 0, None, 90))
    if not any(kind == "tanh" for kind, _ in recipe.ops)
]


@pytest.mark.parametrize("recipe", SMOOTH, ids=str)
def test_the_gradients_are_those_of_the_numbers(recipe):
    """Against differences so small that no branch turns."""
    net, small = training_step(recipe), Fraction(1, 10**30)
    starts = [Fraction(3, 4), Fraction(-5, 7)][: recipe.states]
    for place, start in enumerate(starts):
        moved = [*starts[:place], start + small, *starts[place + 1 :]]
        loss = [_loss(net, one, recipe.states) for one in (starts, moved)]
        gradient = _outputs(net, starts)[recipe.states + place].value
        assert abs((loss[1] - loss[0]) / small - gradient) < Fraction(1, 10**15)


def _outputs(net, starts):
    run = Run({})
    given = [run.given(start, place) for place, start in enumerate(starts)]
    x = [run.given(Fraction(one, 5), "x", one) for one in (4, -1, 2)]
    return run.run(net, [*given, run.given(Fraction(-2, 3), "w"), x, np.int32(3)])


def _loss(net, starts, states):
    return sum((place + 1) * one.value for place, one in enumerate(_outputs(net, starts)[:states]))


def test_another_order_of_a_sum_is_another_history_of_the_same_number():
    run = Run({})
    a, b, c = (run.given(Fraction(one), one) for one in (1, 2, 3))
    add = training_step(Recipe(1, (("add", (0, 1)),), (2,))).op_by_name["forward"].nets["body"]
    op = add.op_by_name["v0"]
    (left,) = run._op(op, [*run._op(op, [a, b], ()), c], ())
    (right,) = run._op(op, [a, *run._op(op, [b, c], ())], ())
    assert left.value == right.value and left != right
    assert run._op(op, [a, b], ()) == run._op(op, [b, a], ())


def test_results_tell_iterations_and_states_apart():
    found = [results(training_step(SWAP), trips, 2, {}) for trips in range(4)]
    assert len({repr(one) for one in found}) == 4
    assert all(isinstance(one, Exact) for one in found[3][:4])


# --- what is wrong is found

CLONE, PUT = Materialiser._clone, Stack.put


def another_clone(self, op):
    """Clones read what their op read in the other order."""
    return CLONE(self, op.replace(inputs=op.inputs[::-1]))


def states_put_elsewhere(self, net, lists, values):
    """A checkpoint's states are pushed on each other's lists."""
    return PUT(self, net, lists, (values[0], *values[:0:-1]))


def one_iteration_short(net, type, first, second, *, name="rnnmem/count"):
    """A replay leaves out the last iteration of its segment."""
    made = integer(net, type, first, second, name=name)
    return integer(net, "Sub", made, number(net, 1, encoded)) if name == "rnnmem/trips" else made


TRUTH = Recipe(1, (("branch", (0, 1)),), (2,))
BROKEN = {
    "a clone reads in another order": (TRUTH, (Materialiser, "_clone", another_clone)),
    "a checkpoint's states are exchanged": (SWAP, (Stack, "put", states_put_elsewhere)),
    "a replay is one iteration short": (SWAP, (replay, "integer", one_iteration_short)),
    "bits are selected one off": (TRUTH, (codecs, "SELECTS", codecs.SELECTS << 1)),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("verified", [True, False])
def test_a_broken_rewrite_is_found_by_the_verifier_and_without_it(name, verified):
    recipe, patch = BROKEN[name]
    assert prove(recipe, TWO_FORMS)[0] > 20
    verify = {} if verified else {"verify": lambda *_: None}
    with mock.patch.object(*patch), pytest.raises(Wrong) as found:
        prove(recipe, TWO_FORMS, **verify)
    assert str(recipe) in str(found.value)
    assert isinstance(found.value.__cause__, CheckError) == verified


def test_a_verifier_that_refuses_what_is_right_is_found():
    def refuse(original, rewritten):
        raise CheckError("value-changed: it seems so")

    with pytest.raises(Wrong, match="it seems so"):
        prove(SWAP, SAVED_SETS, verify=refuse)
