"""The numbers that TensorFlow counts up as it lowers a function, and sums that they reorder."""

import re

import pytest

from rnnmem.grappler.lowering import argument_numbers, sums_reordered, sums_what_is_given
from rnnmem.ir.inline import inline
from tests.handmade import const, make_net, op, while_op

BODY = make_net(
    {"i": "i[]", "h": "f[4]", "c": "f[4]", "t": "r[]"},
    [
        const("one", 1),
        op("n", "AddV2", "i one", "i[]"),
        op("x", "Sin", "h", "f[4]"),
        op("y", "Cos", "c", "f[4]"),
        op("p", "Tanh", "h", "f[4]"),
        op("q", "Tanh", "c", "f[4]"),
        op("s", "AddN", "h c x", "f[4]"),
        op("u", "AddN", "y p q", "f[4]"),
    ],
    ["n", "s", "u", "t"],
)
"""h ◄─ h + c + sin h, where h and c have three readers each, and t is a variable's handle."""
START = {"a": "f[4]", "b": "f[4]", "t": "r[]"}
CALLED = make_net({"x": "f[4]"}, [op("y", "Neg", "x", "f[4]")], ["y"], name="called")


def call(name):
    return op(name, "PartitionedCall", "a", "f[4]", nets={"f": CALLED})


def net_with(calls):
    """So many calls in front of the loop; each draws three numbers, for what goes in and out."""
    ops = [*(call(f"call_{number}") for number in range(calls)), const("z", 0)]
    return make_net(START, [*ops, while_op("loop", "z a b t", BODY)], ["loop:1"])


def test_loops_draw_their_numbers_before_what_they_run():
    # cond, body, 4 Enters, 3 Merges, LoopCond, then 3 Switches, for a handle takes a short way
    numbers = argument_numbers(net_with(0))["loop",]
    assert numbers.switches == {"i": 10, "h": 11, "c": 12}
    # body control, 3 Exits, LoopExecuted, 3 NextIterations; of the cond 1 + 4 + 1 + 1; then 1
    assert numbers.inputs == {"i": 29, "h": 30, "c": 31, "t": 32}
    assert numbers.starts == {"i": "z", "h": "a", "c": "b", "t": "t"}


def test_calls_draw_theirs_too():
    assert argument_numbers(net_with(2))["loop",].inputs["h"] == 30 + 2 * 3
    assert argument_numbers(inline(net_with(2)))["loop",].inputs["h"] == 30


def test_a_branch_counts_otherwise_so_nothing_is_known():
    branch = op("b", "If", "a", "f[4]", nets={"then_branch": CALLED, "else_branch": CALLED})
    assert argument_numbers(make_net({"a": "f[4]"}, [branch], ["b"])) is None


def reordered(calls):
    original = net_with(calls)
    inlined = inline(original)
    return [one.name for one in sums_reordered(original, inlined, inlined)]


def test_a_sum_is_reordered_where_one_state_gets_one_more_digit():
    # h, c are _99, _100 behind 23 calls: c comes first; _30, _31 without them
    assert argument_numbers(net_with(23))["loop",].inputs["c"] == 100
    assert reordered(23) == ["s"]
    assert reordered(22) == reordered(24) == []


def test_a_sum_that_adds_one_state_has_no_order_to_lose():
    body = BODY.replace(
        ops=tuple(
            one.replace(inputs=("h", "x", "q")) if one.name == "s" else one for one in BODY.ops
        )
    )
    ops = [*(call(f"call_{number}") for number in range(23)), const("z", 0)]
    net = make_net(START, [*ops, while_op("loop", "z a b t", body)], ["loop:1"])
    assert not list(sums_reordered(net, inline(net), inline(net)))


def branch_of(*ops, inputs=("h", "t")):
    """An If whose then-branch has these ops and hands out the last one's result."""
    inner = make_net({"h": "f[4]", "t": "f[4]", "v": "r[]"}, ops, [ops[-1].op.outputs[0]])
    other = make_net({"h": "f[4]", "t": "f[4]", "v": "r[]"}, [], ["t"])
    nets = {"then_branch": inner, "else_branch": other}
    return op("cond", "If", "p h t v", "f[4]", nets=nets).op


SIN = op("a", "Sin", "h", "f[4]")
COS = op("b", "Cos", "t", "f[4]")
READ = op("w", "ReadVariableOp", "v", "f[4]")
HALF = const("half", 0.5)


@pytest.mark.parametrize(
    "ops, sorts",
    [
        ([SIN, COS, op("s", "AddN", "t a b", "f[4]")], True),
        ([SIN, op("s", "AddV2", "h a", "f[4]"), op("r", "AddV2", "s t", "f[4]")], True),
        ([SIN, COS, op("i", "Identity", "t", "f[4]"), op("s", "AddN", "i a b", "f[4]")], True),
        ([SIN, COS, READ, op("s", "AddN", "w a b", "f[4]")], True),
        # of names of one kind the order stays
        ([op("s", "AddN", "h t t", "f[4]")], False),
        ([SIN, COS, op("s", "AddN", "a b a", "f[4]")], False),
        # a sum of two has no order
        ([SIN, op("s", "AddV2", "t a", "f[4]")], False),
        # 0.5 (t a) = t (0.5 a), unless somebody else reads the product
        ([SIN, HALF, op("m", "Mul", "t a", "f[4]"), op("r", "Mul", "m half", "f[4]")], True),
        (
            [
                *(SIN, HALF, op("m", "Mul", "t a", "f[4]")),
                *(op("o", "OptionalFromValue", "m", "v[]"), op("r", "Mul", "m half", "f[4]")),
            ],
            False,
        ),
        ([SIN, op("m", "Mul", "t a", "f[4]"), op("r", "Mul", "m h", "f[4]")], False),
    ],
)
def test_a_branch_that_sorts_its_inputs_among_what_it_computes_keeps_its_place(ops, sorts):
    assert sums_what_is_given(branch_of(*ops)) == sorts


def test_a_branch_inside_a_branch_counts():
    inside = branch_of(SIN, COS, op("s", "AddN", "t a b", "f[4]"))
    assert not sums_what_is_given(SIN.op)
    net = make_net({"p": "z[]", "h": "f[4]", "t": "f[4]", "v": "r[]"}, [], ["t"])
    kinds = {**net.blobs, "cond": net.blobs["t"].__class__("cond", "float32", (4,))}
    net = net.replace(ops=(inside,), blobs=kinds)
    nets = {"then_branch": net, "else_branch": net}
    assert sums_what_is_given(op("outer", "If", "p p h t v", "f[4]", nets=nets).op)


@pytest.mark.slow
def test_the_numbers_are_those_that_tensorflow_draws():
    import tensorflow as tf
    from tensorflow.python.eager import context

    from rnnmem.tf.functions import net_of

    @tf.function
    def half(x):
        return tf.sin(x) * 0.5

    @tf.function
    def step(x, h):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([x, h])
            c = half(h)
            for i in tf.range(4):
                h, c = tf.tanh(h + c + x[i]), tf.sin(c) * tf.cos(h) + tf.cos(c) * tf.sin(h)
            loss = tf.reduce_sum(h * c)
        return tape.gradient(loss, [x, h])

    inputs = tf.ones([4, 2, 3]), tf.ones([2, 3])
    context.enable_graph_collection()
    try:
        step(*inputs)
        graphs = context.export_run_metadata().function_graphs
    finally:
        context.disable_graph_collection()
    nodes = {node.name for graph in graphs for node in graph.post_optimization_graph.node}
    predicted = {
        ("/".join(path), number)
        for path, one in argument_numbers(net_of(step.get_concrete_function(*inputs))).items()
        for number in one.inputs.values()
    }
    matched = [re.fullmatch(r"Func/(.*)/body/_\d+/input/_(\d+)", name) for name in nodes]
    drawn = {(found[1], int(found[2])) for found in matched if found}
    assert drawn and drawn <= predicted
