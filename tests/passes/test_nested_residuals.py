"""Iterations with loops and branches inside: what these kept is had again, bit for bit."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from tests.forced_segments import forced_segments

pytestmark = [
    pytest.mark.usefixtures("deterministic"),
    pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning"),
]

STEPS, BATCH, UNITS, INNER = 24, 8, 32, 6


def numbers(*shape, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype("float32")


def euler(h, w, u):
    """A loop of a known length inside each step."""

    def inner(j, h):
        return j + 1, h + 0.125 * tf.tanh(tf.tanh(h @ w) @ u)

    return tf.while_loop(lambda j, _: j < INNER, inner, (0, h))[1]


def ponder(h, w, u):
    """Adaptive computation: goes on until every row has halted, at most so often."""
    halting = tf.zeros_like(h[:, :1])

    def more(j, h, halting, out):
        return tf.logical_and(j < INNER, tf.reduce_any(halting < 0.99))

    def inner(j, h, halting, out):
        h = tf.tanh(h @ w)
        chance = tf.sigmoid(h @ u[:, :1]) * tf.cast(halting < 0.99, h.dtype)
        chance = tf.minimum(chance, 1.0 - halting)
        return j + 1, h, halting + chance, out + chance * h

    return tf.while_loop(more, inner, (0, h, halting, tf.zeros_like(h)))[3]


def sometimes(make):
    """The loop in one branch, and a layer in the other."""

    def cell(h, w, u):
        return tf.cond(tf.reduce_mean(h) < 1.0, lambda: make(h, w, u), lambda: tf.tanh(h @ w))

    return cell


def collected(h, w, u):
    """What the inner loop writes into a TensorArray is read behind it."""
    states = tf.TensorArray(tf.float32, INNER, element_shape=[BATCH, UNITS])
    for j in tf.range(INNER):
        h = h + 0.125 * tf.tanh(tf.tanh(h @ w) @ u)
        states = states.write(j, h)
    return h + tf.reduce_mean(tf.square(states.stack()), 0)


def deep(h, w, u):
    """A loop in a loop in each step."""

    def middle(j, h):
        def inner(k, h):
            return k + 1, h + 0.1 * tf.tanh(h @ w)

        _, h = tf.while_loop(lambda k, _: k < 3, inner, (0, h))
        return j + 1, tf.tanh(h @ u)

    return tf.while_loop(lambda j, _: j < 3, middle, (0, h))[1]


CELLS = {
    "a loop": euler,
    "a loop until it halts": ponder,
    "a loop in a branch": sometimes(euler),
    "a loop in a branch until it halts": sometimes(ponder),
    "a loop that fills an array": tf.autograph.to_graph(collected),
    "a loop in a loop": deep,
}


def step_of(cell):
    weights = [tf.Variable(numbers(UNITS, UNITS, seed=seed, scale=0.3)) for seed in (1, 2, 3)]
    w, u, wx = weights

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)

            def outer(t, h):
                return t + 1, cell(tf.tanh(x[t] @ wx + h), w, u)

            start = tf.zeros([BATCH, UNITS])
            _, h = tf.while_loop(lambda t, _: t < STEPS, outer, (0, start))
            loss = tf.reduce_sum(tf.square(h))
        return loss, tape.gradient(loss, [x, *weights])

    return tf.function(step), tf.constant(numbers(STEPS, BATCH, UNITS))


def bits(results) -> list[bytes]:
    return [one.numpy().tobytes() for one in tf.nest.flatten(results)]


@pytest.mark.slow
@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_every_bit_is_the_same(name, segments):
    original, x = step_of(CELLS[name])
    expected = bits(original(x))
    if segments:
        with forced_segments():
            optimised = rnnmem.optimize(original, max_slowdown=3.0)
            got = bits(optimised(x))
    else:
        optimised = rnnmem.optimize(original, max_slowdown=3.0, allow=("recompute",))
        got = bits(optimised(x))
    plan = optimised.plan(x)
    assert got == expected
    assert not plan.changes_nothing
    assert not any("graph optimizer would" in note for note in plan.notes)


@pytest.mark.slow
def test_a_loop_in_a_branch_is_had_again():
    original, x = step_of(CELLS["a loop in a branch"])
    optimised = rnnmem.optimize(original, max_slowdown=1.5, allow=("recompute",))
    (loop,) = optimised.plan(x).loops
    assert any(name.endswith("cond") for name in loop.recomputed)
    assert bits(optimised(x)) == bits(original(x))


@pytest.mark.slow
def test_what_an_inner_loop_keeps_is_weighed_with_all_its_iterations():
    original, x = step_of(euler)
    plan = rnnmem.optimize(original, max_slowdown=1.5).plan(x)
    assert plan.predicted_peak < 0.35 * plan.original_peak
    assert plan.slowdown <= 1.5


@pytest.mark.slow
def test_a_branch_that_draws_numbers_runs_once():
    def drawing(h, w, u):
        return tf.cond(
            tf.reduce_mean(h) < 1.0,
            lambda: tf.nn.dropout(tf.tanh(h @ w), 0.1, seed=3),
            lambda: tf.tanh(h @ u),
        )

    original, x = step_of(drawing)
    plan = rnnmem.optimize(original, max_slowdown=3.0, allow=("recompute",)).plan(x)
    assert not any("cond" in name for loop in plan.loops for name in loop.recomputed)


def test_a_branch_that_draws_from_a_seed_may_run_again():
    def drawing(h, w, u):
        return tf.cond(
            tf.reduce_mean(h) < 1.0,
            lambda: tf.nn.experimental.stateless_dropout(tf.tanh(h @ w), 0.1, seed=[3, 5]),
            lambda: tf.tanh(h @ u),
        )

    original, x = step_of(drawing)
    optimised = rnnmem.optimize(original, max_slowdown=3.0, allow=("recompute",))
    plan = optimised.plan(x)
    assert any("cond" in name for loop in plan.loops for name in loop.recomputed)
    assert bits(optimised(x)) == bits(original(x))
