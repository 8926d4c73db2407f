"""Sums that begin with an op which TensorFlow may merge with an equal one, or not."""

import pytest

from rnnmem.grappler.cse import sums_by_chance
from tests.handmade import const, make_net, op, pop

F = "f[4]"
HALVES = [const("c", 0.5), const("d", 0.5)]
TWICE = [*HALVES, op("m", "Mul", "c x", F), op("n", "Mul", "x d", F)]
SUM = op("s", "AddN", "m y z", F)


def net_of(ops, outputs=("s", "n")):
    return make_net({"x": F, "y": F, "z": F, "list": "v[]"}, ops, outputs)


def found(ops, outputs=("s", "n")):
    """The sums by chance, of a loop with such a body."""
    body = net_of(ops, outputs)
    loop = op("loop", "While", "x y z list", f"{F} {F}", nets={"body": body})
    return [one.name for one in sums_by_chance(net_of([loop], ["loop:0"]))]


def test_an_addend_that_is_computed_twice_with_equal_constants():
    assert found([*TWICE, SUM]) == ["s"]


def test_the_equal_op_may_read_what_is_equal():
    later = [op("t", "Tanh", "m", F), op("u", "Tanh", "n", F), op("s", "AddN", "t y z", F)]
    assert found([*TWICE, *later], ["s", "u"]) == ["s"]


def test_an_identity_between_changes_nothing():
    later = [op("k", "Identity", "m", F), op("s", "AddN", "y k z", F)]
    assert found([*TWICE, *later]) == ["s"]


@pytest.mark.parametrize(
    "ops",
    [
        [const("c", 0.5), const("d", 0.25), *TWICE[2:]],
        [const("c", 0.5), op("m", "Mul", "c x", F), op("n", "Mul", "x c", F)],
        [*HALVES, op("m", "Sub", "c x", F), op("n", "Sub", "x d", F)],
        [*HALVES, op("m", "Mul", "c x", F), op("n", "Mul", "y d", F)],
        [*HALVES, op("m", "Mul", "c x", F, stateful=True), op("n", "Mul", "x d", F, stateful=True)],
    ],
    ids=["other constant", "surely merged", "not commutative", "other factor", "stateful"],
)
def test_what_is_merged_surely_or_never_is_no_chance(ops):
    assert not found([*ops, SUM])


def test_two_addends_may_change_places():
    assert not found([*TWICE, op("s", "AddN", "m y", F)])


def test_an_addend_that_is_held_anyway_is_never_begun_with():
    assert not found([*TWICE, SUM], ["s", "n", "m"])
    kept = [op("k", "Identity", "m", F), op("s", "AddN", "k y z", F)]
    assert not found([*TWICE, *kept, op("t", "Tanh", "m", F)], ["s", "n", "t"])


def test_gradient_step_nets_and_the_outermost_net_are_not_looked_at():
    assert not found([pop("p", "list", F), *TWICE, SUM])
    assert not list(sums_by_chance(net_of([*TWICE, SUM])))
