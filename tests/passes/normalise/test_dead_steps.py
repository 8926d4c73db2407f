"""A gradient that nobody asks for: TensorFlow prunes it, so no plan may take it for a step."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.analysis.loops import loops_of
from rnnmem.analysis.training_regions import nested_steps
from rnnmem.compile import compile_function
from rnnmem.compiled import Target
from rnnmem.planning.options import Options
from tests.allocations import ops_run

B, H, T = 32, 64, 12
RANDOM = np.random.default_rng(5)
X, H0 = tf.constant(RANDOM.normal(size=[T, B, H])), tf.constant(RANDOM.normal(size=[B, H]))
MASKS = tf.constant(RANDOM.integers(0, 2, size=[T, B, 1]) > 0)


def loss_of(x, h):
    """Nothing in the loop depends on a variable, all of it on the steps of x, put in by number."""
    steps = tf.TensorArray(tf.float64, T, clear_after_read=False)
    steps = steps.scatter(tf.range(T)[::-1], x)
    for i in tf.range(tf.shape(x)[0] // 2):
        h = tf.tanh(tf.where(MASKS[i], h, h * 0.5) + steps.read(i % T))
    return tf.reduce_mean(h)


def trained(weight):
    """A training loop whose tape watches x, which nobody asks for the gradient of."""

    @tf.function(input_signature=[tf.TensorSpec([None, B, H], tf.float64)])
    def steps(x):
        total = tf.zeros([], tf.float64)
        for _ in tf.range(3):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = loss_of(x, H0)
            total += loss
            none = tape.gradient(loss, [weight], unconnected_gradients="zero")
            weight.assign_sub(0.1 * weight + none[0])
        return total

    return steps


def alone(weight):
    """One such step, outside of any loop."""

    @tf.function(input_signature=[tf.TensorSpec([None, B, H], tf.float64)])
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = loss_of(x, H0)
        return loss, tape.gradient(loss, [weight], unconnected_gradients="zero")[0]

    return step


@pytest.fixture
def weight():
    return tf.Variable(RANDOM.normal(size=[H, H]))


@pytest.mark.parametrize("made", [trained, alone])
def test_a_dead_gradient_is_no_step(made, weight):
    concrete = made(weight).get_concrete_function()
    compiled = compile_function(Target(concrete, Options(max_slowdown=2.0)))
    loops = [op for _, inner in compiled.net.walk() for op in loops_of(inner)]
    assert len(loops) == (2 if made is trained else 1)  # of the gradient, none
    assert compiled.rewritten is None and not nested_steps(compiled.net)


@pytest.mark.parametrize("made", [trained, alone])
def test_what_a_dead_gradient_would_read_is_not_kept(made, weight, tmp_path):
    optimised = rnnmem.optimize(made(weight), max_slowdown=2.0)
    optimised(X)
    run = ops_run(optimised, (X,), tmp_path)
    assert run["Tanh"] and not run["TanhGrad"]
    assert not run["TensorListPushBack"] and not run["TensorListLength"]
