"""A function that is left as it was, under an eager tape outside it: as if nobody had looked."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from tests.allocations import ops_run

B, H, T = 32, 64, 20
W = tf.Variable(np.random.default_rng(1).normal(size=(H, H)) / H**0.5, dtype=tf.float32)
X = tf.constant(np.random.default_rng(2).normal(size=(T, B, H)), tf.float32)


def forward(x):
    h, rows = x[0], tf.TensorArray(tf.float32, T)
    for i in tf.range(T):
        rows = rows.write(i, tf.nn.relu(h) + x[i])
        h = tf.tanh(x[i] @ W * h + tf.nn.relu(h) / (1.0 + tf.norm(tf.nn.relu(h), axis=1)[:, None]))
    return tf.reduce_sum(h) + tf.reduce_mean(tf.square(rows.stack())), h


def differentiated(function):
    def step():
        with tf.GradientTape() as tape:
            tape.watch(X)
            loss, h = function(X)
        return [loss, h, *tape.gradient(loss, [W, X])]

    return step


def bits(results):
    return [one.numpy().tobytes() for one in results]


def saved(step, folder):
    """How often a step saves something, and how often it asks for what was saved."""
    run = ops_run(step, (), folder)
    return run["TensorListPushBack"], run["TensorListPopBack"]


@pytest.fixture(scope="module")
def as_tensorflow_runs_it(tmp_path_factory):
    step = differentiated(tf.function(forward))
    return bits(step()), saved(step, tmp_path_factory.mktemp("original"))


@pytest.mark.parametrize("options", [{}, {"verify": True}], ids=str)
@pytest.mark.parametrize("planned_before", [False, True])
def test_what_was_left_alone_saves_no_more(
    planned_before, options, as_tensorflow_runs_it, tmp_path
):
    function = rnnmem.optimize(tf.function(forward), allow=(), **options)
    assert not planned_before or function.plan(X).changes_nothing
    step = differentiated(function)
    assert (bits(step()), saved(step, tmp_path)) == as_tensorflow_runs_it


def test_the_original_of_what_was_rewritten_saves_no_more(as_tensorflow_runs_it, tmp_path):
    original = tf.function(forward)
    optimised, step = differentiated(rnnmem.optimize(original)), differentiated(original)
    assert bits(optimised()) == as_tensorflow_runs_it[0]
    assert (bits(step()), saved(step, tmp_path)) == as_tensorflow_runs_it


def test_an_eager_tape_gets_the_pair_that_tensorflow_makes_for_tapes():
    # that for calls inside graphs also runs what no gradient depends on, so other sums race
    original = tf.function(forward)
    differentiated(rnnmem.optimize(original, allow=()))()
    maker = original.get_concrete_function(X)._delayed_rewrite_functions
    ((_, backward),) = maker._cached_function_pairs.values()
    assert not backward.graph.control_outputs
