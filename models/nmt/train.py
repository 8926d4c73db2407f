r"""Trains a translation model, plain, under `rnnmem.optimize`, or both ways.

    python -m models.nmt.train --demo           # both ways at once, as the demo
    python -m models.nmt.train --out=runs/nmt   # on the generated corpus
    python -m models.nmt.train --flagfile=models/nmt/flagfiles/multi30k.flags \
        --out=runs/multi30k
    python -m models.nmt.train --source=train.en.gz --target=train.de.gz \
        --text=subwords --vocabulary=8000 --units=512 --batch_tokens=4096
    python -m models.nmt.translate --model=runs/nmt --input=sentences.en

The same command goes on where it was killed, and the loss curve with it, bit
for bit: checkpoints hold weights, optimizer, step, position in the data and
random state. `--out` then holds

    config.json, weights.*, *.vocabulary   the best model so far, for translate
    checkpoints/                           the training's last two states
    losses.tsv                             every step's loss, with its bits
    summaries/                             the same and more, for TensorBoard
    lock                                   held while a training writes there

With `--rnnmem=both` two models of the same seed take each step on the same
batch, one after the other: their losses stand side by side, and the ratio of
their step times is one of paired runs.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import statistics
import sys
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from absl import app, logging

import rnnmem
from models.nmt import codec
from models.nmt.batching import Batches
from models.nmt.checkpoints import Checkpoints
from models.nmt.corpus import generate
from models.nmt.curve import Curve
from models.nmt.data import read_parallel
from models.nmt.distribution import LOST, Distribution
from models.nmt.knobs import FLAGS, MODEL_FLAGS, RATE_FLAGS, define_flags
from models.nmt.lock import lock
from models.nmt.seq2seq import Seq2SeqConfig
from models.nmt.trained import Trained
from models.nmt.training import (
    OPTIMIZED,
    PLAIN,
    Progress,
    Run,
    Stopped,
    Validation,
    goes_on,
    start_run,
    train,
)
from rnnmem.sizes import format_bytes


class Texts(NamedTuple):
    """Pairs of lines to learn from, to watch the learning, and to judge it."""

    train: Sequence[tuple[str, str]]
    validation: Sequence[tuple[str, str]]
    test: Sequence[tuple[str, str]]


def load_texts() -> Texts:
    """The generated corpus, or the files given; what has no file is held out of the training."""
    if not FLAGS.source and not FLAGS.target:
        corpus = generate(validation=FLAGS.heldout, heldout=FLAGS.heldout)
        return Texts(*([tuple(map(" ".join, pair)) for pair in part] for part in corpus))
    parts = []
    for name in ("source", "validation_source", "test_source"):
        paths = [FLAGS[flag].value for flag in (name, name.replace("source", "target"))]
        if bool(paths[0]) != bool(paths[1]):
            raise ValueError(
                f"--{name} and --{name.replace('source', 'target')}: one is given without the "
                "other, give both or none"
            )
        parts.append(read_parallel(*paths) if paths[0] else None)
    train, *others = parts
    for i, part in enumerate(others):
        if part is None:
            out = FLAGS.heldout
            if len(train) < 2 * out:
                raise ValueError(
                    f"{FLAGS.source}: --heldout={out} would keep most of {len(train)} pairs out "
                    "of the training; give more pairs, a smaller --heldout, or files for "
                    "validation and test"
                )
            others[i], train = train[-out:], train[:-out]
    return Texts(train, *others)


def encode(pairs: Sequence[tuple[str, str]], codecs: Sequence[codec.Codec]) -> list:
    """Ids of the pairs that are not too long for the training; the log says how many are."""
    ids = [tuple(c.encode(line) for c, line in zip(codecs, pair, strict=True)) for pair in pairs]
    kept = [pair for pair in ids if max(map(len, pair)) <= FLAGS.max_length + 1]
    if not kept:
        raise ValueError(f"none of {len(pairs)} pairs has at most --max_length={FLAGS.max_length}")
    if len(kept) < len(ids):
        logging.warning(
            "%d of %d pairs have more than --max_length=%d tokens on a side and are left out",
            *(len(ids) - len(kept), len(ids), FLAGS.max_length),
        )
    return kept


def compare(plain: Run, optimized: Run) -> bool:
    """Prints what the two runs needed; says whether losses and weights are the same bits."""
    same = sum(a == b for a, b in zip(plain.losses, optimized.losses, strict=True))
    pairs = zip(plain.model.variables, optimized.model.variables, strict=True)
    weights = all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in pairs)
    ratio = statistics.median(b / a for a, b in zip(plain.seconds, optimized.seconds, strict=True))
    saved = plain.peak_bytes / optimized.peak_bytes
    print(f"\n{'':24}{plain.name:>14}{optimized.name:>14}")
    peaks = "".join(f"{format_bytes(run.peak_bytes):>14}" for run in (plain, optimized))
    print(f"{'peak above resident':24}{peaks}   {saved:.2f} times less")
    times = "".join(f"{sum(run.seconds):12.1f} s" for run in (plain, optimized))
    print(f"{'time of all steps':24}{times}   {ratio:.2f} times a step, the median")
    tracing = "".join(f"{run.trace_seconds:12.1f} s" for run in (plain, optimized))
    print(f"{'time of tracing':24}{tracing}")
    print(f"losses:  {same} of {len(plain.losses)} are bit-identical")
    print(f"weights: {'bit-identical' if weights else 'NOT bit-identical'} after the last step")
    return same == len(plain.losses) and weights


def judge(trained: Trained, pairs: Sequence[tuple[str, str]]) -> None:
    """Translates the test by beam search, shows some of it, and scores it."""
    expected = [target for _, target in pairs]
    found = [
        hypotheses[0].text if hypotheses else ""
        for hypotheses in trained.search(
            [source for source, _ in pairs], FLAGS.beams, FLAGS.length_penalty
        )
    ]
    print(f"\nHeld-out sentences, translated with {FLAGS.beams} beams:")
    for pair, e, f in list(zip(pairs, expected, found, strict=True))[: FLAGS.samples]:
        print(f"  {pair[0]}\n    {'right' if e == f else 'WRONG'}  {f}")
        if e != f:
            print(f"    for    {e}")
    right = sum(e == f for e, f in zip(expected, found, strict=True))
    print(f"exactly right: {right} of {len(pairs)} ({100 * right / len(pairs):.0f} %)")
    print(trained.score(found, expected))


def main(_):
    """Reads the text, builds the model, trains or goes on training, judges and saves."""
    logging.set_verbosity(logging.WARNING)  # TensorFlow tells how long its saver took
    rnnmem.enable_cpu_memory_stats()
    mode = "both" if FLAGS.demo else FLAGS.rnnmem
    if FLAGS.deterministic or mode == "both":
        tf.config.experimental.enable_op_determinism()
    tf.random.set_seed(FLAGS.seed)
    out, now = pathlib.Path(FLAGS.out), Progress()
    try:
        where = Distribution(FLAGS.distribute, FLAGS.replicas)
        out.mkdir(parents=True, exist_ok=True)
        if where.is_chief:
            lock(out)
        texts = load_texts()
        lines = [[pair[side] for pair in texts.train] for side in (0, 1)]
        codecs = codec.learn(FLAGS.text, *lines, FLAGS.vocabulary, FLAGS.tokenize, FLAGS.joint)
        pairs = encode(texts.train, codecs)
        data = Batches(pairs, FLAGS.batch, FLAGS.batch_tokens, FLAGS.seed, FLAGS.shapes)
        sizes = [len(c) for c in codecs]
        config = Seq2SeqConfig(*sizes, **{name: FLAGS[name].value for name in MODEL_FLAGS})
        names = {"on": [OPTIMIZED], "off": [PLAIN], "both": [PLAIN, OPTIMIZED]}[mode]
        runs = [start_run(name, config, where) for name in names]
        run = runs[-1]
        trained = Trained(run.model, *codecs)
        weights = sum(variable.shape.num_elements() for variable in run.model.variables)
        print(f"{len(pairs)} pairs, {sizes[0]} and {sizes[1]} tokens, {weights} weights")

        fingerprint = {
            "model": dataclasses.asdict(config),
            "text": zlib.crc32(repr(pairs).encode()),
            **{name: FLAGS[name].value for name in ("batch", "batch_tokens", "shapes")},
            **{name: FLAGS[name].value for name in ("accumulate", *RATE_FLAGS)},
        }
        if FLAGS.decay == "cosine":  # which falls to 0 at the last step
            fingerprint["steps"] = FLAGS.steps
        checkpoints = Checkpoints(
            out / "checkpoints",
            fingerprint,
            model=run.model,
            optimizer=run.optimizer,
            scale=run.scale,
        )
        curve = None
        now.steps = FLAGS.steps
        if mode != "both":
            if FLAGS.restart and where.is_chief:
                checkpoints.clear()
            saved = checkpoints.restore()
            if saved is not None:
                now = Progress.of(saved)
                print(goes_on(now))
                now.steps = FLAGS.steps
            curve = Curve(out, now.step) if where.is_chief else None

        def save():
            if curve is not None:
                curve.flush()
                checkpoints.save(now.step, {**dataclasses.asdict(now), "position": now.position})

        def keep():
            if where.is_chief:
                trained.save(out)

        train(runs, data, Validation(trained, texts.validation), now, save, keep, curve)
    except Stopped as stopped:
        number = stopped.args[0]
        print(f"train: {signal.Signals(number).name} after step {now.step}", file=sys.stderr)
        print("train: the same command goes on from here", file=sys.stderr)
        sys.exit(128 + number)
    except LOST as error:
        print(f"train: a worker was lost after step {now.step} ({error.message})", file=sys.stderr)
        print("train: the same command, of all workers, goes on from here", file=sys.stderr)
        sys.exit(os.EX_TEMPFAIL)
    except (OSError, ValueError, rnnmem.RnnmemError) as error:
        sys.exit(f"train: {error}")

    identical = compare(*runs) if mode == "both" else None
    if mode != "both":
        if run.seconds:  # else all steps were taken before
            print(f"peak above resident: {format_bytes(run.peak_bytes)}")
        print(f"trained for {now.seconds:.0f} s, {now.cpu_seconds:.0f} s of all cores' time")
    if not where.is_chief:
        return
    if FLAGS.validate:
        print(f"best validation BLEU {now.best_bleu:.2f} after step {now.best_step}")
        trained = Trained.load(out)
    else:
        keep()
    judge(trained, texts.test)
    print(f"saved to {FLAGS.out}: python -m models.nmt.translate --model={FLAGS.out}")
    if identical is False:
        sys.exit("train: the two runs are not bit-identical")


if __name__ == "__main__":
    define_flags()
    try:
        app.run(main)
    except KeyboardInterrupt:  # before or behind the training, which takes care of itself
        sys.exit(128 + signal.SIGINT)
