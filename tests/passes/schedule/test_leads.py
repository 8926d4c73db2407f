"""Sums whose order depended on what had run long before: edges keep it in rewritten loops."""

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.ir.order import all_needed_by
from tests.cases import numbers, weights
from tests.passes.conftest import REWRITERS

pytestmark = [pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")]

T, B, U = 4, 2, 6
RUNS, MOST_RUNS = 12, 200


def states_kept(kernel, x):
    """Each state goes into an array, whose gradient is one of three that are added up."""
    h, c = x[0], tf.sin(x[0])
    kept = tf.TensorArray(tf.float32, T + 1, element_shape=h.shape)
    for i in tf.range(T):
        kept = kept.write(i, h)
        h = h + tf.tanh((-h) * c + c) * 0.1 + tf.matmul(x[i], kernel) * 0.1
    return tf.reduce_mean(tf.square(h)) + tf.reduce_mean(tf.square(kept.stack()))


def addend_read_later(kernel, x):
    """The sum may not begin with ``m``, which waits for the sum's sine."""
    h = x[0]
    for i in tf.range(T):
        m = tf.matmul(h, kernel)
        h = tf.sin(tf.add_n([m, tf.tanh(x[i]), tf.negative(m)])) - m
    return tf.reduce_sum(h * h)


def addend_handed_on(kernel, x):
    """The sum may not begin with ``m``, which the next iteration is given."""
    h, m = x[0], x[1]
    for i in tf.range(T):
        before = m
        m = tf.matmul(h, kernel)
        h = tf.sin(tf.add_n([m, tf.tanh(x[i]), tf.negative(m)])) - before
    return tf.reduce_sum(h * h)


def sum_of_given(kernel, x):
    """Nothing may wait for the sum; so the loop keeps as many iterations under way as it had."""
    h = x[0]
    for i in tf.range(T):
        a = tf.exp(-tf.square(x[i]))
        given = tf.add_n([a, tf.cos(x[i]), tf.negative(a)])
        h = tf.tanh(tf.matmul(h * a, kernel) + given)
    return tf.reduce_sum(h * h)


def step_of(loss):
    (kernel,) = weights((U, U))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = loss(kernel, x)
        return found, *tape.gradient(found, [kernel, x])

    return step


def loops_of(net):
    return [op for op in net.ops if op.type in ("While", "StatelessWhile")]


def rewritten(loss):
    found = rnnmem.optimize(step_of(loss), max_slowdown=9.0).inspect(numbers(T, B, U))
    assert found.rewritten is not None
    return found


def test_the_sum_waits_until_the_list_lets_its_item_go():
    found = rewritten(states_kept)
    _, gradient = loops_of(found.rewritten)
    body = gradient.nets["body"]
    (put,) = [op.name for op in body.ops if op.type == "TensorListSetItem"]
    (item,) = [op.outputs[0] for op in body.ops if op.type == "TensorListGetItem"]
    (sum_,) = [op for op in body.ops if op.type == "AddN" and item in op.inputs]
    assert len(sum_.inputs) == 3
    assert put in all_needed_by(body, [sum_.name])
    before = loops_of(found.net)[1].nets["body"]
    assert put not in all_needed_by(before, [sum_.name])


@pytest.mark.parametrize("loss", [states_kept, addend_read_later, addend_handed_on, sum_of_given])
@pytest.mark.parametrize("fusions", [True, False])
def test_every_run_has_the_bits_of_some_run_of_the_original(loss, fusions, deterministic):
    x = numbers(T, B, U)
    step = step_of(loss)
    function = rnnmem.optimize(step, max_slowdown=9.0)
    tf.config.optimizer.set_experimental_options(dict.fromkeys(REWRITERS, fusions))
    try:
        found = [bits(function(x)) for _ in range(RUNS)]
        known: list[set[bytes]] = [set(), set(), set()]
        for _ in range(MOST_RUNS):  # a rare result of the original may take many
            for some, one in zip(known, bits(step(x)), strict=True):
                some.add(one)
            if all(one in some for run in found for one, some in zip(run, known, strict=True)):
                return
    finally:
        tf.config.optimizer.set_experimental_options(dict.fromkeys(REWRITERS, True))
    # The original races, and so does what was left as it was.
    assert any("graph optimizer would compute" in note for note in function.plan(x).notes)


def bits(results):
    return [one.numpy().tobytes() for one in results]
