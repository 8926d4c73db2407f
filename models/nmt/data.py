"""Parallel text: files of sentences in, batches of token ids out.

A text is two files, UTF-8 and plain or gzipped (`.gz`), whose n-th lines translate each other.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from models.nmt.corpus import Pair
from models.nmt.vocabulary import START, Vocabulary

BUCKET_WIDTH = 12  # tokens; lengths are padded up to a multiple of it


def read_lines(path: str | os.PathLike) -> list[str]:
    """Reads the lines of a text file; a name that ends in .gz means a gzipped one.

    Only a line feed ends a line, so that no odd Unicode separator shifts one side of a text.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is empty, not UTF-8 or not gzip; names file and line.
    """
    try:
        with (gzip.open if str(path).endswith(".gz") else open)(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: there is no such file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: not a sound gzip file ({error})") from error
    if not content.strip():
        raise ValueError(f"{path}: the file is empty, one sentence a line is needed")
    lines = []
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1):
        try:
            lines.append(line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r"))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: not UTF-8 (byte {error.start + 1} of the line, "
                f"{error.reason}); save the file as UTF-8"
            ) from error
    return lines


def split(line: str, tokenize: bool = False) -> tuple[str, ...]:
    """Splits a line into words: at blanks, and before and behind punctuation if `tokenize`."""
    return tuple(re.findall(r"\w+|[^\w\s]", line) if tokenize else line.split())


def read_pairs(
    source: str | os.PathLike,
    target: str | os.PathLike,
    max_length: int = 100,
    tokenize: bool = False,
) -> list[Pair]:
    """Reads a parallel text.

    A pair with nothing on a side, or with more than `max_length` words on one, is left out; the log
    says how many were.

    Args:
        source: the file of sentences to translate.
        target: the file of their translations.
        max_length: the most words of a sentence.
        tokenize: whether punctuation is split from words.

    Returns:
        The pairs in the order of the files.

    Raises:
        ValueError: see `read_lines`; or the line counts differ, or no pair is left.
    """
    lines = _read_both(source, target)
    pairs = [Pair(split(s, tokenize), split(t, tokenize)) for s, t in lines]
    whole = [pair for pair in pairs if pair.source and pair.target]
    kept = [pair for pair in whole if max(map(len, pair)) <= max_length]
    if not kept:
        raise ValueError(
            f"{source} and {target}: none of {len(pairs)} pairs has 1 to {max_length} words on "
            "either side; a greater max_length lets longer ones in"
        )
    if len(kept) < len(pairs):
        logging.warning(
            "%s and %s: %d pairs with an empty side and %d with more than %d words left out",
            *(source, target, len(pairs) - len(whole), len(whole) - len(kept), max_length),
        )
    return kept


def read_parallel(source: str | os.PathLike, target: str | os.PathLike) -> list[tuple[str, str]]:
    """Reads a parallel text as lines; the log says how many pairs have an empty side.

    Raises:
        ValueError: see `read_lines`; or the line counts differ, or every pair has an empty side.
    """
    lines = _read_both(source, target)
    kept = [(s, t) for s, t in lines if s.strip() and t.strip()]
    if not kept:
        raise ValueError(f"{source} and {target}: each of {len(lines)} pairs has an empty side")
    if len(kept) < len(lines):
        count = len(lines) - len(kept)
        logging.warning("%s and %s: %d pairs with an empty side left out", source, target, count)
    return kept


def _read_both(source, target):
    """Pairs of lines; raises ValueError where one file has more of them."""
    sides = [read_lines(source), read_lines(target)]
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"{source} has {len(sides[0])} lines and {target} has {len(sides[1])}: "
            "line n of one must be the translation of line n of the other"
        )
    return list(zip(*sides, strict=True))


def batches(
    pairs: Sequence[Pair],
    source_vocabulary: Vocabulary,
    target_vocabulary: Vocabulary,
    batch: int,
    seed: int | None = None,
) -> tf.data.Dataset:
    """Batches pairs of like length, padded up to the width of their bucket.

    Args:
        pairs: the sentences.
        source_vocabulary: numbers the words of the source.
        target_vocabulary: likewise.
        batch: pairs a batch.
        seed: for training: shuffles, goes on for ever, and every batch is full. None is for
            evaluation: every pair once, in buckets but otherwise in order.

    Returns:
        Source ids [B, S], each sentence ending in </s>, and target ids [B, T + 1], from <s> to
        </s>, int32; then padding. S = T + 1 is a multiple of `BUCKET_WIDTH`: there are as many
        shapes as buckets, and a train step is traced no more often than that.

    Raises:
        ValueError: `pairs` is empty, or `batch` is below 1.
    """
    if not pairs:
        raise ValueError("pairs is empty: there is nothing to make batches of")
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    source = [source_vocabulary.encode(pair.source) for pair in pairs]
    target = [[START, *target_vocabulary.encode(pair.target)] for pair in pairs]
    longest = max(map(len, source + target))
    # A bucket holds lengths below its boundary, hence the 1.
    boundaries = list(range(BUCKET_WIDTH + 1, longest + BUCKET_WIDTH + 1, BUCKET_WIDTH))

    dataset = tf.data.Dataset.from_tensor_slices(
        (tf.ragged.constant(source, tf.int32), tf.ragged.constant(target, tf.int32))
    ).map(lambda *ids: ids)  # a slice of a ragged tensor is a tensor: after a map, TensorFlow knows
    if seed is not None:
        dataset = dataset.shuffle(len(pairs), seed=seed).repeat()
    return dataset.bucket_by_sequence_length(
        lambda source, target: tf.maximum(tf.size(source), tf.size(target)),
        bucket_boundaries=boundaries,
        bucket_batch_sizes=[batch] * (len(boundaries) + 1),
        pad_to_bucket_boundary=True,
        drop_remainder=seed is not None,
    ).prefetch(2)
