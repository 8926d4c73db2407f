"""Loops in a branch whose gradient loops stand in a branch of the gradient."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem

pytestmark = [
    pytest.mark.usefixtures("deterministic"),
    pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning"),
]

STEPS, BATCH, UNITS = 30, 8, 32


def numbers(*shape, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype("float32")


def over(x, h, kernel, steps=STEPS):
    def body(t, h):
        return t + 1, tf.tanh(tf.sin(h @ kernel) * tf.sigmoid(x[t]))

    return tf.while_loop(lambda t, _: t < steps, body, (0, h))[1]


def one_way(which, x, h, w, u):
    return tf.cond(which > 0, lambda: over(x, h, w), lambda: tf.tanh(h @ u))


def both_ways(which, x, h, w, u):
    return tf.cond(which > 0, lambda: over(x, h, w), lambda: over(x, tf.sin(h), u))


def three_ways(which, x, h, w, u):
    ways = [lambda: over(x, h, w), lambda: tf.tanh(h @ u), lambda: over(x, h, u)]
    return tf.switch_case(which, ways)


def two_in_a_way(which, x, h, w, u):
    return tf.cond(which > 0, lambda: over(x, over(x, h, w), u), lambda: tf.tanh(h @ u))


def with_a_loop_beside(which, x, h, w, u):
    return over(x, one_way(which, x, over(x, h, u), w, u), w)


OPENED = {one.__name__: one for one in (one_way, two_in_a_way, with_a_loop_beside)}
# Both ways hand over lists in one place.
LEFT = {one.__name__: one for one in (both_ways, three_ways)}


def step_of(make):
    weights = [tf.Variable(numbers(UNITS, UNITS, seed=seed, scale=0.3)) for seed in (1, 2)]

    def step(which, x, h):
        with tf.GradientTape() as tape:
            tape.watch([x, h])
            loss = tf.reduce_sum(tf.square(make(which, x, h, *weights)))
        gradients = tape.gradient(loss, [x, h, *weights], unconnected_gradients="zero")
        for weight, gradient in zip(weights, gradients[2:], strict=True):
            weight.assign_sub(0.0 * gradient)
        return loss, gradients

    given = tf.constant(numbers(STEPS, BATCH, UNITS)), tf.constant(numbers(BATCH, UNITS, seed=5))
    return tf.function(step), given


def bits(results) -> list[bytes]:
    return [tf.convert_to_tensor(one).numpy().tobytes() for one in tf.nest.flatten(results)]


@pytest.mark.slow
@pytest.mark.parametrize("bound", [1.1, 3.0])
@pytest.mark.parametrize("name", [*OPENED, *LEFT])
def test_every_bit_is_the_same_whichever_way_is_taken(name, bound):
    original, given = step_of({**OPENED, **LEFT}[name])
    optimised = rnnmem.optimize(original, max_slowdown=bound)
    for which in map(tf.constant, (1, 0, 2)):
        assert bits(optimised(which, *given)) == bits(original(which, *given))
    plan = optimised.plan(tf.constant(1), *given)
    opened = [loop for loop in plan.loops if len(loop.path) == 3]
    assert bool(opened) == (name in OPENED)
    assert not any(loop.closed for loop in opened)
    assert not any("graph optimizer would" in note for note in plan.notes)


@pytest.mark.slow
def test_less_is_kept_and_the_plan_names_the_branch():
    original, given = step_of(one_way)
    optimised = rnnmem.optimize(original, max_slowdown=2.0)
    which = tf.constant(1)
    plan = optimised.plan(which, *given)
    (loop,) = plan.loops
    assert loop.path == ("cond", "then_branch", "cond/while")
    assert plan.predicted_peak < 0.6 * plan.original_peak
    assert rnnmem.Plan.from_json(plan.to_json()) == plan
    assert "1 loop rewritten" in str(optimised.explain(which, *given))
    assert bits(optimised(which, *given)) == bits(original(which, *given))
