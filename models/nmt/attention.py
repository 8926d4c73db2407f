"""Attention: which words of the source the decoder looks at.

Dimensions: B batch, S source length, T target length, H units, A attention units, M memory.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

HIDDEN_SCORE = -1e4  # the score of padding: exp of it is exactly 0; float16 holds it, too


class Memory(NamedTuple):
    """What the encoder hands to the decoder.

    Attributes:
        values: the encoder's outputs, [B, S, M].
        keys: their projection, with which queries are compared, [B, S, A].
        penalty: 0 for words and `HIDDEN_SCORE` for padding, float32 [B, S].
    """

    values: tf.Tensor
    keys: tf.Tensor
    penalty: tf.Tensor

    def repeated(self, times: int | tf.Tensor) -> Memory:
        """Every sentence so many times, one after the other."""
        return Memory(*(tf.repeat(part, times, axis=0) for part in self))


def luong(
    memory: Memory, queries: tf.Tensor, coverage: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Multiplicative attention: Luong, Pham and Manning (2015), "Effective Approaches to …".

    Args:
        memory: the keys have the queries' size, A = H.
        queries: [B, T, H]; all target positions in one product.
        coverage: added to the scores, [B, T, S], or None.

    Returns:
        Contexts [B, T, M] and weights [B, T, S], which sum up to 1 over the source.
    """
    scores = tf.cast(tf.matmul(queries, memory.keys, transpose_b=True), tf.float32)
    scores += memory.penalty[:, None, :]
    if coverage is not None:
        scores += coverage
    weights = tf.nn.softmax(scores)
    return tf.matmul(tf.cast(weights, memory.values.dtype), memory.values), weights


def bahdanau(
    memory: Memory, query: tf.Tensor, vector: tf.Tensor, coverage: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Additive attention: Bahdanau, Cho and Bengio (2015).

    Args:
        memory: keys [B, S, A].
        query: already projected, [B, A].
        vector: [A].
        coverage: added inside the tanh, [B, S, A], or None.

    Returns:
        The context [B, M] and the weights [B, S], which sum up to 1.
    """
    features = memory.keys + query[:, None, :]
    if coverage is not None:
        features += coverage
    scores = tf.cast(tf.reduce_sum(vector * tf.tanh(features), axis=-1), tf.float32)
    weights = tf.nn.softmax(scores + memory.penalty)
    cast = tf.cast(weights, memory.values.dtype)
    return tf.reduce_sum(cast[:, :, None] * memory.values, axis=1), weights
