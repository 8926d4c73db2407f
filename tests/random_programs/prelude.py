"""What every program begins with: its numbers, weights, and the functions that its body calls."""

from __future__ import annotations

import dataclasses

from tests.random_programs.dice import Dice

TEXT = """\
import keras
import numpy as np
import tensorflow as tf

B, D, H, T, N = {batch}, {features}, {hidden}, {time}, {trips}
DT = tf.{dtype}
RANDOM = np.random.default_rng({seed})
keras.utils.set_random_seed({seed})


def numbers(*shape, size=0.5):
    return tf.cast(tf.constant(RANDOM.normal(size=shape) * size), DT)


def weight(*shape):
    return tf.Variable(numbers(*shape, size=0.9 / shape[0] ** 0.5))


W, U, V = weight(H, H), weight(H, H), weight(D, H)
b = tf.Variable(numbers(H, size=0.1))
E = tf.Variable(numbers(7, H))
G, P, K = weight(H, 2 * H), weight(2 * H, H), weight(2 * H, 4 * H)
COUNT = tf.Variable(0, trainable=False)
KEYS, SKIP = numbers(B, 5, H), numbers(T, B, H)
IDS = tf.constant(RANDOM.integers(0, 7, size=(T, B)), tf.int32)
LENGTHS = tf.constant(RANDOM.integers(0, T + 1, size=B), tf.int32)
LABELS = tf.constant(RANDOM.integers(0, 7, size=B), tf.int32)
COLUMNS = tf.constant(RANDOM.permutation(H), tf.int32)
X, H0 = numbers(T, B, D), numbers(B, H)
"""

PARTS = {
    "attend(": """
def attend(query):
    scores = tf.reduce_sum(tf.tanh(KEYS + query[:, tf.newaxis]), axis=2)
    weights = tf.nn.softmax(scores)
    return tf.einsum("bs,bsh->bh", weights, KEYS)
""",
    "gates(": """
def gates(z):
    first, second = tf.split(z, 2, axis=1)
    return tf.sigmoid(first) * tf.tanh(second)
""",
    "lstm(": """
def lstm(h, c, x):
    z = tf.matmul(tf.concat([h, x], 1), K)
    i, f, g, o = tf.split(z, 4, axis=1)
    c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(c), c
""",
    "called(": """
@tf.function
def called(p, q):
    return tf.tanh(p) * tf.sigmoid(q)
""",
    "custom(": """
@tf.custom_gradient
def custom(p):
    y = tf.tanh(p) * p

    def gradient(dy):
        return dy * (tf.sigmoid(p) + y * 0.1)

    return y, gradient
""",
    "custom_of_variable(": """
@tf.custom_gradient
def custom_of_variable(p):
    y = tf.matmul(p, W)

    def gradient(dy, variables=None):
        of_weight = tf.matmul(p, dy, transpose_a=True)
        return tf.matmul(dy, W, transpose_b=True) * 0.5, [of_weight for _ in variables]

    return tf.tanh(y), gradient
""",
}
CELLS = {
    "LSTM": "keras.layers.LSTMCell(H, dtype=DT.name)",
    "GRU": "keras.layers.GRUCell(H, reset_after=False, dtype=DT.name)",
    "RNN": "keras.layers.SimpleRNNCell(H, dtype=DT.name)",
}
LAYERS = {
    "ENCODER": (
        "keras.layers.LSTM(H, return_sequences=True, dtype=DT.name)",
        "keras.layers.GRU(H, return_sequences=True, dtype=DT.name)",
        "keras.layers.SimpleRNN(H, return_sequences=True, dtype=DT.name)",
        "keras.layers.RNN(keras.layers.LSTMCell(H, dtype=DT.name), return_sequences=True, "
        "dtype=DT.name)",
        "keras.layers.Bidirectional("
        "keras.layers.LSTM(H // 2, return_sequences=True, dtype=DT.name), dtype=DT.name)",
    )
}
WEIGHTS = ("W", "U", "V", "b", "E", "G", "P", "K")


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large a program is; ``trips`` is its argument n."""

    batch: int
    features: int
    hidden: int
    time: int
    trips: int
    dtype: str

    @property
    def elements(self) -> int:
        """How many numbers a value of every iteration has."""
        return self.batch * self.hidden * self.time


def sizes(dice: Dice, large: bool) -> Sizes:
    """Small ones show every construct quickly; large ones have a peak that is worth a look."""
    while True:
        if large:
            batch, hidden = dice.one_of((16, 32, 64)), dice.one_of((64, 128, 256))
            time = dice.whole(10, 60)
        else:
            batch, hidden = dice.whole(1, 4), dice.one_of((4, 6, 8, 16))
            time = dice.whole(2, 8)
        trips = dice.one_of((time, time, time, time - 1, max(1, time // 2), 0, 1))
        if large:
            trips = dice.one_of((time, time, time - 1, time // 2, 3))
        features = hidden if dice.chance(0.6) else dice.one_of((3, 5, 2 * hidden))
        dtype = dice.weighted({"float32": 12, "float64": 2, "bfloat16": 0.7})
        found = Sizes(batch, features, hidden, time, trips, dtype)
        if not large or 40_000 <= found.elements <= 250_000:
            return found
