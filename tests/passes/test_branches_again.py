"""What runs again of branches, loops and inner tapes: the same neighbours, so the same bits.

What a branch keeps for its gradient is a reader of values in it. Where nobody takes it any more,
TensorFlow prunes it, and multiplies the constants on both sides of such a value first.
"""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from tests.forced_segments import forced_segments

pytestmark = [
    pytest.mark.usefixtures("deterministic"),
    pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning"),
]

BATCH, UNITS, STEPS = 4, 16, 8


@pytest.fixture(scope="module")
def given():
    """A weight, and what the function is called with."""
    random = np.random.RandomState(3)

    def values(*shape):
        return (0.5 * random.standard_normal(shape)).astype("float32")

    sequences = (values(STEPS, BATCH, UNITS), values(BATCH, UNITS))
    return tf.Variable(values(UNITS, UNITS)), [tf.constant(one) for one in sequences]


def bits(results) -> list[bytes]:
    return [one.numpy().tobytes() for one in tf.nest.flatten(results)]


def branching(w):
    """The branch keeps 0.7 h for the gradient of the constant 0.1, which nobody asks for."""

    def forward(x, start):
        h, c = start, tf.sin(start)
        for i in tf.range(STEPS):
            c = tf.tanh(c @ w + x[i])
            if tf.reduce_any(c > 0.9):
                c = tf.tanh(tf.nn.relu(c) * h * 0.3)
            else:
                scaled = h * 0.7
                h = tf.tanh(c + 0.1 * scaled)
        return tf.reduce_mean(tf.square(h)) + tf.reduce_sum(c) * 0.01

    return forward


def scaling(w):
    """0.7 h, without a branch."""

    def forward(x, start):
        h, c = start, tf.sin(start)
        for i in tf.range(STEPS):
            c = tf.tanh(c @ w + x[i])
            scaled = h * 0.7
            h = tf.tanh(c + 0.1 * scaled)
        return tf.reduce_mean(tf.square(h)) + tf.reduce_sum(c) * 0.01

    return forward


def looping(w):
    """0.7 c in a branch of a loop inside: its lists, too, are filled for nobody."""

    def forward(x, start):
        h, c = start, tf.sin(start)
        for i in tf.range(STEPS):
            c = tf.tanh(c @ w + x[i])
            for _ in tf.range(2):
                if tf.reduce_any(c > 0.8):
                    scaled = c * 0.7
                    h = tf.tanh(h + 0.1 * scaled)
        return tf.reduce_mean(tf.square(h)) + tf.reduce_sum(c) * 0.01

    return forward


def mixing(w):
    """Rows of the weight in one branch, all of it in the other: scheduled sampling, softly."""

    def forward(x, start):
        h = start
        for i in tf.range(STEPS):
            if i % 3 == 0:
                given = tf.nn.softmax(h @ w) @ w
            else:
                given = tf.gather(w, [3, 1, 4, 1])
            h = tf.tanh(given + x[i] * h)
        return tf.reduce_mean(tf.square(h))

    return forward


WAYS = {
    "saved": contextlib.nullcontext,
    "segments": forced_segments,
    "a schedule": lambda: forced_segments(scheduled=True),
    "an online schedule": lambda: forced_segments(scheduled=True, online=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tape", ["outside", "inside"])
@pytest.mark.parametrize("make", [branching, scaling, looping, mixing])
def test_constants_around_what_a_branch_kept_are_multiplied_as_before(make, tape, way, given):
    w, inputs = given
    forward = make(w)

    def step(x, start):
        with tf.GradientTape() as tape:
            tape.watch([x, start])
            loss = forward(x, start)
        gradients = tape.gradient(loss, [w, x, start])
        return loss, [tf.convert_to_tensor(one) for one in gradients]

    def outcome(function):
        if tape == "inside":
            return bits(function(*inputs))
        with tf.GradientTape() as outer:
            outer.watch(inputs)
            loss = function(*inputs)
        gradients = outer.gradient(loss, [w, *inputs])
        return bits([loss, *(tf.convert_to_tensor(one) for one in gradients)])

    decorated = step if tape == "inside" else forward
    expected = outcome(tf.function(decorated))
    with WAYS[way]():
        optimised = rnnmem.optimize(tf.function(decorated), max_slowdown=10.0)
        assert outcome(optimised) == expected
        assert not optimised.plan(*inputs).changes_nothing


@pytest.mark.slow
def test_rows_of_a_weight_that_the_loop_writes_are_looked_up_once(given):
    w, inputs = given
    changing = tf.Variable(w)

    def step(x, start):
        with tf.GradientTape() as tape:
            h = start
            for i in tf.range(STEPS):
                if i % 3 == 0:
                    given = tf.nn.softmax(h @ changing) @ w
                else:
                    given = tf.gather(changing, [3, 1, 4, 1]) @ w
                changing.assign_add(h[:1] * 0.01 + tf.zeros_like(changing))
                h = tf.tanh(given + x[i] * h)
            loss = tf.reduce_mean(tf.square(h))
        return loss, tape.gradient(loss, w), changing.assign(w)

    expected = bits(tf.function(step)(*inputs))
    optimised = rnnmem.optimize(tf.function(step), max_slowdown=10.0)
    assert bits(optimised(*inputs)) == expected
    decisions = [one for loop in optimised.plan(*inputs).loops for one in loop.residuals]
    branches = [one for one in decisions if one.op_type.endswith("If")]
    assert branches and all(one.decision == "saved" for one in branches)


@pytest.mark.slow
def test_an_inner_gradient_of_what_is_broadcast_adds_up_as_before(given):
    # Sums over no axis are taken out where the shapes are known, and other addends are left.
    w, inputs = given
    signature = [tf.TensorSpec([None, None, UNITS]), tf.TensorSpec([None, UNITS])]

    def step(x, start):
        with tf.GradientTape() as tape:
            tape.watch([x, start])
            h, c = start, tf.sin(start)
            for i in tf.range(STEPS):
                with tf.GradientTape() as inner:
                    inner.watch(c)
                    product = tf.matmul(tf.expand_dims(c, 1), tf.expand_dims(c, 2))
                    energy = tf.reduce_sum(tf.square(tf.squeeze(product, 2) * 0.05 + c))
                slope = tf.tanh(inner.gradient(energy, c))
                h = h + tf.tanh(slope) * 0.1
                c = tf.tanh(tf.tanh(slope @ w + x[i]))
            loss = tf.reduce_mean(tf.square(h)) + tf.reduce_sum(c) * 0.01
        return loss, tape.gradient(loss, [w, x, start])

    original = tf.function(step, input_signature=signature)
    expected = bits(original(*inputs))
    optimised = rnnmem.optimize(original, max_slowdown=10.0)
    plan = optimised.plan(*inputs)
    recomputed = [name for loop in plan.loops for name in loop.recomputed]
    # A sum of the gradient may race with the next iteration's readers of its addends, and is saved.
    races = any("graph optimizer would compute" in note for note in plan.notes)
    assert races or recomputed
    assert bits(optimised(*inputs)) == expected
