"""Branches in a loop's body that run again: TensorFlow's graph optimizer sees the same in them.

It sorts what a sum adds up by name, and an input of a branch is named after the op outside that
gives it. And it prunes what only an unread result of a branch needs, so that ops lose a reader.
"""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from tests.forced_segments import forced_segments

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("deterministic"),
    pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning"),
]

BATCH, UNITS, STEPS = 4, 16, 8


@pytest.fixture(scope="module")
def given():
    """Weights, and what the step is called with."""
    random = np.random.RandomState(3)

    def values(*shape):
        return (0.5 * random.standard_normal(shape)).astype("float32")

    weights = [tf.Variable(values(*shape)) for shape in ((UNITS, UNITS),) * 2 + ((BATCH, UNITS),)]
    inputs = (values(STEPS, BATCH, UNITS), values(BATCH, UNITS), np.int32(STEPS))
    return weights, [tf.constant(one) for one in inputs]


BRANCHES = {
    "computed outside": (True, lambda h, t, x, w, v: tf.tanh(h + t + x @ w)),
    "a state": (False, lambda h, t, x, w, v: tf.tanh(h + tf.sin(t) + x @ w)),
    "a variable": (False, lambda h, t, x, w, v: tf.tanh(v + tf.sin(h) + x @ w)),
    "a product": (True, lambda h, t, x, w, v: tf.tanh(0.3 * (t * tf.cos(h)))),
    "nothing given": (True, lambda h, t, x, w, v: tf.tanh(tf.cos(t) + tf.sin(h) + x @ w)),
}
"""What a branch adds up -> whether it comes first, and the branch."""
AGAIN = ("a product", "nothing given")
"""Branches that still run again."""


def step_of(first, branch, weights):
    w, u, v = weights

    def mixed(even, h, t, x):
        one, other = (lambda: branch(h, t, x, w, v)), (lambda: t * 0.5)
        return tf.cond(even, one, other) if first else tf.cond(even, other, one)

    def step(x, start, n):
        with tf.GradientTape() as tape:
            tape.watch([x, start])
            h = start
            for i in tf.range(n):
                t = tf.tanh(h @ u + x[i])
                h = h + tf.tanh(mixed(i % 2 == 0, h, t, x[i]) @ w) * 0.3
            loss = tf.reduce_sum(h * h)
        gradients = tape.gradient(loss, [*weights, x, start], unconnected_gradients="zero")
        return h, loss, gradients

    return tf.function(step)


def outcome(function, inputs) -> list[bytes]:
    return [one.numpy().tobytes() for one in tf.nest.flatten(function(*inputs))]


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("name", BRANCHES)
def test_every_bit_is_the_same(name, segments, given):
    weights, inputs = given
    original = step_of(*BRANCHES[name], weights)
    with forced_segments() if segments else contextlib.nullcontext():
        allow = ("recompute", "segments") if segments else ("recompute",)
        optimised = rnnmem.optimize(original, max_slowdown=3.0, allow=allow)
        (loop,) = optimised.plan(*inputs).loops
    assert (loop.segments is not None) == segments
    if not segments:
        assert ("while/cond" in loop.recomputed) == (name in AGAIN)
    assert outcome(optimised, inputs) == outcome(original, inputs)
