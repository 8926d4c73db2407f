"""A cell with a loop of its own: at each step the state settles by some inner iterations.

python -m examples.inner_loop_cell --steps=40
python -m rnnmem explain examples.inner_loop_cell:train_step --args=:batch
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import rnnmem
from examples import run

rnnmem.enable_cpu_memory_stats()  # before TensorFlow's first op

BATCH, LENGTH, INPUTS, UNITS, SETTLING = 32, 60, 16, 96, 6

drawn = np.random.default_rng(0)


def weight(*shape: int) -> tf.Variable:
    """A variable of small random numbers."""
    return tf.Variable(drawn.standard_normal(shape) / np.sqrt(shape[0]), dtype=tf.float32)


into, within, out = weight(INPUTS, UNITS), weight(UNITS, UNITS), weight(UNITS, 1)
variables = [into, within, out]


def cell(x: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
    """Goes from h [B, UNITS] towards a state that x [B, INPUTS] and the weights agree on."""
    driven = x @ into

    def settle(i: tf.Tensor, z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return i + 1, 0.5 * z + 0.5 * tf.tanh(z @ within + driven)

    _, h = tf.while_loop(lambda i, _: i < SETTLING, settle, (0, h))
    return h


def batch() -> tuple[tf.Tensor, tf.Tensor]:
    """Random walks [LENGTH, BATCH, INPUTS], and the mean of the last quarter of each."""
    steps = drawn.standard_normal([LENGTH, BATCH, INPUTS]).cumsum(0) / np.sqrt(LENGTH)
    target = steps[-LENGTH // 4 :].mean((0, 2))[:, None]
    return tf.constant(steps, tf.float32), tf.constant(target, tf.float32)


@rnnmem.optimize
@tf.function
def train_step(walks: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """One step of gradient descent; returns the mean squared error."""
    with tf.GradientTape() as tape:
        h = tf.zeros([BATCH, UNITS])
        for t in tf.range(LENGTH):
            h = cell(walks[t], h)
        loss = tf.reduce_mean(tf.square(h @ out - target))
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(0.05 * gradient)
    return loss


def main(arguments: list[str] | None = None) -> float:
    """Trains, prints what it took, and returns the last loss."""
    return run(train_step, batch, __doc__, arguments, steps=40)


if __name__ == "__main__":
    main()
