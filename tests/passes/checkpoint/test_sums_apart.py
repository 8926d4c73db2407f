"""A loop whose sum of three TensorFlow leaves apart, as its batch is unknown, has segments, too."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.tf.optimized import types_left
from tests.cases import outcome, weights

UNITS, LENGTH = 16, 80


def step_of(batch):
    """A train step of a cell with two states, whose sum reads both and the input."""
    inner, outer, memory = weights(*[(UNITS, UNITS)] * 3)

    def cell(x, h, m):
        h = tf.tanh(x @ inner + h @ outer + m @ memory)
        return h, m * 0.9 + tf.sigmoid(h) * 0.1

    @tf.function(input_signature=[tf.TensorSpec([LENGTH, batch, UNITS])])
    def step(x):
        with tf.GradientTape() as tape:
            items = tf.TensorArray(tf.float32, LENGTH, element_shape=[batch, UNITS]).unstack(x)

            def body(i, h, m):
                return i + 1, *cell(items.read(i), h, m)

            start = tf.zeros_like(x[0])
            _, h, _ = tf.while_loop(lambda i, h, m: i < LENGTH, body, (0, start, start))
            loss = tf.reduce_mean(h**2)
        return loss, *tape.gradient(loss, [inner, outer, memory])

    return step


def additions(step):
    left = types_left(step.get_concrete_function())
    ends = ("body/while/add_1", "body/while/add_2")  # the counter has the first
    return [kind for name, kind in sorted(left.items()) if name.endswith(ends)]


def test_tensorflow_merges_them_where_the_batch_is_known():
    assert additions(step_of(4)) == ["AddN"]
    assert additions(step_of(None)) == ["AddV2", "AddV2"]


@pytest.mark.parametrize("max_slowdown", [1.35, np.inf])
def test_its_states_are_kept_now_and_then_and_every_bit_is_the_same(max_slowdown):
    given = tf.constant(np.random.default_rng(5).normal(size=(LENGTH, 256, UNITS)), tf.float32)
    step = step_of(None)
    optimised = rnnmem.optimize(step, max_slowdown=max_slowdown)
    for x in (given, given[:, :3], given):
        assert outcome(optimised(x)) == outcome(step(x))
    (loop,) = optimised.plan(given).loops
    assert bool(loop.segments) == (max_slowdown == np.inf)
