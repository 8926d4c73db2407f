"""Attention sequence-to-sequence: an encoder reads digits, a decoder writes them backwards.

python -m examples.attention_seq2seq --steps=60
python -m rnnmem report examples.attention_seq2seq:train_step --args=:batch --png=memory.png
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import rnnmem
from examples import run
from models.nmt.model import ModelConfig, Translator
from models.nmt.vocabulary import CONTROL, END, START

rnnmem.enable_cpu_memory_stats()  # before TensorFlow's first op

BATCH, LENGTH, WORDS = 32, 80, 20

translator = Translator(ModelConfig(WORDS, WORDS, units=64, embedding=32))
variables = translator.trainable_variables
moments = [tf.Variable(tf.zeros_like(one), trainable=False) for one in variables]
drawn = np.random.default_rng(0)


def batch() -> tuple[tf.Tensor, tf.Tensor]:
    """Numbers int32 [BATCH, LENGTH], and the same backwards from <s> to </s>."""
    source = drawn.integers(len(CONTROL), WORDS, [BATCH, LENGTH])
    ends = np.full([BATCH, 1], START), np.full([BATCH, 1], END)
    target = np.concatenate([ends[0], source[:, ::-1], ends[1]], axis=1)
    return tf.constant(source, tf.int32), tf.constant(target, tf.int32)


@rnnmem.optimize
@tf.function
def train_step(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """One step of gradient descent with momentum; returns the loss in nats a number."""
    with tf.GradientTape() as tape:
        loss = translator.loss(source, target)
    gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 1.0)
    for variable, moment, gradient in zip(variables, moments, gradients, strict=True):
        moment.assign(0.9 * moment + gradient)
        variable.assign_sub(0.3 * moment)
    return loss


def main(arguments: list[str] | None = None) -> float:
    """Trains, prints what it took, and returns the last loss."""
    return run(train_step, batch, __doc__, arguments, steps=60)


if __name__ == "__main__":
    main()
