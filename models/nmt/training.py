"""Training runs: a model with its train step, the loop over all steps, and what watches it."""

from __future__ import annotations

import dataclasses
import functools
import math
import signal
import statistics
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence

import tensorflow as tf
from rich import progress

import rnnmem
from models.nmt.adam import Adam, learning_rate
from models.nmt.batching import Batches, Position, in_order
from models.nmt.curve import Curve
from models.nmt.distribution import Distribution
from models.nmt.knobs import FLAGS
from models.nmt.loss_scale import LossScale
from models.nmt.seq2seq import Seq2Seq, Seq2SeqConfig
from models.nmt.trained import Trained
from models.nmt.vocabulary import PAD, START
from rnnmem.sizes import format_bytes

PLAIN, OPTIMIZED = "TensorFlow", "rnnmem"
STOPPING = (signal.SIGINT, signal.SIGTERM)


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
