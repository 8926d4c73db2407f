"""Batches of about as many tokens each, in few shapes, in an order that can be taken up again.

A train step is traced, and planned for, once a shape. So lengths are padded up to one of a few
widths, chosen such that the text needs least padding, and every batch of a width has as many rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from models.nmt.vocabulary import START

SHUFFLED_AT_ONCE = 1_000_000  # pairs; a larger text is shuffled within a window of so many


class Position(NamedTuple):
    """Where a training stands in its data: batches of the current epoch that were taken."""

    epoch: int = 0
    batch: int = 0


def widths(lengths: Sequence[int], most: int) -> list[int]:
    """Chooses widths that the lengths are padded up to, such that all need the least padding.

    Exact, by dynamic programming over the distinct lengths.

    Args:
        lengths: of all sentences, at least one.
        most: how many widths there may be.

    Returns:
        The widths, rising; the last is the greatest length.
    """
    values, counts = np.unique(np.asarray(lengths), return_counts=True)
    up_to = np.concatenate([[0], np.cumsum(counts)])
    # cost[j]: tokens that the first j distinct lengths take, padded, in so many widths as rounds.
    cost = np.concatenate([[0], np.full(len(values), np.inf)])
    choices = []
    for _ in range(min(most, len(values))):
        table = cost[:, None] + (up_to[None, 1:] - up_to[:, None]) * values[None, :]
        table[np.arange(len(values) + 1)[:, None] > np.arange(len(values))[None, :]] = np.inf
        choices.append(np.argmin(table, axis=0))
        cost = np.concatenate([[0], np.min(table, axis=0)])
    chosen, end = [], len(values)
    for choice in reversed(choices):
        if end == 0:
            break
        chosen.append(int(values[end - 1]))
        end = int(choice[end - 1])
    return chosen[::-1]


class Batches:
    """The training data: pairs of ids, in batches."""

    def __init__(
        self,
        pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
        rows: int,
        tokens: int | None,
        seed: int,
        shapes: int = 8,
        rows_multiple: int = 8,
    ):
        """Fixes the widths and how many rows a batch of each has.

        Args:
            pairs: ids of source and target, both ending in </s>, neither with <s>.
            rows: of a batch, where no number of tokens is given.
            tokens: of a batch, padding included, on the longer side; or None.
            seed: of the order.
            shapes: the most widths.
            rows_multiple: rows of a batch are a multiple of this, where there are as many.

        Raises:
            ValueError: `pairs` is empty, or a batch has no room for the longest pair.
        """
        if not pairs:
            raise ValueError("pairs is empty: there is nothing to make batches of")
        self.seed = seed
        self._source = _ragged([s for s, _ in pairs])
        self._target = _ragged([[START, *t] for _, t in pairs])
        lengths = [max(len(s), len(t) + 1) for s, t in pairs]
        if tokens is not None and max(lengths) > tokens:
            raise ValueError(
                f"the longest pair has {max(lengths)} tokens, a batch only {tokens}: give a "
                "smaller --max_length or a greater --batch_tokens"
            )
        self.widths = widths(lengths, shapes)
        self.rows = [rows] * len(self.widths)
        if tokens is not None:
            self.rows = [_rounded_down(tokens // width, rows_multiple) for width in self.widths]

    def epoch(self, number: int) -> tf.data.Dataset:
        """Every pair once; the same number gives the same batches in the same order.

        Returns:
            Source ids [B, W], each sentence ending in </s>, and target ids [B, W], from <s> to
            </s>, int32; then padding. W is one of `widths`, and B goes with it: where the pairs of
            an epoch run out, rows of padding fill the batch.
        """
        count = self._source.nrows()
        data = tf.data.Dataset.from_tensor_slices((self._source, self._target))
        data = data.map(lambda *ids: ids)  # a slice of a ragged tensor becomes a tensor
        data = data.shuffle(
            min(int(count), SHUFFLED_AT_ONCE),
            seed=int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0]),
            reshuffle_each_iteration=False,
        )
        data = data.bucket_by_sequence_length(
            lambda source, target: tf.maximum(tf.size(source), tf.size(target)),
            bucket_boundaries=[width + 1 for width in self.widths],  # a bucket ends below it
            bucket_batch_sizes=[*self.rows, 1],
            pad_to_bucket_boundary=True,
        )
        return data.map(self._filled).prefetch(4)

    def from_position(self, position: Position) -> Iterator[tuple[Position, tuple]]:
        """The batches from a position on, for ever.

        Yields:
            The position behind the batch, and the batch.
        """
        epoch, done = position
        while True:
            for batch in self.epoch(epoch).skip(done):
                done += 1
                yield Position(epoch, done), batch
            epoch, done = epoch + 1, 0

    def _filled(self, source, target):
        """Adds rows of padding up to what a batch of this width has."""
        matches = tf.cast(tf.constant(self.widths) == tf.shape(source)[1], tf.int32)
        rows = tf.reduce_sum(matches * tf.constant(self.rows))
        more = rows - tf.shape(source)[0]
        return tuple(tf.pad(ids, [[0, more], [0, 0]]) for ids in (source, target))


def in_order(
    ids: Sequence[Sequence[int]], rows: int, widths_of: int = 8
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Batches sentences of like length, for evaluation and translation.

    Args:
        ids: token ids of each sentence.
        rows: sentences a batch; the last one has fewer.
        widths_of: lengths are padded up to a multiple of this.

    Yields:
        Which sentences, and their ids, int32 [B, W].
    """
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    for start in range(0, len(order), rows):
        chosen = order[start : start + rows]
        longest = max(1, max(len(ids[i]) for i in chosen))
        batch = np.zeros([len(chosen), -(-longest // widths_of) * widths_of], np.int32)
        for row, i in enumerate(chosen):
            batch[row, : len(ids[i])] = ids[i]
        yield chosen, batch


def _ragged(rows):
    """Rows of ids as one tensor; `tf.ragged.constant` takes seconds for a large text."""
    values = np.fromiter(itertools.chain.from_iterable(rows), np.int32)
    return tf.RaggedTensor.from_row_lengths(values, [len(row) for row in rows])


def _rounded_down(rows, multiple):
    return rows // multiple * multiple or max(1, rows)
