"""Finding a translation: greedily, or by beam search; both run as one TensorFlow function.

Dimensions: B batch, K beams, S source length, T target length, V target vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from models.nmt.seq2seq import Seq2Seq
from models.nmt.vocabulary import END, PAD, START

IMPOSSIBLE = -1e9  # log probability of what must not be chosen


class Found(NamedTuple):
    """Translations, the best first.

    Attributes:
        tokens: ids without <s>; after </s> comes padding; int32 [B, K, T].
        scores: log probability by length penalty, float32 [B, K].
        attention: weights of the source's words for each token, float32 [B, K, T, S].
    """

    tokens: tf.Tensor
    scores: tf.Tensor
    attention: tf.Tensor


def greedy(model: Seq2Seq, source: tf.Tensor, max_length: tf.Tensor) -> tf.Tensor:
    """Takes the likeliest token at every step, until all sentences ended.

    Args:
        model: what translates.
        source: token ids, 0 is padding, int32 [B, S].
        max_length: the most tokens of a translation, </s> included; the last one ends it anyway.

    Returns:
        Token ids without <s>; after </s> comes padding; int32 [B, at most max_length].
    """
    batch = tf.shape(source)[0]
    memory = model.encode(source)
    written = tf.TensorArray(tf.int32, size=0, dynamic_size=True, element_shape=[None])

    def going(t, token, ended, carried, written):
        return tf.logical_and(t < max_length, tf.logical_not(tf.reduce_all(ended)))

    def step(t, token, ended, carried, written):
        logits, carried, _ = model.advance(token, carried, memory)
        token = tf.argmax(_without_control(logits), axis=-1, output_type=tf.int32)
        token = tf.where(ended, PAD, token)
        return t + 1, token, ended | (token == END), carried, written.write(t, token)

    # A row of padding is no sentence: it has ended before it began.
    ended = tf.reduce_all(source == PAD, axis=1)
    start = (0, tf.fill([batch], START), ended, model.start(memory), written)
    *_, written = tf.while_loop(going, step, start)
    return tf.transpose(written.stack())


def beam(
    model: Seq2Seq,
    source: tf.Tensor,
    max_length: tf.Tensor,
    beams: int,
    length_penalty: float | tf.Tensor = 1.0,
) -> Found:
    """Beam search with the length penalty of GNMT (Wu et al., 2016).

    A hypothesis that has ended keeps its place among the beams with its score; the search ends when
    all of them have, or at `max_length`.

    Args:
        model: what translates.
        source: token ids, 0 is padding, int32 [B, S].
        max_length: the most tokens of a translation, </s> included.
        beams: hypotheses that are kept for each sentence; at most the vocabulary's size.
        length_penalty: alpha; scores are divided by ((5 + length) / 6) ^ alpha; 0 is for none.

    Returns:
        What was found, T being the longest hypothesis' length.
    """
    batch = tf.shape(source)[0]
    memory = model.encode(source)
    carried = tf.nest.map_structure(lambda x: tf.repeat(x, beams, axis=0), model.start(memory))
    memory = memory.repeated(beams)
    first = tf.range(batch)[:, None] * beams  # where each sentence's beams begin

    def going(t, token, ended, *_):
        return tf.logical_and(t < max_length, tf.logical_not(tf.reduce_all(ended)))

    def step(t, token, ended, scores, lengths, tokens, attention, carried):
        logits, carried, weights = model.advance(tf.reshape(token, [-1]), carried, memory)
        logits = _without_control(logits)
        gains = tf.reshape(tf.nn.log_softmax(logits), [batch, beams, -1])
        words = tf.shape(gains)[-1]
        # What has ended goes on by padding alone, at no cost.
        pads = tf.one_hot(PAD, words, on_value=0.0, off_value=IMPOSSIBLE)
        gains = tf.where(ended[..., None], pads, gains)
        total = tf.reshape(scores[..., None] + gains, [batch, -1])
        longer = lengths + tf.cast(~ended, tf.int32)
        penalties = tf.repeat(_penalty(longer, length_penalty), words, axis=1)
        _, chosen = tf.math.top_k(total / penalties, beams)  # [B, K]
        parent, token = chosen // words, chosen % words
        scores = tf.gather(total, chosen, batch_dims=1)
        lengths = tf.gather(longer, parent, batch_dims=1)
        ended = tf.gather(ended, parent, batch_dims=1) | (token == END)
        flat = tf.reshape(first + parent, [-1])
        carried = tf.nest.map_structure(lambda x: tf.gather(x, flat), carried)
        shape = [batch, beams, 1, tf.shape(source)[1]]
        weights = tf.reshape(tf.gather(weights, flat), shape)
        tokens = tf.concat([tf.gather(tokens, parent, batch_dims=1), token[..., None]], axis=2)
        attention = tf.concat([tf.gather(attention, parent, batch_dims=1), weights], axis=2)
        return t + 1, token, ended, scores, lengths, tokens, attention, carried

    # At first all beams are the same: all but one must not be chosen.
    scores = tf.one_hot(tf.zeros([batch], tf.int32), beams, on_value=0.0, off_value=IMPOSSIBLE)
    start = (
        0,
        tf.fill([batch, beams], START),
        tf.repeat(tf.reduce_all(source == PAD, axis=1)[:, None], beams, axis=1),
        scores,
        tf.zeros([batch, beams], tf.int32),
        tf.zeros([batch, beams, 0], tf.int32),
        tf.zeros([batch, beams, 0, tf.shape(source)[1]]),
        carried,
    )
    shapes = (
        tf.TensorShape([]),
        *[tf.TensorShape([None, beams])] * 4,
        tf.TensorShape([None, beams, None]),
        tf.TensorShape([None, beams, None, None]),
        tf.nest.map_structure(lambda x: tf.TensorShape([None, *x.shape[1:]]), carried),
    )
    _, _, _, scores, lengths, tokens, attention, _ = tf.while_loop(
        going, step, start, shape_invariants=shapes
    )
    final = scores / _penalty(lengths, length_penalty)
    _, order = tf.math.top_k(final, beams)
    return Found(*(tf.gather(x, order, batch_dims=1) for x in (tokens, final, attention)))


def _penalty(lengths, alpha):
    """GNMT's length penalty, float32 like the lengths."""
    return tf.pow((5.0 + tf.cast(lengths, tf.float32)) / 6.0, alpha)


def _without_control(logits):
    """Padding and <s> are never translations."""
    words = tf.shape(logits)[-1]
    return logits + IMPOSSIBLE * (tf.one_hot(PAD, words) + tf.one_hot(START, words))
