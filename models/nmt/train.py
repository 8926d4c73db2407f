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
import functools
import math
import os
import pathlib
import signal
import statistics
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import tensorflow as tf
from absl import app, flags, logging
from rich import progress

import rnnmem
from models.nmt import codec
from models.nmt.adam import DECAYS, Adam, learning_rate
from models.nmt.batching import Batches, Position, in_order
from models.nmt.checkpoints import Checkpoints
from models.nmt.corpus import generate
from models.nmt.curve import Curve
from models.nmt.data import read_parallel
from models.nmt.distribution import KINDS, LOST, Distribution
from models.nmt.flag_groups import Groups
from models.nmt.lock import lock
from models.nmt.loss_scale import LossScale
from models.nmt.seq2seq import CHOICES, Seq2Seq, Seq2SeqConfig
from models.nmt.trained import Trained
from models.nmt.vocabulary import PAD, START
from rnnmem.sizes import format_bytes

FLAGS = flags.FLAGS
PLAIN, OPTIMIZED = "TensorFlow", "rnnmem"
MODEL_FLAGS = [
    field.name
    for field in dataclasses.fields(Seq2SeqConfig)
    if field.name not in ("source_vocabulary", "target_vocabulary")
]
RATE_FLAGS = ("learning_rate", "warmup", "decay", "clip")


def define_flags() -> None:
    """Defines the knobs; not on import, so that these programs can be imported side by side."""
    help_of = Groups()
    with help_of.group("The text"):
        flags.DEFINE_string("source", None, "sentences, one a line, or .gz (default: the corpus)")
        flags.DEFINE_string("target", None, "their translations, line by line")
        flags.DEFINE_string("validation_source", None, "to watch the training (default: held out)")
        flags.DEFINE_string("validation_target", None, "their translations")
        flags.DEFINE_enum("text", "words", codec.KINDS, "what tokens are")
        flags.DEFINE_integer("vocabulary", None, "most tokens a language (default: all)", 5)
    with help_of.group("The text", seldom=True):
        flags.DEFINE_string("test_source", None, "to judge the trained model (default: held out)")
        flags.DEFINE_string("test_target", None, "their translations")
        flags.DEFINE_integer("heldout", 400, "pairs for validation, and for judging", 1)
        flags.DEFINE_bool("tokenize", False, "split punctuation from words")
        flags.DEFINE_bool("joint", False, "one vocabulary for both languages")
        flags.DEFINE_integer("max_length", 60, "leave out pairs with more tokens than this", 1)
    with help_of.group("The batches"):
        flags.DEFINE_integer("batch", 64, "sentence pairs a batch", 1)
        flags.DEFINE_integer("batch_tokens", None, "tokens a batch, instead of --batch", 1)
    with help_of.group("The batches", seldom=True):
        flags.DEFINE_integer("shapes", 4, "lengths that sentences are padded to", 1)
        flags.DEFINE_integer("accumulate", 1, "batches whose gradients make a step", 1)
    with help_of.group("The model"):
        flags.DEFINE_integer("units", 128, "units of a layer and direction", 1)
        flags.DEFINE_integer("embedding", 128, "size of embeddings and read-out", 1)
        flags.DEFINE_enum("cell", "lstm", CHOICES["cell"], "what the layers are made of")
        flags.DEFINE_integer("encoder_layers", 1, "layers of the encoder", 1)
        flags.DEFINE_integer("decoder_layers", 1, "layers of the decoder", 1)
        flags.DEFINE_enum(
            "attention", "bahdanau", CHOICES["attention"], "before or behind the decoder"
        )
        flags.DEFINE_float("dropout", 0.0, "rate between layers", 0.0)
    with help_of.group("The model", seldom=True):
        flags.DEFINE_integer("bidirectional_layers", 0, "the encoder's lowest ones, both ways", 0)
        flags.DEFINE_bool("residual", False, "layers from the third on add their input")
        flags.DEFINE_bool("input_feeding", False, "the read-out goes into the next step")
        flags.DEFINE_float("coverage", 0.0, "weight of the coverage loss; 0: no coverage", 0.0)
        flags.DEFINE_enum("tied", "none", CHOICES["tied"], "which embeddings the projection shares")
        flags.DEFINE_float("recurrent_dropout", 0.0, "rate on the states, one mask a sentence", 0.0)
        flags.DEFINE_bool("variational", False, "one mask a sentence between layers, too")
        flags.DEFINE_float("label_smoothing", 0.0, "taken from the right token for all alike", 0.0)
        flags.DEFINE_enum("precision", "float32", CHOICES["precision"], "what is computed in")
    with help_of.group("The training"):
        flags.DEFINE_integer("steps", 700, "steps of the optimizer", 1)
        flags.DEFINE_float("learning_rate", 5e-3, "Adam's, at its greatest", 0.0)
        flags.DEFINE_integer("validate", 0, "steps between two BLEUs; 0: at the end", 0)
        flags.DEFINE_integer("patience", 0, "end after so many BLEUs, none of them better", 0)
    with help_of.group("The training", seldom=True):
        flags.DEFINE_float("minutes", None, "stop after so many, whatever the steps", 0.0)
        flags.DEFINE_integer("warmup", 0, "steps until the learning rate is greatest", 0)
        flags.DEFINE_enum("decay", "cosine", DECAYS, "how it falls from then on")
        flags.DEFINE_float("clip", 1.0, "bound on the global norm of the gradients", 0.0)
        flags.DEFINE_integer("seed", 1, "of weights, dropout and the order of the data")
    with help_of.group("What runs it"):
        flags.DEFINE_bool("demo", False, "train both ways on the generated corpus and compare")
        flags.DEFINE_enum(
            "rnnmem", "on", ["on", "off", "both"], "under rnnmem.optimize, or plain, or both"
        )
        flags.DEFINE_string("rnnmem_budget", None, "optimize's budget, e.g. 64MiB (default: none)")
        flags.DEFINE_float(
            "rnnmem_max_slowdown", 1.1, "optimize's bound on step time, without a budget"
        )
    with help_of.group("What runs it", seldom=True):
        flags.DEFINE_enum("distribute", "none", KINDS, "over devices, or over machines (TF_CONFIG)")
        flags.DEFINE_integer("replicas", None, "devices of --distribute=mirrored", 1)
        flags.DEFINE_bool("deterministic", True, "TensorFlow's op determinism: the same bits again")
    with help_of.group("What comes out"):
        flags.DEFINE_string("out", "runs/nmt", "folder for the model, checkpoints and curves")
        flags.DEFINE_bool("restart", False, "train afresh where --out holds a training")
        flags.DEFINE_integer("save", 200, "steps between two checkpoints", 1)
    with help_of.group("What comes out", seldom=True):
        flags.DEFINE_integer("report", 100, "steps between two reports", 1)
        flags.DEFINE_integer("beams", 5, "hypotheses of beam search at the end", 1)
        flags.DEFINE_float("length_penalty", 1.0, "of beam search", 0.0)
        flags.DEFINE_integer("samples", 8, "held-out sentences whose translation is shown", 0)
    help_of.show()


class Texts(NamedTuple):
    """Pairs of lines to learn from, to watch the learning, and to judge it."""

    train: Sequence[tuple[str, str]]
    validation: Sequence[tuple[str, str]]
    test: Sequence[tuple[str, str]]


@dataclasses.dataclass
class Run:
    """One training: its model, its train step, and what was seen of it since it began."""

    name: str
    model: Seq2Seq
    optimizer: Adam
    scale: LossScale
    step: Callable
    update: Callable | None = None  # where several batches make a step
    losses: list[bytes] = dataclasses.field(default_factory=list)  # their bits
    seconds: list[float] = dataclasses.field(default_factory=list)
    trace_seconds: float = 0.0
    peak_bytes: int = 0  # above what was resident before the step

    def trace(self, batch):
        """Traces the step for the shape of this batch, so that no step's time has it inside."""
        start = time.perf_counter()
        self.step.get_concrete_function(*batch, *schedule(1))
        self.trace_seconds += time.perf_counter() - start

    def take(self, batches, number):
        """One step on batches of (source, target); returns the loss."""
        device = "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"
        tf.config.experimental.reset_memory_stats(device)
        resident = tf.config.experimental.get_memory_info(device)["current"]
        start = time.perf_counter()
        for part, batch in enumerate(batches):
            loss = self.step(*batch, *schedule(number, part))
        if self.update is not None:
            loss = self.update(*schedule(number)[1:])
        loss = loss.numpy()
        self.seconds.append(time.perf_counter() - start)
        peak = tf.config.experimental.get_memory_info(device)["peak"]
        self.peak_bytes = max(self.peak_bytes, peak - resident)
        self.losses.append(loss.tobytes())
        return loss


def schedule(number: int, part: int = 0) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """What a step depends on besides its batch: seed of the dropout, learning rate, number."""
    rate = learning_rate(number, FLAGS.learning_rate, FLAGS.warmup, FLAGS.steps, FLAGS.decay)
    seed = tf.constant([FLAGS.seed, number * FLAGS.accumulate + part], tf.int32)
    return seed, tf.constant(rate, tf.float32), tf.constant(number, tf.float32)


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


def start_run(name: str, config: Seq2SeqConfig, where: Distribution) -> Run:
    """A model with fresh weights and its train step, plain or under `rnnmem.optimize`."""
    with where.scope():
        model = Seq2Seq(config)
        variables = model.trainable_variables
        optimizer = Adam(variables)
        scale = LossScale(config.precision)

    def gradients_of(source, target, seed):
        source, target = where.rows(source, target)
        with tf.GradientTape() as tape:
            total, tokens = model.loss(source, target, where.seed(seed))
            scaled = scale.up(total)
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(scaled, variables)]
        total, tokens, *gradients = where.total([total, tokens, *scale.down(gradients)])
        return total, tokens, gradients

    def apply(gradients, tokens, rate, number):
        gradients, _ = tf.clip_by_global_norm([g / tokens for g in gradients], FLAGS.clip)
        scale.apply_if_finite(gradients, lambda: optimizer.apply(gradients, rate, number))

    def train_step(source, target, seed, rate, number):
        total, tokens, gradients = gradients_of(source, target, seed)
        apply(gradients, tokens, rate, number)
        return total / tokens

    if FLAGS.accumulate == 1:
        return Run(name, model, optimizer, scale, decorated(name, where.everywhere(train_step)))

    with where.scope():
        # What is added is the same in every replica.
        new = functools.partial(
            tf.Variable, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )
        sums = [new(tf.zeros_like(v)) for v in variables]
        totals = new([0.0, 0.0])  # loss, tokens

    def add_step(source, target, seed, rate, number):
        total, tokens, gradients = gradients_of(source, target, seed)
        for variable, gradient in zip(sums, gradients, strict=True):
            variable.assign_add(gradient)
        totals.assign_add(tf.stack([total, tokens]))
        return total / tokens

    def update(rate, number):
        loss = totals[0] / totals[1]
        apply([tf.convert_to_tensor(s) for s in sums], totals[1], rate, number)
        for variable in (*sums, totals):
            variable.assign(tf.zeros_like(variable))
        return loss

    update = tf.function(where.everywhere(update))
    return Run(name, model, optimizer, scale, decorated(name, where.everywhere(add_step)), update)


def decorated(name: str, step: Callable) -> Callable:
    """The train step as it runs."""
    if name == PLAIN:
        return tf.function(step)
    options = {"budget": FLAGS.rnnmem_budget, "max_slowdown": FLAGS.rnnmem_max_slowdown}
    return rnnmem.optimize(step, **options)


class Validation:
    """Watches a model on sentences that it does not learn from."""

    def __init__(self, trained: Trained, pairs: Sequence[tuple[str, str]]):
        self.trained = trained
        self.pairs = pairs
        sides = [
            [c.encode(pair[i]) for pair in pairs]
            for i, c in enumerate((trained.source, trained.target))
        ]
        self.batches = []
        for chosen, source in in_order(sides[0], FLAGS.batch):
            ((order, target),) = in_order([[START, *sides[1][i]] for i in chosen], len(chosen))
            self.batches.append((tf.constant(source[order]), tf.constant(target)))
        self.sums = tf.function(trained.model.loss, reduce_retracing=True)

    def loss(self) -> float:
        """Nats a token."""
        sums = [[float(x) for x in self.sums(*batch)] for batch in self.batches]
        return sum(s for s, _ in sums) / sum(tokens for _, tokens in sums)

    def bleu(self) -> float:
        """BLEU of greedy translations."""
        found = self.trained.translate([source for source, _ in self.pairs])
        return self.trained.score(found, [target for _, target in self.pairs]).score


@dataclasses.dataclass
class Progress:
    """What a training that is resumed must know, besides weights and slots.

    The random state is among it: the dropout of a step is drawn from the seed and its number.
    """

    step: int = 0
    steps: int = 0  # when it was saved; may change where the learning rate does not depend on it
    position: Position = Position()
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    best_bleu: float = -1.0
    best_step: int = 0
    since_best: int = 0

    @classmethod
    def of(cls, saved: dict) -> Progress:
        """What a checkpoint says."""
        return cls(**{**saved, "position": Position(*saved["position"])})


def goes_on(now: Progress) -> str:
    """What is said of a training that is resumed.

    Raises:
        ValueError: it is already further than `--steps`.
    """
    if now.step > FLAGS.steps:
        raise ValueError(
            f"--steps={FLAGS.steps}: the training in {FLAGS.out} is at step {now.step} already; "
            "give more steps, another --out, or --restart to train afresh"
        )
    before = f" (--steps was {now.steps})" if now.steps not in (0, FLAGS.steps) else ""
    return f"resuming after step {now.step} of {FLAGS.steps}{before}"


class Stopped(Exception):
    """A signal asked the training to stop; its number is the argument."""


def train(
    runs: list[Run],
    data: Batches,
    validation: Validation,
    now: Progress,
    save: Callable[[], None],
    keep: Callable[[], None],
    curve: Curve | None,
) -> None:
    """Takes every step of every run, and reports as it goes.

    Args:
        runs: one, or several whose losses are to be compared.
        data: what is learnt.
        validation: what is watched.
        now: where the training stands; it is kept up to date.
        save: writes a checkpoint.
        keep: writes the model, which is the best so far.
        curve: is told all losses, unless it is None.

    Raises:
        Stopped: a signal came; the step that ran was finished.
    """
    signals = []
    handlers = {s: signal.signal(s, lambda n, _: signals.append(n)) for s in STOPPING}
    stream = data.from_position(now.position)
    shapes, tokens, start, cpu = set(), 0, time.perf_counter(), time.process_time()
    before, cpu_before = now.seconds, now.cpu_seconds
    pace: deque[float] = deque(maxlen=1000)
    columns = "".join(f"{'loss, ' + run.name:>18}" for run in runs)
    print(f"  step  {columns}   validation    BLEU  tokens/s        peak     left")
    bar = progress.Progress(
        progress.MofNCompleteColumn(),
        progress.BarColumn(),
        progress.TextColumn("{task.description}"),
    )
    try:
        with bar:
            task = bar.add_task(
                "tracing" if now.step < FLAGS.steps else "all steps are taken",
                total=FLAGS.steps,
                completed=now.step,
            )
            while now.step < FLAGS.steps and not _is_over(now):
                batches, known, began = [], len(shapes), time.perf_counter()
                for _ in range(FLAGS.accumulate):
                    position, batch = next(stream)
                    batches.append(batch)
                    if batch[1].shape not in shapes:
                        shapes.add(batch[1].shape)
                        for run in runs:
                            run.trace(batch)
                losses = [run.take(batches, now.step + 1) for run in runs]
                if not runs[0].scale.needed and not all(map(math.isfinite, losses)):
                    raise ValueError(
                        f"step {now.step + 1}: the loss is {losses[0]}; a smaller --learning_rate, "
                        "more --warmup or a smaller --clip may help. Checkpoints are of before"
                    )
                now.step, now.position = now.step + 1, position
                now.seconds = before + time.perf_counter() - start
                now.cpu_seconds = cpu_before + time.process_time() - cpu
                tokens += sum(int(tf.math.count_nonzero(b[1][:, 1:] != PAD)) for b in batches)
                rate = tokens * len(runs) / sum(sum(run.seconds) for run in runs)
                peak = max(run.peak_bytes for run in runs)
                if curve is not None:
                    curve.add(now.step, losses[0], tokens_per_second=rate, peak_bytes=peak)
                bar.update(
                    task,
                    advance=1,
                    description=f"loss {losses[0]:.3f}, {rate:.0f} tokens/s, "
                    f"peak {format_bytes(peak)}, {left(now, pace)} left",
                )
                last = now.step == FLAGS.steps or _is_over(now)
                score = None
                if FLAGS.validate and (now.step % FLAGS.validate == 0 or last):
                    score = validation.bleu()
                    _note(score, now, keep)
                if now.step % FLAGS.report == 0 or now.step == 1 or last or score is not None:
                    loss = validation.loss()
                    if curve is not None:
                        curve.validation(now.step, loss, score)
                    row = "".join(f"{loss:18.7f}" for loss in losses)
                    found = "" if score is None else f"{score:.2f}"
                    line = f"{now.step:6}  {row}{loss:13.3f}{found:>8}{rate:10.0f}"
                    print(f"{line}{format_bytes(peak):>12}{left(now, pace):>9}", flush=True)
                if now.step % FLAGS.save == 0 or last or signals:
                    save()
                if len(shapes) == known:  # what traced says nothing of the steps to come
                    pace.append(time.perf_counter() - began)
                if signals:
                    raise Stopped(signals[0])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


STOPPING = (signal.SIGINT, signal.SIGTERM)


def _is_over(now):
    """Whether time or patience are at their end."""
    late = FLAGS.minutes is not None and now.seconds >= 60 * FLAGS.minutes
    return late or (FLAGS.patience and now.since_best >= FLAGS.patience)


def _note(score, now, keep):
    """Keeps the model if it is the best so far."""
    now.since_best += 1
    if score > now.best_bleu:
        now.best_bleu, now.best_step, now.since_best = score, now.step, 0
        keep()


def left(now: Progress, pace: Collection[float]) -> str:
    """The time that the training still takes, as minutes and seconds.

    Args:
        now: where it stands.
        pace: seconds of the last steps that traced nothing; without any nobody knows the time.
    """
    if now.step >= FLAGS.steps:
        return "0:00"
    if not pace:
        return "?"
    seconds = (FLAGS.steps - now.step) * statistics.fmean(pace)
    if FLAGS.minutes is not None:
        seconds = min(seconds, max(0.0, 60 * FLAGS.minutes - now.seconds))
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


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
