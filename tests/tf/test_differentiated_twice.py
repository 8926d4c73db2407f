"""A plan differentiates the original, too; its own gradient, which verification compares, stays."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem

B, H, N = 4, 8, tf.constant(5)
H0 = tf.constant(np.random.default_rng(1).normal(size=(B, H)) * 0.5, tf.float32)


@pytest.fixture(scope="module", autouse=True)
def determinism():
    tf.config.experimental.enable_op_determinism()


def forward(h0, n):
    h, c = h0, tf.sin(h0)
    for i in tf.range(n):
        h = h * 0.9 + c * 0.1
        d = c + 0.25
        once = d + tf.cast(i, tf.float32) * 0.01
        c = c * 0.9 + tf.reduce_mean(tf.math.atan2(c, tf.abs(once) + 1.0)) * 0.1
        again = d + tf.cast(i, tf.float32) * 0.01
        h = h * 0.8 + tf.tanh(again * once + again) * 0.2
    return tf.reduce_mean(tf.square(h)) + tf.reduce_sum(c) * 0.01, h, c


def bits(function):
    """Results, and the gradient of all of them at once."""
    with tf.GradientTape() as tape:
        tape.watch(H0)
        results = function(H0, N)
    return [one.numpy().tobytes() for one in [*results, tape.gradient(results, H0)]]


@pytest.fixture(scope="module")
def as_tensorflow_runs_it():
    return bits(tf.function(forward))


def test_the_original_keeps_its_bits_once_it_was_planned(as_tensorflow_runs_it):
    original = tf.function(forward)
    assert not rnnmem.optimize(original).plan(H0, N).changes_nothing
    assert bits(original) == as_tensorflow_runs_it


@pytest.mark.parametrize("verify", [False, True])
def test_so_does_what_is_rewritten(verify, as_tensorflow_runs_it):
    optimised = rnnmem.optimize(tf.function(forward), verify=verify)
    assert bits(optimised) == as_tensorflow_runs_it
    assert not optimised.plan(H0, N).changes_nothing
