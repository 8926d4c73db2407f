"""An optimised function that a graph calls twice."""

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.tf import private
from tests.cases import numbers, outcome, weights

GIVEN = numbers(24, 8, 16), numbers(8, 16, seed=2)


def step():
    """A loop's gradient, and zeros for a weight that the loss does not depend on."""
    used, unused = weights((16, 16), (16, 16))

    def run(x, h):
        with tf.GradientTape() as tape:
            last = tf.while_loop(
                lambda i, h: i < 24,
                lambda i, h: (i + 1, tf.tanh(tf.sigmoid(h @ used) * x[i]) + h * 0.5),
                (0, h),
            )[1]
            loss = tf.reduce_sum(last**2)
        gradients = tape.gradient(loss, [used, unused], unconnected_gradients="zero")
        return loss, *gradients

    return tf.function(run)


def twice(called):
    return tf.function(lambda x, h: (called(x, h), called(x, h * 0.5)))


def constants(function):
    """How many results of a function are constants of their own."""
    nodes = private.optimized_nodes(function.get_concrete_function(*GIVEN).graph)
    return sum(node.op == "Const" and node.name.startswith("Identity") for node in nodes)


@pytest.mark.slow
def test_equal_results_of_two_calls_stay_one():
    original = step()
    optimised = rnnmem.optimize(original)
    assert not optimised.plan(*GIVEN).changes_nothing
    assert constants(twice(optimised)) == constants(twice(original)) == 1
    assert outcome(twice(optimised)(*GIVEN)) == outcome(twice(original)(*GIVEN))
