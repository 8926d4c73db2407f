"""Which blobs a sum of three or more may add up in place."""

import pytest

from rnnmem.grappler.summation_order import Sums, summation_trees
from rnnmem.ir.handed_on import buffer_of
from tests.handmade import make_net, op, while_op

F = "f[4]"


def addends(ops, inputs="abcd", outputs=("out",), **more):
    net = make_net(dict.fromkeys(inputs, F), ops, outputs, **more)
    return Sums(net).addends - {"out"}


def test_two_addends_may_change_places():
    assert not addends([op("out", "AddN", "a b", F)])
    assert not addends([op("out", "AddV2", "a b", F)])


def test_three_addends_show_their_order():
    assert addends([op("out", "AddN", "a b c", F)]) == {"a", "b", "c"}


def test_a_tree_of_additions_is_one_sum():
    tree = [op("x", "AddV2", "a b", F), op("y", "Identity", "x", F), op("out", "AddV2", "y c", F)]
    assert addends(tree) == {"a", "b", "c", "x", "y"}


def test_two_branches_of_a_tree_are_one_sum():
    tree = [op("x", "AddV2", "a b", F), op("y", "Add", "c d", F), op("out", "AddN", "x y", F)]
    net = make_net(dict.fromkeys("abcd", F), tree, ["out"])
    assert [{one.name for one in ops} for ops in summation_trees(net)] == [{"x", "y", "out"}]


@pytest.mark.parametrize("kind", ["i[]", "i[4]"])
def test_whole_numbers_add_up_to_the_same_in_any_order(kind):
    # x[i + 1], as ``tf.strided_slice(x, [i + 1], [i + 1 + 1])`` asks for it in many a loop
    tree = [op("x", "AddV2", "a b", kind), op("out", "AddV2", "x c", kind)]
    net = make_net(dict.fromkeys("abc", kind), tree, ["x", "out"])
    assert not summation_trees(net)
    assert not Sums(net).addends


def test_a_product_in_between_makes_two_sums():
    ops = [op("x", "AddV2", "a b", F), op("y", "Mul", "x x", F), op("out", "AddV2", "y c", F)]
    assert not addends(ops)


def test_what_is_broadcast_is_added_by_itself():
    ops = [op("x", "AddV2", "a b", F), op("out", "AddV2", "x row", F)]
    net = make_net({"a": F, "b": F, "row": "f[1]"}, ops, ["out"])
    assert not Sums(net).addends
    unknown = make_net({"a": F, "b": F, "row": "f[?]"}, ops, ["out"])
    assert Sums(unknown).addends


def test_who_shares_a_buffer_with_an_addend_counts_too():
    ops = [
        op("t", "Tanh", "a", F),
        op("flat", "Reshape", "t b", F),
        op("out", "AddN", "flat b c", F),
    ]
    assert addends(ops) == {"t", "flat", "b", "c"}


@pytest.mark.parametrize(
    ("read", "type", "written", "hands_on"),
    [
        ("f[?,4]", "Sum", F, True),
        ("f[1,4]", "Sum", F, True),
        ("f*", "Sum", F, True),
        ("f[3,4]", "Sum", F, False),
        ("f[?,3]", "Sum", F, False),
        ("f[?,4]", "Tile", "f[?,4]", True),
        ("f[2,4]", "Tile", "f[4,4]", False),
        ("f[?,4]", "Transpose", "f[4,?]", True),
        ("f[2,4]", "Transpose", "f[4,2]", False),
        ("i[4]", "Cast", F, False),
    ],
)
def test_what_may_turn_out_to_do_nothing_hands_on_a_buffer(read, type, written, hands_on):
    ops = [
        op("t", "Tanh", "a", read),
        op("x", type, "t axes", written),
        op("out", "AddN", "x b c", written),
    ]
    net = make_net({"a": read, "axes": "i[1]", "b": written, "c": written}, ops, ["out"])
    assert ("t" in Sums(net).addends) == hands_on


def branch(inner):
    made = op("if", "If", "p a b c", F, nets={"then_branch": inner, "else_branch": inner})
    return Sums(make_net({"p": "z[]", **dict.fromkeys("abc", F)}, [made], ["if"]))


def test_a_sum_in_a_branch_adds_up_what_the_branch_is_given():
    inner = make_net(dict.fromkeys("xyz", F), [op("s", "AddN", "x y z", F)], ["s"])
    assert branch(inner).addends == {"a", "b", "c"}


def test_what_a_branch_hands_out_may_be_an_addend():
    ops = [
        op("t", "Tanh", "x", F),
        op("s", "AddN", "t y z", F),
        op("held", "OptionalFromValue", "t", "v[]"),
    ]
    found = branch(make_net(dict.fromkeys("xyz", F), ops, ["held"]))
    assert found.addends == {"b", "c", "if"}


@pytest.mark.parametrize("outputs", [["next", "s", "u"], ["next", "u", "s"]])
def test_a_sum_in_a_nested_loop_adds_up_what_the_loop_carries(outputs):
    body = make_net(
        {"i": "i[]", "h": F, "u": F},
        [op("next", "AddV2", "i i", "i[]"), op("s", "AddN", "h u h", F)],
        outputs,
    )
    net = make_net({"n": "i[]", "a": F, "b": F}, [while_op("loop", "n a b", body)], ["loop:1"])
    assert Sums(net).addends >= {"a", "b"}


def test_what_shares_a_buffer_is_told():
    ops = [op("t", "Tanh", "a", F), op("same", "Identity", "t", F)]
    sums = Sums(make_net({"a": F}, ops, ["same"]))
    assert sums.share("t", "same")
    assert not sums.share("a", "same")


@pytest.mark.parametrize(
    ("operand", "handed_on"),
    [("f[?,1,8]", False), ("f[8]", False), ("f[?,6,8]", True), ("f[1,6,8]", True), ("f*", True)],
)
def test_a_gradient_that_undoes_a_broadcast_of_known_size_hands_nothing_on(operand, handed_on):
    ops = [
        op("own", "Shape", "x", "i[?]"),
        op("whole", "Shape", "g", "i[?]"),
        op("axes", "BroadcastGradientArgs", "own whole", "i[?] i[?]"),
        op("sum", "Sum", "g axes:0", "f*"),
    ]
    net = make_net({"x": operand, "g": "f[?,6,8]"}, ops, ["sum"])
    assert Sums(net).share("g", "sum") == handed_on


def unsteady(then, other):
    """What depends on the branch: ``y`` reads ``x`` of a branch, and ``o`` is an optional of it."""
    blobs = {"p": "z[]", "x": F}
    nets = {"then_branch": then, "else_branch": other}
    made = op("if", "StatelessIf", "p x", f"{F} v[]", nets=nets)
    net = make_net(blobs, [made, op("y", "Identity", "if:0", F)], ["y", "if:1"])
    return Sums(net).unsteady - {"x"}


def kept(name):
    """A branch that hands out ``t``, and keeps a blob of that name."""
    ops = [
        op("s", "Sin", "x", F),
        op("t", "Tanh", "s", F),
        op("o", "OptionalFromValue", name, "v[]"),
    ]
    return make_net({"x": F}, ops, ["t", "o"])


def test_what_one_branch_keeps_and_another_lets_go_of_is_unsteady():
    assert unsteady(kept("t"), kept("s")) == {"if:0", "if:1", "y"}
    assert not unsteady(kept("t"), kept("t"))
    assert not unsteady(kept("s"), kept("s"))


def test_an_argument_that_one_branch_hands_through_is_unsteady():
    passing = kept("s").replace(outputs=("x", "o"))
    assert {"if:0", "y"} <= unsteady(passing, kept("s"))
    assert not unsteady(passing, passing)


def test_a_blob_surely_has_the_buffer_of_what_only_hands_it_on():
    ops = [op("x", "Tanh", "a", F), op("y", "Reshape", "x b", F), op("out", "Identity", "y", F)]
    net = make_net(dict.fromkeys("ab", F), ops, ["out"])
    assert {blob: buffer_of(net, blob) for blob in ("a", "x", "out")} == {
        "a": "a",
        "x": "x",
        "out": "x",
    }


def test_a_custom_gradient_hands_on_each_of_its_results():
    ops = [
        op("s", "Sin", "a", F),
        op("t", "Tanh", "a", F),
        op("n", "IdentityN", "s t", f"{F} {F}"),
        op("y", "AddN", "n:1 a b", F),
    ]
    net = make_net(dict.fromkeys("ab", F), ops, ["y", "n:0"])
    assert {blob: buffer_of(net, blob) for blob in ("n:0", "n:1")} == {"n:0": "s", "n:1": "t"}
    sums = Sums(net)
    assert sums.share("t", "n:1") and not sums.share("s", "t")
    assert {"t", "n:1"} <= sums.addends and "s" not in sums.addends
