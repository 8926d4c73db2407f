"""Sums that begin with an op which TensorFlow may merge with an equal one, or not."""

import numpy as np
import pytest

from rnnmem.grappler.cse import congruent_ops, fan_out, racing_sums
from tests.handmade import const, make_net, op, pop

F = "f[4]"
HALVES = [const("c", 0.5), const("d", 0.5)]
TWICE = [*HALVES, op("m", "Mul", "c x", F), op("n", "Mul", "x d", F)]
SUM = op("s", "AddN", "m y z", F)


def net_of(ops, outputs=("s", "n")):
    return make_net({"x": F, "y": F, "z": F, "list": "v[]"}, ops, outputs)


def found(ops, outputs=("s", "n")):
    """The sums by a race, of a loop with such a body."""
    body = net_of(ops, [*outputs, *("z", "list")[len(outputs) - 2 :]])
    loop = op("loop", "While", "x y z list", f"{F} {F} {F} v[]", nets={"body": body})
    return [one.name for one in racing_sums(net_of([loop], ["loop:0"]))]


def test_an_addend_that_is_computed_twice_with_equal_constants():
    assert found([*TWICE, SUM]) == ["s"]


def test_the_sum_may_be_a_tree_of_additions():
    # TensorFlow makes one sum of it
    tree = [op("r", "AddV2", "m y", F), op("s", "AddV2", "r z", F)]
    assert len(found([*TWICE, *tree])) == 1
    assert not found([*TWICE, op("s", "AddV2", "m y", F)])


def test_whole_numbers_may_be_added_in_any_order():
    whole = [op("m", "Mul", "c x", "i[4]"), op("n", "Mul", "x d", "i[4]")]
    whole.append(op("s", "AddN", "m y z", "i[4]"))
    assert not found([*HALVES, *whole])


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
def test_what_is_merged_surely_or_never_is_no_race(ops):
    assert not found([*ops, SUM])


def test_two_addends_may_change_places():
    assert not found([*TWICE, op("s", "AddN", "m y", F)])


def test_an_addend_that_is_held_anyway_is_never_begun_with():
    assert not found([*TWICE, SUM], ["s", "n", "m"])
    kept = [op("k", "Identity", "m", F), op("s", "AddN", "k y z", F)]
    assert not found([*TWICE, *kept, op("t", "Tanh", "m", F)], ["s", "n", "t"])


@pytest.mark.parametrize(("width", "given", "races"), [(16, "x", 0), (3, "x", 1), (16, "made", 1)])
def test_a_row_of_what_is_held_outside_is_never_begun_with(width, given, races):
    # x[i] twice, of aligned rows, which are parts of x; of others they are copies; and of what is
    # made here nobody may hold the rest when the last iterations add it up
    row, rows = f"f[{width}]", f"f[8,{width}]"
    cut = [
        op(name, "StridedSlice", f"x i {end} by", row, attributes={"shrink_axis_mask": 1})
        for name, end in (("m", "c"), ("n", "d"))
    ]
    ends = [const("c", (1,)), const("d", (1,)), const("by", (1,))]
    ops = [*ends, *cut, op("s", "AddN", "m h z", row), op("t", "Mul", "n s", row)]
    kinds = {"i": "i[1]", "h": row, "z": row, "x": rows}
    body = make_net(kinds, ops, ["i", "t", "z", "x"])
    loop = op("loop", "While", f"i h z {given}", " ".join(kinds.values()), nets={"body": body})
    net = make_net(kinds, [op("made", "Tanh", "x", rows), loop], ["loop:1"])
    assert len(list(racing_sums(net))) == races


def test_gradient_step_nets_and_the_outermost_net_are_not_looked_at():
    assert not found([pop("p", "list", F), *TWICE, SUM])
    assert not list(racing_sums(net_of([*TWICE, SUM])))


def test_products_of_two_reads_of_a_variable_count_as_congruent():
    drawn = [
        op("r", "ReadVariableOp", "v", "f[4,4]", stateful=True),
        op("q", "ReadVariableOp", "v", "f[4,4]", stateful=True),
        op("o", "ReadVariableOp", "w", "f[4,4]", stateful=True),
        *(
            op(name, "MatMul", f"x {read}", "f[4,4]")
            for name, read in zip("mnp", "rqo", strict=True)
        ),
    ]
    net = make_net({"x": "f[4,4]", "v": "r[]", "w": "r[]"}, drawn, ["m", "n", "p"])
    assert congruent_ops(net) == {"m", "n"}


def both_ways(type):
    """Two ops of a type that read x and y, and y and x."""
    import tensorflow as tf

    made = getattr(tf.raw_ops, type)
    return lambda x, y: (made(x=x, y=y), made(x=y, y=x))


def with_marks(x, _, marks=(b"1", b"2")):
    import tensorflow as tf

    pair = tf.tanh(x), tf.tanh(x)
    for one, mark in zip(pair, marks, strict=True):
        one.op._set_attr("_mark", tf.compat.v1.AttrValue(s=mark))  # noqa: SLF001
    return pair


def behind_an_identity(x, _):
    import tensorflow as tf

    return tf.tanh(tf.raw_ops.Identity(input=x)), tf.tanh(x)


def one_waits(x, y):
    import tensorflow as tf

    with tf.control_dependencies([tf.exp(y)]):
        waiting = tf.tanh(x)
    return waiting, tf.tanh(x)


@pytest.mark.parametrize(
    "make",
    [
        *("Add", "AddV2", "Mul", "SquaredDifference", "Maximum", "Minimum", "Sub"),
        pytest.param(lambda x, _: with_marks(x, _, (b"1", b"1")), id="equal marks"),
        pytest.param(with_marks, id="other marks"),
        pytest.param(behind_an_identity, id="behind an Identity"),
        pytest.param(one_waits, id="one waits"),
        pytest.param(lambda x, _: (x * 2.0, x * 3.0), id="other constants"),
    ],
)
def test_ops_are_congruent_where_tensorflow_merges_them(make):
    import tensorflow as tf

    from rnnmem.tf import functions

    make = both_ways(make) if isinstance(make, str) else make

    def run(x, y):
        one, other = make(x, y)
        return tf.concat([tf.matmul(one, one), tf.matmul(other, other)], 0), one.op.type

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        placed = [tf.compat.v1.placeholder(tf.float32, (4, 4)) for _ in "xy"]
        result, type = run(*placed)
        told = tf.compat.v1.RunMetadata()
        session.run(
            result,
            dict.fromkeys(placed, np.ones((4, 4), np.float32)),
            tf.compat.v1.RunOptions(output_partition_graphs=True),
            told,
        )
    ran = sum(node.op == type for graph in told.partition_graphs for node in graph.node)
    spec = tf.TensorSpec((4, 4))
    concrete = tf.function(lambda x, y: run(x, y)[0]).get_concrete_function(spec, spec)
    net = functions.net_of(concrete)
    congruent = [one for one in net.ops if one.type == type and one.name in congruent_ops(net)]
    assert (ran, len(congruent)) in ((1, 2), (2, 0))


def test_equal_readers_are_one():
    squared = [
        op("a", "Mul", "x y", F),
        op("b", "Mul", "y x", F),  # the gradient of a square multiplies twice alike
        op("k", "Identity", "a", F),
        op("s", "AddN", "k b", F),
        op("t", "Tanh", "y", F),
    ]
    net = net_of(squared, ("s", "t"))
    assert [net.fan_out(blob) for blob in "xyab"] == [2, 3, 1, 1]
    assert [fan_out(net, blob) for blob in "xyab"] == [1, 2, 2, 2]


def test_a_shape_that_only_tells_how_a_gradient_is_summed_up_is_no_reader():
    def net(first, second, **more):
        ops = [
            op("h", "Tanh", "x", first),
            op("c", "Cos", "y", second),
            op("a", "AddV2", "h c", first),
            op("one", "Shape", "h", "i[2]"),
            op("other", "Shape", "c", "i[2]"),
            op("axes", "BroadcastGradientArgs", "one other", "i[?] i[?]"),
            op("sum", "Sum", "a axes:0", first),
            op("g", "Reshape", "sum one", first),
        ]
        outputs = ["a", "g", *more.get("outputs", ())]
        return make_net({"x": first, "y": second}, ops, outputs)

    assert fan_out(net("f[?,4]", "f[?,4]"), "h") == 1
    assert fan_out(net("f[?,4]", "f[1,4]"), "h") == 1
    assert fan_out(net("f[?,4]", "f[3,4]"), "h") == 2  # which of them is one, only a run tells
    assert fan_out(net("f[?,4]", "f[?,4]", outputs=["one"]), "h") == 2
