"""Two gradients of one loop: the lists of zeros that TensorFlow makes go, and the bits stay."""

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.ir.inline import inline
from rnnmem.ir.order import without_dead_ops
from rnnmem.passes.normalise.zero_lists import without_zero_lists
from rnnmem.tf.functions import net_of
from tests.cases import Case, assert_same_bits, numbers, thrice, values, weights

T, B, U = 5, 2, 4


def recur(kernel, x):
    def body(i, h, total):
        h = tf.tanh(tf.sin(h @ kernel) * tf.sigmoid(x[i]))
        return i + 1, h, total + tf.exp(h)

    start = (0, x[0], tf.zeros_like(x[0]))
    return tf.while_loop(lambda i, *_: i < T, body, start)[1:]


def persistent_tape():
    made = weights((U, U))

    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            h, total = recur(*made, x)
            one, other = tf.reduce_sum(h**2), tf.reduce_sum(tf.sin(total))
        return tape.gradient(one, made), tape.gradient(other, made)

    return Case(step, thrice(numbers(T, B, U)), values(*made))


def two_tapes():
    made = weights((U, U))

    def step(x):
        with tf.GradientTape() as first, tf.GradientTape() as second:
            h, total = recur(*made, x)
            one, other = tf.reduce_sum(h**2), tf.reduce_sum(tf.sin(total))
        return first.gradient(one, made), second.gradient(other, made)

    return Case(step, thrice(numbers(T, B, U)), values(*made))


def two_calls_of_gradients():
    made = weights((U, U))

    def step(x):
        h, total = recur(*made, x)
        one, other = tf.reduce_sum(h**2), tf.reduce_sum(tf.sin(total))
        return tf.gradients(one, [*made, x]), tf.gradients(other, [*made, x])

    return Case(step, thrice(numbers(T, B, U)), values(*made))


@pytest.mark.slow
@pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")
@pytest.mark.parametrize("make", [persistent_tape, two_tapes, two_calls_of_gradients])
def test_every_bit_is_the_same(make):
    assert_same_bits(make, max_slowdown=float("inf"))
    case = make()
    plan = rnnmem.optimize(case.fn, max_slowdown=1e9).plan(*case.calls[0][0])
    (loop,) = plan.loops
    assert len(loop.gradients) == 2 and not loop.closed
    assert not any("elsewhere" in decision.reason for decision in loop.residuals)


@pytest.mark.slow
@pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")
@pytest.mark.parametrize("make", [persistent_tape, two_calls_of_gradients])
def test_where_it_is_not_allowed_the_lists_stay_and_so_do_the_bits(make):
    assert_same_bits(make, max_slowdown=float("inf"), allow=("rematerialise", "checkpoint"))
    case = make()
    plans = {
        name: rnnmem.optimize(case.fn, max_slowdown=1e9, allow=(name,)).plan(*case.calls[0][0])
        for name in ("default", "rematerialise")
    }
    assert plans["default"].of("zero_lists") and not plans["rematerialise"].of("zero_lists")
    assert {name for name, _ in plans["rematerialise"].decisions} <= {"dead_code"}
    for plan in plans.values():
        assert rnnmem.optimize(case.fn, plan=plan.to_json()).plan(*case.calls[0][0]) == plan


@pytest.mark.slow
def test_both_gradients_lose_their_lists_of_zeros():
    case = persistent_tape()
    traced = tf.function(case.fn).get_concrete_function(*case.calls[0][0])
    net = without_dead_ops(inline(net_of(traced)))
    assert any(one.type == "ZerosLike" and _is_list(net, one) for one in net.ops)
    changed = without_zero_lists(net)
    assert not any(one.type == "ZerosLike" and _is_list(changed, one) for one in changed.ops)
    assert without_zero_lists(changed) is changed


@pytest.mark.slow
def test_whoever_was_waited_for_still_is():
    # A pop waits for the sum that the zero made of it goes into: the rest of its list waits then.
    case = persistent_tape()
    traced = tf.function(case.fn).get_concrete_function(*case.calls[0][0])
    net = without_dead_ops(inline(net_of(traced)))
    before, after = _awaited(net), _awaited(without_zero_lists(net))
    assert any(path for path, _ in before)
    assert before <= after


def _awaited(net):
    """``(path, name)`` of sums in step nets that some op waits for."""
    return {
        (path, name)
        for path, inner in net.walk()
        for one in inner.ops
        for name in one.controls
        if path and name in inner.op_by_name and inner.op_by_name[name].type == "AddN"
    }


def _is_list(net, one):
    return net.blobs[one.outputs[0]].dtype == "variant"
