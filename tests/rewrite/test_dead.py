"""What nobody needs goes before anything is planned, and stays gone."""

import tensorflow as tf

import rnnmem
from rnnmem.check import check
from rnnmem.net.inline import inline
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
    """The loop hands a weight's gradient on as it came: nobody needs what it computes."""
    (kernel,) = made = weights((U, U))

    def step(x):
        with tf.GradientTape() as tape:
            _, h = tf.while_loop(
                lambda i, h: i < T,
                lambda i, h: (i + 1, tf.tanh(tf.sin(h) * tf.exp(tf.stop_gradient(kernel)[0]))),
                (0, x[0]),
            )
            loss = tf.reduce_sum(tf.sigmoid(h @ kernel))
        return loss, tape.gradient(loss, made)

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


def test_no_loop_is_rewritten_for_a_gradient_that_nobody_needs():
    original = tf.function(only_behind_the_loop().fn)
    x = numbers(T, B, U)
    kept = rnnmem.optimize(original, max_slowdown=float("inf")).get_concrete_function(x)
    assert kept is original.get_concrete_function(x)


def test_a_dead_gradient_leaves_the_bits_as_they_are():
    assert_same_bits(only_behind_the_loop)
    assert_same_bits(a_state_that_no_weight_made)


def test_the_dead_gradient_of_a_traced_step_goes():
    step = a_state_that_no_weight_made().fn
    traced = tf.function(step).get_concrete_function(tf.TensorSpec([T, B, U]))
    net = inline(net_of(traced))
    cleaned = without_dead_parts(net)
    check(net, cleaned)
    before, after = (
        sum(len(one.inputs) for one in some.ops if one.type.endswith("While"))
        for some in (net, cleaned)
    )
    assert after < before
