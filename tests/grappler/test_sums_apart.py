"""Which additions of a tree TensorFlow leaves apart, by what it made of the function."""

import pytest

from rnnmem.analysis.loops import loops_of
from rnnmem.grappler.summation_order import APART, summation_trees
from rnnmem.grappler.summation_races import racing
from rnnmem.grappler.sums_apart import with_sums_apart
from tests.handmade import const, make_net, op, while_op

F = "f[?,4]"
CHAIN = [
    op("one", "AddV2", "a b", F),
    op("two", "AddV2", "one c", F),
    op("three", "AddV2", "two d", F),
]
ALL = dict.fromkeys(("one", "two", "three"), "AddV2")


def net_of(ops, inputs="abcd", kind=F):
    return make_net(dict.fromkeys(inputs, kind), ops, [ops[-1].op.name])


def trees(net):
    return [{one.name for one in tree} for tree in summation_trees(net)]


def test_additions_that_are_all_left_make_no_tree():
    net = with_sums_apart(net_of(CHAIN), lambda: ALL)
    assert set(net.attributes[APART]) == set(ALL)
    assert not trees(net)


@pytest.mark.parametrize("left", [{}, {"one": "AddV2", "two": "AddV2", "three": "AddN"}])
def test_one_sum_of_them_makes_one_tree_and_what_is_left_beside_it_tells_shapes(left):
    assert trees(with_sums_apart(net_of(CHAIN), lambda: left)) == [set(ALL)]


def test_what_the_later_addition_did_not_take_is_a_tree_of_its_own():
    left = {"one": "AddV2", "two": "AddN", "three": "AddV2"}
    assert trees(with_sums_apart(net_of(CHAIN), lambda: left)) == [{"one", "two"}]


def test_a_sum_of_three_has_an_order_wherever_it_stands():
    ops = [op("one", "AddN", "a b c", F), op("two", "AddV2", "one d", F)]
    net = with_sums_apart(net_of(ops), lambda: {"one": "AddN", "two": "AddV2"})
    assert trees(net) == [{"one"}]


def test_where_all_sizes_are_known_nobody_is_asked():
    def asked():
        raise AssertionError

    ops = [op("one", "AddV2", "a b", "f[4]"), op("two", "AddV2", "one c", "f[4]")]
    net = net_of(ops, "abc", "f[4]")
    assert with_sums_apart(net, asked) is net


@pytest.mark.parametrize("merged", [False, True])
def test_step_nets_have_their_own(merged):
    body = make_net(
        {"i": "i[]", "h": F, "x": F},
        [
            const("unit", 1),
            op("next", "AddV2", "i unit", "i[]"),
            op("wave", "Tanh", "h", F),
            op("one", "AddV2", "h wave", F),
            op("two", "AddV2", "one x", F),
            op("x2", "Identity", "x", F),
        ],
        ["next", "two", "x2"],
    )
    net = make_net(
        {"h0": F, "x0": F},
        [const("zero", 0), while_op("loop", "zero h0 x0", body)],
        ["loop:1"],
    )
    left = (
        {"loop/body/two": "AddN"}
        if merged
        else dict.fromkeys(("loop/body/one", "loop/body/two"), "AddV2")
    )
    (loop,) = loops_of(with_sums_apart(net, lambda: left))
    assert bool(racing(loop)) == merged
