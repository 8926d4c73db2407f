"""A character language model: one LSTM reads text and predicts the next character.

python -m examples.character_model --steps=100
python -m rnnmem report examples.character_model:train_step --args=:batch --html=memory.html
"""

from __future__ import annotations

import itertools
import random

import keras
import tensorflow as tf

import rnnmem
from examples import run

rnnmem.enable_cpu_memory_stats()  # before TensorFlow's first op

BATCH, LENGTH, UNITS = 32, 160, 128
TEXT = " ".join(
    f"{who} {did} {what} {when}."
    for who, did, what, when in itertools.product(
        ("the loop", "a gradient", "the state", "each step"),
        ("keeps", "reads", "writes", "forgets"),
        ("a number", "the past", "one value", "its input"),
        ("again", "at once", "in the end", "twice"),
    )
)
CHARACTERS = sorted(set(TEXT))

model = keras.Sequential(
    [
        keras.Input((LENGTH,), batch_size=BATCH, dtype="int32"),
        keras.layers.Embedding(len(CHARACTERS), 32),
        keras.layers.LSTM(UNITS, return_sequences=True),
        keras.layers.Dense(len(CHARACTERS)),
    ]
)
optimizer = keras.optimizers.Adam(3e-3)


def batch() -> tuple[tf.Tensor]:
    """Pieces of the text as numbers of characters, int32 [BATCH, LENGTH + 1]."""
    starts = random.choices(range(len(TEXT) - LENGTH - 1), k=BATCH)
    pieces = [TEXT[start : start + LENGTH + 1] for start in starts]
    return (tf.constant([[CHARACTERS.index(one) for one in piece] for piece in pieces], tf.int32),)


@rnnmem.optimize
@tf.function
def train_step(text: tf.Tensor) -> tf.Tensor:
    """One step of training; returns the loss in nats a character."""
    with tf.GradientTape() as tape:
        logits = model(text[:, :-1], training=True)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(text[:, 1:], logits))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    return loss


def main(arguments: list[str] | None = None) -> float:
    """Trains, prints what it took, and returns the last loss."""
    random.seed(0)
    return run(train_step, batch, __doc__, arguments, steps=100, every=20)


if __name__ == "__main__":
    main()
