"""A state that a racing sum adds up stays held by the accumulator that had it before."""

import pytest
import tensorflow as tf

import rnnmem
from tests.cases import numbers, outcome, weights

STEPS, UNITS, BATCH = 8, 64, 16


def step_of(kernels):
    @tf.function
    def step(x, h):
        with tf.GradientTape() as tape:
            c = tf.sin(h)
            for i in tf.range(STEPS):
                total = c + h
                shifted = tf.nn.relu(c) + x[i]
                summed = tf.add_n([shifted, tf.nn.relu(total), c])
                h = tf.tanh(tf.matmul(summed * total, kernels[0]))
                c = tf.tanh(tf.maximum(shifted, tf.tanh(h)))
            loss = tf.reduce_mean(h**2) + tf.reduce_sum(c)
        return loss, tape.gradient(loss, kernels)

    return step


@pytest.fixture
def without_sorting():
    """TensorFlow's graph optimizer leaves the addends as they are written, the state last."""
    names = ("arithmetic_optimization", "constant_folding", "remapping")
    tf.config.optimizer.set_experimental_options(dict.fromkeys(names, False))
    yield
    tf.config.optimizer.set_experimental_options(dict.fromkeys(names, True))


@pytest.mark.slow
@pytest.mark.usefixtures("deterministic", "without_sorting")
def test_what_becomes_the_state_stays_saved():
    step = step_of(weights((UNITS, UNITS)))
    given = numbers(STEPS, BATCH, UNITS), numbers(BATCH, UNITS, seed=2)
    optimised = rnnmem.optimize(step, max_slowdown=2.0)
    (loop,) = optimised.plan(*given).loops
    assert loop.recomputed
    saved = [one for one in loop.residuals if one.op_type == "Tanh" and one.decision == "saved"]
    assert sum("keeps a sum in order" in one.reason for one in saved) == 1
    assert outcome(optimised(*given)) == outcome(step(*given))
