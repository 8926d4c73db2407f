"""Recurrent programs with loops and branches inside an iteration: loss, variables, arguments.

python -m benchmarks.recurrent --workload=ponder --max_slowdown=1.33
"""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

Program = tuple[Callable, list[tf.Variable], tuple[tf.Tensor, ...]]


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> tf.Tensor:
    """Fixed float32 numbers without structure."""
    return tf.constant(np.random.default_rng(seed).standard_normal(shape) * scale, tf.float32)


class Ponder(keras.layers.Layer):
    """A cell that thinks until it halts (Graves 2016), or a single time where a branch says so."""

    def __init__(self, units: int, most: int = 8):
        super().__init__()
        self.state_size = self.units = units
        self.most = most

    def build(self, shape):
        """Makes the weights."""
        batch, features = shape
        self.inner = keras.layers.GRUCell(self.units, reset_after=False)
        self.inner.build((batch, features + 1))
        self.halt = keras.layers.Dense(1, activation="sigmoid")
        self.halt.build((batch, self.units))
        self.quick = keras.layers.Dense(self.units, activation="tanh")
        self.quick.build((batch, features + self.units))

    def call(self, x, states):
        """One step: its output, and the next state."""
        (h,) = states
        out = tf.cond(
            tf.reduce_mean(x) > 0.0,
            lambda: self.think(x, h),
            lambda: self.quick(tf.concat([x, h], -1)),
        )
        return out, [out]

    def think(self, x, h):
        """Goes on until every row has halted."""
        halted = tf.zeros_like(h[:, :1])

        def going_on(n, h, halted, out):
            return tf.logical_and(n < self.most, tf.reduce_any(halted < 0.99))

        def step(n, h, halted, out):
            turn = tf.ones_like(x[:, :1]) * tf.cast(n, x.dtype)
            h, _ = self.inner(tf.concat([x, turn], -1), [h])
            chance = tf.minimum(self.halt(h), 1.0 - halted)
            return n + 1, h, halted + chance, out + chance * h

        return tf.while_loop(going_on, step, (0, h, halted, tf.zeros_like(h)))[3]


def _keras(layer, *shape: int) -> Program:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input(batch_shape=shape), layer])

    def loss(x):
        return tf.reduce_mean(tf.square(model(x, training=True)))

    return loss, [one.value for one in model.trainable_variables], (numbers(*shape),)


def ponder() -> Program:
    """A Keras RNN with a data-dependent loop and a branch in its cell; 100 steps, batch 32."""
    return _keras(keras.layers.RNN(Ponder(128), return_sequences=True), 32, 100, 64)


def conv_lstm_2d() -> Program:
    """Keras' ConvLSTM2D, 16 filters, 3x3; 20 frames of 32x32, batch 4."""
    layer = keras.layers.ConvLSTM2D(16, 3, padding="same", return_sequences=True)
    return _keras(layer, 4, 20, 32, 32, 3)


def scheduled_sampling(
    batch: int = 32,
    time: int = 50,
    units: int = 128,
    words: int = 1000,
    width: int = 64,
    soft: bool = False,
) -> Program:
    """A decoder that is fed its own word, or the right one, as a branch decides in each step.

    Softly, its own word is the mean of all words, as likely as it takes them to be.
    """
    table = tf.Variable(numbers(words, width, seed=1, scale=0.1))
    kernel = tf.Variable(numbers(width + units, 4 * units, seed=2, scale=0.05))
    out = tf.Variable(numbers(units, words, seed=3, scale=0.05))
    drawn = np.random.default_rng(4).integers(0, words, (time + 1, batch))

    def guessed(logits):
        return tf.nn.softmax(logits) @ table if soft else tf.argmax(logits, -1, tf.int32)

    def told(right):
        return tf.gather(table, right) if soft else right

    def loss(tokens, seed):
        def step(t, word, h, c, total):
            row = word if soft else tf.gather(table, word)
            given = tf.concat([row, h], -1) @ kernel
            i, f, g, o = tf.split(given, 4, axis=-1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(c)
            logits, right = h @ out, tokens[t + 1]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(right, logits)
            own = tf.random.stateless_uniform([], seed + t) < 0.25
            word = tf.cond(own, lambda: guessed(logits), lambda: told(right))
            return t + 1, word, h, c, total + tf.reduce_mean(losses)

        zeros = tf.zeros([batch, units])
        start = (0, told(tokens[0]), zeros, zeros, tf.constant(0.0))
        return tf.while_loop(lambda t, *_: t < time, step, start)[-1]

    arguments = tf.constant(drawn, tf.int32), tf.constant([3, 5])
    return loss, [table, kernel, out], arguments


def soft_scheduled_sampling() -> Program:
    """The same fed with a mean of words: one branch reads the table, the other looks up rows."""
    return scheduled_sampling(soft=True)


def euler(steps: int = 500, inner: int = 8, batch: int = 16, units: int = 64) -> Program:
    """A loop of 500 with a loop of 8 inside: steps of a differential equation between inputs."""
    variables = [tf.Variable(numbers(units, units, seed=one, scale=0.1)) for one in (1, 2, 3)]
    first, second, given = variables

    def loss(x):
        def advance(j, h):
            return j + 1, h + 0.125 * tf.tanh(tf.tanh(h @ first) @ second)

        def step(t, h):
            h = tf.tanh(x[t] @ given + h)
            return t + 1, tf.while_loop(lambda j, _: j < inner, advance, (0, h))[1]

        _, h = tf.while_loop(lambda t, _: t < steps, step, (0, tf.zeros([batch, units])))
        return tf.reduce_mean(tf.square(h))

    return loss, variables, (numbers(steps, batch, units),)


PROGRAMS: dict[str, Callable[[], Program]] = {
    make.__name__: make
    for make in (ponder, conv_lstm_2d, scheduled_sampling, soft_scheduled_sampling, euler)
}
