"""A gradient loop that nobody needs does not run, whatever the rewritten function waits for."""

import pytest
import tensorflow as tf

import rnnmem
from tests.forced_segments import forced_segments


@pytest.mark.slow
@pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")
def test_segments_do_not_wake_a_gradient_loop():
    runs = tf.Variable(0, trainable=False)

    @tf.function
    def step(h):
        with tf.GradientTape() as tape:
            tape.watch(h)
            states = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=h.shape)
            for i in tf.range(13):
                runs.assign_add(1)  # else the forward loop could run again
                states = states.write(i, h)  # its gradient holds an op that is not known as pure
                h = tf.tanh(tf.sin(h) * 0.5) * 0.8
            loss = tf.reduce_sum(h**2) + tf.reduce_sum(states.stack() ** 2)
        tape.gradient(loss, h)
        return loss

    h = tf.linspace(tf.zeros([8]), tf.ones([8]), 4)
    with forced_segments():
        optimised = rnnmem.optimize(step, max_slowdown=float("inf"))
        (loop,) = optimised.plan(h).loops
        assert loop.segments is not None
        assert optimised(h) == step(h)
        assert runs == 26
