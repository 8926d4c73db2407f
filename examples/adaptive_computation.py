"""Adaptive computation: a loop that nobody knows the length of before it stops.

A state is worked on until every example has halted, as in Graves (2016), "Adaptive Computation Time
for Recurrent Neural Networks": each iteration adds to a halting probability and to the output.

    python -m examples.adaptive_computation --steps=60
    python -m rnnmem report examples.adaptive_computation:train_step --args=:batch
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import rnnmem
from examples import run

rnnmem.enable_cpu_memory_stats()  # before TensorFlow's first op

BATCH, BITS, UNITS, LIMIT = 64, 32, 128, 200

drawn = np.random.default_rng(0)


def weight(*shape: int) -> tf.Variable:
    """A variable of small random numbers."""
    return tf.Variable(drawn.standard_normal(shape) / np.sqrt(shape[0]), dtype=tf.float32)


into, within, halt, out = (
    weight(BITS, UNITS),
    weight(UNITS, UNITS),
    weight(UNITS, 1),
    weight(UNITS, 1),
)
reluctance = tf.Variable(-4.0)  # begins low, so that the loop is long at first
variables = [into, within, halt, out, reluctance]


def think(bits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Works on bits [B, BITS] until all have halted; the answer [B, 1] and the mean work."""
    driven = bits @ into

    def going_on(i, h, halted, answer):
        return tf.logical_and(i < LIMIT, tf.reduce_any(halted < 0.99))

    def iterate(i, h, halted, answer):
        h = tf.tanh(h @ within + driven)
        more = tf.minimum(tf.sigmoid(h @ halt + reluctance), 1.0 - halted)
        return i + 1, h, halted + more, answer + more * (h @ out)

    nothing = tf.zeros([BATCH, 1])
    start = (0, tf.zeros([BATCH, UNITS]), nothing, nothing)
    _, _, halted, answer = tf.while_loop(going_on, iterate, start)
    return answer, tf.reduce_mean(halted)


def batch() -> tuple[tf.Tensor, tf.Tensor]:
    """Random signs [BATCH, BITS], and the mean of the first half of each."""
    bits = drawn.choice([-1.0, 1.0], [BATCH, BITS])
    return tf.constant(bits, tf.float32), tf.constant(
        bits[:, : BITS // 2].mean(1)[:, None], tf.float32
    )


@rnnmem.optimize
@tf.function
def train_step(bits: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """One step of gradient descent; returns the mean squared error."""
    with tf.GradientTape() as tape:
        answer, work = think(bits)
        loss = tf.reduce_mean(tf.square(answer - target)) + 0.001 * work
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(0.02 * tf.clip_by_norm(gradient, 1.0))
    return loss


def main(arguments: list[str] | None = None) -> float:
    """Trains, prints what it took, and returns the last loss."""
    return run(train_step, batch, __doc__, arguments, steps=60)


if __name__ == "__main__":
    main()
