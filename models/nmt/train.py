r"""Trains the translation model, as TensorFlow runs it, under `rnnmem.optimize`, or both ways.

    python -m models.nmt.train --demo              # both ways at once, side by side: the demo
    python -m models.nmt.train --out=runs/nmt      # on the generated corpus, under rnnmem.optimize
    python -m models.nmt.train --source=train.en.gz --target=train.de.gz --tokenize \
        --vocabulary=8000 --units=512 --embedding=256 --steps=20000
    python -m models.nmt.translate --model=runs/nmt --input=sentences.en

With `--rnnmem=both` two models of the same seed take each step on the same batch, one after the
other: their losses stand side by side, and the ratio of their step times is one of paired runs.
"""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import tensorflow as tf
from absl import app, flags, logging
from rich import progress

import rnnmem
from models.nmt.corpus import Corpus, Pair, generate
from models.nmt.data import batches, read_pairs
from models.nmt.model import ModelConfig, Translator
from models.nmt.trained import Trained
from models.nmt.vocabulary import PAD, Vocabulary
from rnnmem.sizes import format_bytes

FLAGS = flags.FLAGS
PLAIN, OPTIMIZED = "TensorFlow", "rnnmem"


def define_flags() -> None:
    """Defines the knobs; not on import, so that these programs can be imported side by side."""
    flags.DEFINE_bool("demo", False, "train both ways on the generated corpus and compare")
    # the text
    flags.DEFINE_string("source", None, "sentences, one a line, .gz as well (default: the corpus)")
    flags.DEFINE_string("target", None, "their translations, line by line")
    flags.DEFINE_bool("tokenize", False, "split punctuation from words in --source and --target")
    flags.DEFINE_integer("vocabulary", None, "most tokens a language (default: all)", lower_bound=5)
    flags.DEFINE_integer(
        "max_length", 60, "leave out pairs with more words than this", lower_bound=1
    )
    flags.DEFINE_integer("heldout", 400, "pairs for validation, and for judging", lower_bound=1)
    # the model
    flags.DEFINE_integer("units", 128, "units of encoder and decoder", lower_bound=1)
    flags.DEFINE_integer("embedding", 128, "size of the word embeddings", lower_bound=1)
    # the training
    flags.DEFINE_integer("steps", 700, "steps of the optimizer", lower_bound=1)
    flags.DEFINE_integer("batch", 64, "sentence pairs a step", lower_bound=1)
    flags.DEFINE_float("learning_rate", 5e-3, "Adam's, falls to 0 along half a cosine", 0.0)
    flags.DEFINE_float("clip", 1.0, "bound on the global norm of the gradients", 0.0)
    flags.DEFINE_integer("seed", 1, "of weights and of the order of the data")
    # what runs it
    flags.DEFINE_enum(
        "rnnmem", "on", ["on", "off", "both"], "under rnnmem.optimize, or plain, or both"
    )
    flags.DEFINE_string(
        "rnnmem_budget", None, "optimize's budget, e.g. 64MiB (default: least memory)"
    )
    flags.DEFINE_float(
        "rnnmem_max_slowdown", 1.1, "optimize's bound on step time, without a budget"
    )
    # what comes out
    flags.DEFINE_string("out", "runs/nmt", "folder for weights, vocabularies and configuration")
    flags.DEFINE_integer("report", 100, "steps between two reports", lower_bound=1)
    flags.DEFINE_integer(
        "samples", 8, "held-out sentences whose translation is shown", lower_bound=0
    )


@dataclasses.dataclass
class Run:
    """One training: its model, its train step, and what was seen of it so far."""

    name: str
    model: Translator
    step: Callable
    losses: list[bytes] = dataclasses.field(default_factory=list)  # their bits
    seconds: list[float] = dataclasses.field(default_factory=list)
    trace_seconds: float = 0.0
    peak_bytes: int = 0  # above what was resident before the step

    def trace(self, batch):
        """Traces the step for the shape of this batch, so that no step's time has it inside."""
        start = time.perf_counter()
        self.step.get_concrete_function(*batch)
        self.trace_seconds += time.perf_counter() - start

    def take(self, batch):
        """One step on (source, target); returns the loss."""
        device = "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"
        tf.config.experimental.reset_memory_stats(device)
        resident = tf.config.experimental.get_memory_info(device)["current"]
        start = time.perf_counter()
        loss = self.step(*batch).numpy()
        self.seconds.append(time.perf_counter() - start)
        peak = tf.config.experimental.get_memory_info(device)["peak"]
        self.peak_bytes = max(self.peak_bytes, peak - resident)
        self.losses.append(loss.tobytes())
        return loss


def load_corpus() -> Corpus:
    """The generated corpus, or the files given, whose last pairs are kept out of the training."""
    if not FLAGS.source and not FLAGS.target:
        return generate(validation=FLAGS.heldout, heldout=FLAGS.heldout)
    if not FLAGS.source or not FLAGS.target:
        raise ValueError("--source and --target: one is given without the other, give both or none")
    pairs = read_pairs(FLAGS.source, FLAGS.target, FLAGS.max_length, FLAGS.tokenize)
    out = FLAGS.heldout
    if len(pairs) < 3 * out:
        raise ValueError(
            f"{FLAGS.source}: --heldout={out} would keep {2 * out} of {len(pairs)} pairs out of "
            f"the training, most of them; give at least {3 * out} pairs or a smaller --heldout"
        )
    return Corpus(tuple(pairs[: -2 * out]), tuple(pairs[-2 * out : -out]), tuple(pairs[-out:]))


def start_run(name: str, config: ModelConfig) -> Run:
    """A model with fresh weights and its train step, plain or under `rnnmem.optimize`."""
    model = Translator(config)
    variables = model.trainable_variables
    rate = tf.keras.optimizers.schedules.CosineDecay(FLAGS.learning_rate, FLAGS.steps)
    optimizer = tf.keras.optimizers.Adam(rate)
    optimizer.build(variables)

    def train_step(source, target):
        with tf.GradientTape() as tape:
            loss = model.loss(source, target)
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), FLAGS.clip)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    if name == PLAIN:
        return Run(name, model, tf.function(train_step))
    options = {"budget": FLAGS.rnnmem_budget, "max_slowdown": FLAGS.rnnmem_max_slowdown}
    return Run(name, model, rnnmem.optimize(train_step, **options))


def train(runs: list[Run], data: tf.data.Dataset, validation_loss: Callable[[], float]) -> None:
    """Takes every step of every run, and reports as it goes."""
    print("  step  " + "".join(f"{'loss, ' + run.name:>18}" for run in runs) + "   validation")
    shapes, tokens, start = set(), 0, time.perf_counter()
    with progress.Progress(
        progress.MofNCompleteColumn(),
        progress.BarColumn(),
        progress.TextColumn("{task.description}"),
        progress.TimeRemainingColumn(),
        progress.TextColumn("left"),
    ) as bar:
        task = bar.add_task("tracing", total=FLAGS.steps)
        for step, batch in enumerate(data.take(FLAGS.steps), 1):
            if batch[1].shape not in shapes:
                shapes.add(batch[1].shape)
                for run in runs:
                    run.trace(batch)
            losses = [run.take(batch) for run in runs]
            tokens += int(tf.math.count_nonzero(batch[1] != PAD)) * len(runs)
            rate = tokens / (time.perf_counter() - start)
            bar.update(task, advance=1, description=f"loss {losses[0]:.3f}, {rate:.0f} tokens/s")
            if step % FLAGS.report == 0 or step in (1, FLAGS.steps):
                row = "".join(f"{loss:18.7f}" for loss in losses)
                print(f"{step:6}  {row}{validation_loss():13.3f}")


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


def show_translations(trained: Trained, pairs: Sequence[Pair]) -> None:
    """Translates the held-out sentences, shows some, and counts those that are exactly right."""
    expected = [" ".join(pair.target) for pair in pairs]
    found = trained.translate([" ".join(pair.source) for pair in pairs])
    print("\nHeld-out sentences, translated greedily:")
    for pair, e, f in list(zip(pairs, expected, found, strict=True))[: FLAGS.samples]:
        print(f"  {' '.join(pair.source)}\n    {'right' if e == f else 'WRONG'}  {f}")
        if e != f:
            print(f"    for    {e}")
    right = sum(e == f for e, f in zip(expected, found, strict=True))
    print(f"exactly right: {right} of {len(pairs)} ({100 * right / len(pairs):.0f} %)")


def main(_):
    """Trains, compares, saves and translates."""
    logging.set_verbosity(logging.WARNING)  # TensorFlow tells how long its saver took
    rnnmem.enable_cpu_memory_stats()
    try:
        pathlib.Path(FLAGS.out).mkdir(parents=True, exist_ok=True)
        corpus = load_corpus()
    except (OSError, ValueError) as error:
        sys.exit(f"train: {error}")
    mode = "both" if FLAGS.demo else FLAGS.rnnmem
    if mode == "both":
        tf.config.experimental.enable_op_determinism()
    tf.random.set_seed(FLAGS.seed)

    vocabularies = [
        Vocabulary.of((pair[side] for pair in corpus.train), FLAGS.vocabulary) for side in (0, 1)
    ]
    sizes = [len(vocabulary) for vocabulary in vocabularies]
    config = ModelConfig(*sizes, FLAGS.units, FLAGS.embedding, FLAGS.seed)
    training = batches(corpus.train, *vocabularies, FLAGS.batch, FLAGS.seed)
    validation = batches(corpus.validation, *vocabularies, FLAGS.batch)

    names = {"on": [OPTIMIZED], "off": [PLAIN], "both": [PLAIN, OPTIMIZED]}[mode]
    try:
        runs = [start_run(name, config) for name in names]
        model = runs[-1].model
        loss = tf.function(model.loss, reduce_retracing=True)
        weights = sum(variable.shape.num_elements() for variable in model.variables)
        print(f"{len(corpus.train)} pairs, {sizes[0]} and {sizes[1]} tokens, {weights} weights")
        train(runs, training, lambda: statistics.fmean(loss(*b).numpy() for b in validation))
    except rnnmem.RnnmemError as error:
        sys.exit(f"train: {error}")

    identical = compare(*runs) if mode == "both" else None
    if mode != "both":
        print(f"peak above resident: {format_bytes(runs[0].peak_bytes)}")
    trained = Trained(model, *vocabularies, bool(FLAGS.source) and FLAGS.tokenize)
    trained.save(FLAGS.out)
    show_translations(trained, corpus.heldout)
    print(f"saved to {FLAGS.out}: python -m models.nmt.translate --model={FLAGS.out}")
    if identical is False:
        sys.exit("train: the two runs are not bit-identical")


if __name__ == "__main__":
    define_flags()
    app.run(main)
