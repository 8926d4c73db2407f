"""Functions that read a blob part by part: the same bits, and no part's gradient is made whole."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from tests.cases import numbers, outcome, weights

LENGTH = 32


def unrolled(cell, batch=None):
    """A recurrent network whose loop Python unrolls."""
    w, u, v = made = weights((16, 16), (16, 32), (32, 32))

    @tf.function(input_signature=[tf.TensorSpec([batch, LENGTH, 16])])
    def step(x):
        with tf.GradientTape() as tape:
            made_of = tf.tanh(x @ w)
            h = tf.zeros([tf.shape(x)[0], 32])
            for t in range(LENGTH):
                h = tf.tanh(cell(made_of, t) @ u + h @ v)
            loss = tf.reduce_mean(h**2)
        return loss, *tape.gradient(loss, made)

    return step, numbers(64, LENGTH, 16)


CELLS = {
    "forward": lambda x, t: x[:, t],
    "backward": lambda x, t: x[:, -1 - t],
    "both ways": lambda x, t: x[:, t] + x[:, LENGTH - 1 - t],
    "every other": lambda x, t: x[:, t // 2],
    "slice": lambda x, t: tf.squeeze(tf.slice(x, [0, t, 0], [64, 1, 16]), 1),
}


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_an_unrolled_loop_takes_a_fraction_of_the_memory(cell):
    step, given = unrolled(cell, 64)
    optimised = rnnmem.optimize(step, max_slowdown=1.0)
    assert outcome(optimised(given)) == outcome(step(given))
    assert optimised.plan(given).of("slice_gradients")
    pair = [rnnmem.measure(one, given).peak_bytes for one in (step, optimised)]
    assert pair[1] < 0.5 * pair[0]


def test_batches_of_any_size_have_the_same_bits():
    step, given = unrolled(CELLS["forward"])
    optimised = rnnmem.optimize(step, max_slowdown=1.0)
    for batch in (64, 1, 3):
        assert outcome(optimised(given[:batch])) == outcome(step(given[:batch]))
    assert optimised.plan(given).of("slice_gradients")


def test_sizes_that_the_graph_optimizer_did_not_know_to_be_equal_stay_unknown():
    """Else it takes sums out of the gradient of the product of gate and state, which it left in."""
    made = weights((16, 96), (32, 64), (32, 32), (48, 96), (32, 64), (32, 32))

    def gated(x, h, w, u, v):
        gates = x @ w
        update, reset = tf.split(tf.sigmoid(gates[:, :64] + h @ u), 2, 1)
        return (1 - update) * h + update * tf.tanh(gates[:, 64:] + (reset * h) @ v)

    @tf.function(input_signature=[tf.TensorSpec([8, None, 16])])
    def step(x):
        items = tf.TensorArray(tf.float32, 8).unstack(x)
        with tf.GradientTape() as tape:
            first = second = tf.zeros([tf.shape(x)[1], 32])
            outputs = []
            for t in range(8):
                item = items.read(t)
                first = gated(item, first, *made[:3])
                second = gated(tf.concat([item, first], 1), second, *made[3:])
                outputs.append(tf.concat([first, second], 1))
            loss = tf.reduce_mean(tf.stack(outputs) ** 2)
        return loss, *tape.gradient(loss, made)

    given, optimised = numbers(8, 64, 16), rnnmem.optimize(step, max_slowdown=1.0)
    for batch in (64, 1):
        assert outcome(optimised(given[:, :batch])) == outcome(step(given[:, :batch]))
    assert optimised.plan(given).of("slice_gradients")


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_a_negative_zero_loses_its_sign_as_in_a_sum(dtype):
    @tf.function(input_signature=[tf.TensorSpec([64, 256], dtype)] * 2)
    def step(x, d):
        with tf.GradientTape() as tape:
            tape.watch(x)
            held = tf.identity(x)
            loss = tf.reduce_sum(held[:, :100] * d[:, :100])
            loss += tf.reduce_sum(held[:, 100:] * d[:, 100:])
        return tape.gradient(loss, x)

    x, d = tf.ones([64, 256], dtype), tf.cast(np.where(numbers(64, 256) > 0, 1.0, -0.0), dtype)
    optimised = rnnmem.optimize(step, max_slowdown=1.0)
    assert outcome(optimised(x, d)) == outcome(step(x, d))
    assert optimised.plan(x, d).of("slice_gradients")
    assert not np.signbit(step(x, d).numpy().astype(np.float32)).any()


def test_gates_cut_out_of_a_product_in_a_loop():
    w, v = made = weights((16, 128), (32, 128))

    @tf.function(input_signature=[tf.TensorSpec([None, None, 16])])
    def step(x):
        with tf.GradientTape() as tape:
            h = c = tf.zeros([tf.shape(x)[1], 32])
            for t in tf.range(tf.shape(x)[0]):
                gates = x[t] @ w + h @ v
                i, f, g, o = (gates[..., at * 32 : at * 32 + 32] for at in range(4))
                c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
                h = tf.sigmoid(o) * tf.tanh(c)
            loss = tf.reduce_mean(h**2)
        return loss, *tape.gradient(loss, made)

    given = numbers(12, 64, 16)
    optimised = rnnmem.optimize(step, max_slowdown=1.0)
    for one in (given, given[:1], given[:0], given[:, :1]):
        assert outcome(optimised(one)) == outcome(step(one))
    (found,) = optimised.plan(given).of("slice_gradients")
    assert found.path and len(found.layers[0]) == 4


def test_a_saved_plan_makes_the_same_function():
    step, given = unrolled(CELLS["both ways"])
    plan = rnnmem.optimize(step, max_slowdown=1.0).plan(given)
    again = rnnmem.optimize(step, plan=rnnmem.Plan.from_json(plan.to_json()))
    assert outcome(again(given)) == outcome(step(given))
    assert again.plan(given).of("slice_gradients") == plan.of("slice_gradients")
