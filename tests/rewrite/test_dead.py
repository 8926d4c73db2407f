"""What nobody needs goes before anything is planned, and stays gone."""

import tensorflow as tf

from rnnmem.check import check
from rnnmem.net.inline import inline
from rnnmem.net.loops import loop_pairs
from rnnmem.net.optypes import LOOPS
from rnnmem.rewrite.dead import without_dead_parts
from rnnmem.tf.functions import net_of
from tests.cases import Case, assert_same_bits, numbers, thrice, values, weights
from tests.handmade import const, make_net, op, while_op

T, B, U = 6, 3, 4


def drawn_loop():
    #   i ─► one more      h ─► Neg ─► h      unread ─► Exp ─► unread
    body = make_net(
        {"i": "i[]", "h": "f[8]", "unread": "f[8]"},
        [
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            op("turned", "Neg", "h", "f[8]"),
            op("lost", "Exp", "unread", "f[8]"),
        ],
        ["next", "turned", "lost"],
    )
    return [
        const("zero", 0),
        op("start", "Sin", "x", "f[8]"),
        while_op("loop", "zero x start", body),
        op("read", "Cos", "loop:2", "f[8]"),
    ]


def loop(outputs):
    return make_net({"x": "f[8]"}, drawn_loop(), outputs)


def test_a_dead_variable_goes_with_all_that_fed_and_read_it():
    net = loop(["loop:1"])
    cleaned = without_dead_parts(net)
    assert [one.name for one in cleaned.ops] == ["zero", "loop"]
    found = cleaned.op_by_name["loop"]
    assert (found.inputs, found.outputs) == (("zero", "x"), ("loop:0", "loop:1"))
    assert [one.name for one in found.nets["body"].ops] == ["one", "next", "turned"]
    assert found.nets["cond"].inputs == net.op_by_name["loop"].nets["cond"].inputs[:2]
    check(net, cleaned)


def test_where_all_is_needed_the_net_is_handed_back_as_it_is():
    net = loop(["loop:1", "read"])
    assert without_dead_parts(net) is net


def test_a_dead_variable_of_a_loop_in_a_loop_goes():
    body = make_net(
        {"i": "i[]", "x": "f[8]"},
        [const("one", 1), op("next", "AddV2", "i one", "i[]"), *drawn_loop()],
        ["next", "loop:1"],
    )
    net = make_net(
        {"x": "f[8]"}, [const("zero", 0), while_op("outer", "zero x", body)], ["outer:1"]
    )
    cleaned = without_dead_parts(net).op_by_name["outer"].nets["body"]
    assert len(cleaned.op_by_name["loop"].inputs) == 2
    assert "start" not in cleaned.op_by_name


def only_behind_the_loop():
    """The loop looks a weight up for nothing: nobody needs what its gradient computes."""
    (kernel,) = made = weights((U, U))

    def body(i, h):
        tf.nn.embedding_lookup(kernel, i % U)
        return i + 1, tf.tanh(tf.sin(h))

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            _, h = tf.while_loop(lambda i, h: i < T, body, (0, x[0]))
            loss = tf.reduce_sum(tf.sigmoid(h @ kernel))
        return loss, tf.convert_to_tensor(tape.gradient(loss, made)[0])

    return Case(step, thrice(numbers(T, B, U)), values(*made))


def a_state_that_no_weight_made():
    """One of two states is made from no weight, so nobody needs its gradient."""
    (kernel,) = made = weights((U, U))

    def step(x):
        with tf.GradientTape() as tape:
            _, h, free = tf.while_loop(
                lambda i, *_: i < T,
                lambda i, h, free: (
                    i + 1,
                    tf.tanh(tf.sin(h @ kernel) * free),
                    tf.sin(tf.exp(free)),
                ),
                (0, x[0], x[1]),
            )
            loss = tf.reduce_sum(h**2) + tf.reduce_sum(tf.cos(free))
        return loss, tape.gradient(loss, made)

    return Case(step, thrice(numbers(T, B, U)), values(*made))


def living(case):
    traced = tf.function(case.fn).get_concrete_function(tf.TensorSpec([T, B, U]))
    net = inline(net_of(traced))
    cleaned = without_dead_parts(net)
    check(net, cleaned)
    return net, cleaned


def step_net_of_gradient(net):
    (loop,) = [one for one in net.ops if one.type == "StatelessWhile"]
    return {one.type for one in loop.nets["body"].ops}


def variables_of_loops(net):
    return [len(one.inputs) for one in net.ops if one.type in LOOPS]


def test_a_dead_gradient_leaves_the_bits_as_they_are():
    assert_same_bits(only_behind_the_loop)
    assert_same_bits(a_state_that_no_weight_made)


def test_the_dead_gradient_of_a_state_goes():
    net, cleaned = living(a_state_that_no_weight_made())
    assert sum(variables_of_loops(cleaned)) < sum(variables_of_loops(net))
    assert len(loop_pairs(cleaned, cleaned, {})) == 1


def test_a_gradient_loop_that_only_hands_on_pops_nothing():
    net, cleaned = living(only_behind_the_loop())
    before, after = (step_net_of_gradient(some) for some in (net, cleaned))
    assert "TensorListPopBack" in before
    assert "TensorListPopBack" not in after
