"""Peaks and step times of recurrent train steps, plain and under rnnmem.

    python -m benchmarks.recurrent                              # all workloads and bounds
    python -m benchmarks.recurrent --workload=hand_lstm --steps=9 --explain
    python -m benchmarks.recurrent --json=benchmarks/results/recurrent-cpu.json

Each row is one workload under one bound on time, measured in a process of its own against the same
workload as TensorFlow runs it, in turn. A step is the loss and its gradients with respect to all
variables, which it returns, with op determinism on. Peaks are above what is resident before the
step; the time ratio is the median over the pairs.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import multiprocessing
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from absl import app, flags

import rnnmem
import rnnmem.keras
from models.nmt.benchmark import environment
from rnnmem.sizes import MIB

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Job:
    """One row.

    Attributes:
      workload: a name in ``WORKLOADS``.
      max_slowdown: the option of ``rnnmem.optimize``.
      steps: paired runs.
      goal_bytes: the peak to stay below, or None.
      goal_time: the factor of step time to stay below, or None.
      explain: whether the report is wanted.
    """

    workload: str
    max_slowdown: float = 1.1
    steps: int = 5
    goal_bytes: int | None = None
    goal_time: float | None = None
    explain: bool = False


@dataclasses.dataclass(frozen=True)
class Result:
    """What one row measured: peaks in bytes above resident, seconds a step, their ratio."""

    workload: str
    max_slowdown: float
    before_bytes: int
    after_bytes: int
    predicted_before_bytes: int | None
    predicted_after_bytes: int | None
    before_seconds: float
    after_seconds: float
    time_ratio: float
    bits_equal: bool
    largest_difference: float
    goal_bytes: int | None
    goal_time: float | None
    report: str = ""
    estimated_ratio: float | None = None


@dataclasses.dataclass(frozen=True)
class Workload:
    """A step as it is and optimised.

    Attributes:
      before: the step as TensorFlow runs it.
      after: the same with rnnmem.
      arguments: of both.
      results: what a call returned -> arrays that must be equal.
      explain: the report on the optimised step, or None where a model hides it.
      state: variables that a call changes, such as the seeds of dropout.
    """

    before: Callable
    after: Callable
    arguments: tuple
    results: Callable[[object], list[np.ndarray]]
    explain: Callable[[], object] | None = None
    state: tuple[tf.Variable, ...] = ()


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> tf.Tensor:
    """Fixed float32 numbers without structure."""
    return tf.constant(np.random.default_rng(seed).standard_normal(shape) * scale, tf.float32)


def _arrays(returned) -> list[np.ndarray]:
    return [one.numpy() for one in tf.nest.flatten(returned)]


def _paired(loss, variables, arguments, max_slowdown, state=(), **options) -> Workload:
    def step(*inputs):
        with tf.GradientTape() as tape:
            value = loss(*inputs)
        return value, tape.gradient(value, variables)

    before = tf.function(step, **options)
    after = rnnmem.optimize(tf.function(step, **options), max_slowdown=max_slowdown)
    return Workload(before, after, arguments, _arrays, lambda: after.explain(*arguments), state)


def _keras(layers, batch, time, features, max_slowdown, policy="float32", **options) -> Workload:
    import keras

    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(policy)
    model = keras.Sequential([keras.Input(batch_shape=(batch, time, features)), *layers(keras)])
    variables = [one.value for one in model.trainable_variables]

    def loss(x):
        return tf.reduce_mean(tf.square(tf.cast(model(x, training=True), tf.float32)))

    state = tuple(one.value for one in model.non_trainable_variables)
    x = numbers(batch, time, features)
    return _paired(loss, variables, (x,), max_slowdown, state, **options)


def keras_lstm(max_slowdown: float, policy: str = "float32", time: int = 400, **options):
    """One Keras LSTM that returns its sequences; batch 2, 256 features, 512 units."""

    def layers(keras):
        return [keras.layers.LSTM(512, return_sequences=True)]

    return _keras(layers, 2, time, 256, max_slowdown, policy, **options)


def keras_lstm_bfloat16(max_slowdown: float) -> Workload:
    """The same under mixed_bfloat16."""
    return keras_lstm(max_slowdown, "mixed_bfloat16")


def keras_lstm_jit_100(max_slowdown: float) -> Workload:
    """The same, compiled by XLA, with 100 time steps."""
    return keras_lstm(max_slowdown, time=100, jit_compile=True)


def keras_lstm_jit_400(max_slowdown: float) -> Workload:
    """The same, compiled by XLA, with 400 time steps."""
    return keras_lstm(max_slowdown, time=400, jit_compile=True)


def two_lstm_recurrent_dropout(max_slowdown: float) -> Workload:
    """Two Keras LSTM layers, recurrent dropout 0.1; 1000 steps, batch 16, 256 units."""

    def layers(keras):
        options = {"return_sequences": True, "recurrent_dropout": 0.1}
        return [keras.layers.LSTM(256, seed=seed, **options) for seed in (1, 2)]

    return _keras(layers, 16, 1000, 256, max_slowdown)


def hand_lstm(max_slowdown: float, time: int = 1000, known: bool = True) -> Workload:
    """An LSTM by hand, weights read in the body, loss on the last h; 1000 steps, batch 16."""
    batch, features, units = 16, 256, 512
    kernel = tf.Variable(numbers(features, 4 * units, scale=0.05))
    recurrent = tf.Variable(numbers(units, 4 * units, seed=1, scale=0.05))
    bias = tf.Variable(tf.zeros([4 * units]))

    def loss(x):
        steps = time if known else tf.shape(x)[0]

        def step(t, h, c):
            gates = x[t] @ kernel + h @ recurrent + bias
            i, f, g, o = tf.split(gates, 4, axis=-1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            return t + 1, tf.sigmoid(o) * tf.tanh(c), c

        zeros = tf.zeros([batch, units])
        _, h, _ = tf.while_loop(lambda t, *_: t < steps, step, (0, zeros, zeros))
        return tf.reduce_mean(tf.square(h))

    x = numbers(time, batch, features, seed=2)
    signature = [tf.TensorSpec([time if known else None, batch, features])]
    variables = [kernel, recurrent, bias]
    return _paired(loss, variables, (x,), max_slowdown, input_signature=signature)


def hand_lstm_4000(max_slowdown: float) -> Workload:
    """The same with 4000 steps."""
    return hand_lstm(max_slowdown, 4000)


def hand_lstm_16000(max_slowdown: float) -> Workload:
    """The same with 16000 steps."""
    return hand_lstm(max_slowdown, 16000)


def hand_lstm_unknown_1000(max_slowdown: float) -> Workload:
    """The same with 1000 steps, which only the run can tell."""
    return hand_lstm(max_slowdown, 1000, known=False)


def hand_lstm_unknown_4000(max_slowdown: float) -> Workload:
    """The same with 4000 steps, which only the run can tell."""
    return hand_lstm(max_slowdown, 4000, known=False)


def fit_nothing_to_save(max_slowdown: float) -> Workload:
    """``model.fit`` on dense layers, 200 small steps an epoch: a model without a loop."""
    import keras

    x, y = numbers(200 * 32, 64), numbers(200 * 32, 1, seed=1)

    def fitted(optimised):
        keras.utils.set_random_seed(0)
        dense = [keras.layers.Dense(128, activation="relu") for _ in range(3)]
        model = keras.Sequential([keras.Input((64,)), *dense, keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        if optimised:
            rnnmem.keras.optimize(model, max_slowdown=max_slowdown)
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(32)

        def epoch():
            return model.fit(data, epochs=1, verbose=0, shuffle=False).history["loss"]

        return epoch

    return Workload(
        fitted(False), fitted(True), (), lambda losses: [np.asarray(one) for one in losses]
    )


WORKLOADS: dict[str, Callable[[float], Workload]] = {
    build.__name__: build
    for build in (
        *(keras_lstm_bfloat16, keras_lstm, two_lstm_recurrent_dropout, hand_lstm),
        *(keras_lstm_jit_100, keras_lstm_jit_400, fit_nothing_to_save),
        *(hand_lstm_4000, hand_lstm_16000, hand_lstm_unknown_1000, hand_lstm_unknown_4000),
    )
}


def _nested(name: str, max_slowdown: float) -> Workload:
    from benchmarks import nested  # Keras takes seconds to import

    return _paired(*nested.PROGRAMS[name](), max_slowdown)


NESTED = ("ponder", "conv_lstm_2d", "scheduled_sampling", "soft_scheduled_sampling", "euler")
WORKLOADS |= {name: functools.partial(_nested, name) for name in NESTED}

ALL = (
    Job("keras_lstm_bfloat16", goal_bytes=45 * MIB, goal_time=1.0),
    Job("keras_lstm", goal_bytes=45 * MIB),
    Job("two_lstm_recurrent_dropout", 1.15, goal_bytes=220 * MIB, goal_time=1.15),
    Job("two_lstm_recurrent_dropout", 1.3, goal_bytes=160 * MIB, goal_time=1.3),
    Job("two_lstm_recurrent_dropout", 1.35, goal_bytes=70 * MIB, goal_time=1.35),
    Job("hand_lstm"),
    Job("hand_lstm", 1.3, goal_bytes=110 * MIB),
    Job("hand_lstm", 1.35, goal_bytes=40 * MIB, goal_time=1.35),
    Job("hand_lstm_4000", 1.35, goal_bytes=48 * MIB, goal_time=1.35),
    Job("hand_lstm_16000", 1.35, goal_time=1.35),
    Job("hand_lstm_unknown_1000", 1.35, goal_time=1.35),
    Job("hand_lstm_unknown_4000", 1.35, goal_time=1.35),
    Job("hand_lstm_unknown_1000", 2.0, goal_time=2.0),
    Job("hand_lstm_unknown_4000", 2.0),
    Job("keras_lstm_jit_100"),
    Job("keras_lstm_jit_400"),
    Job("fit_nothing_to_save", goal_time=1.05),
    *(Job(name, bound, goal_time=bound) for name in NESTED for bound in (1.1, 1.33)),
)


def measured(job: Job) -> Result:
    """Runs one row; meant for a process of its own."""
    rnnmem.enable_cpu_memory_stats()
    tf.config.experimental.enable_op_determinism()
    return compared(WORKLOADS[job.workload](job.max_slowdown), job)


def compared(
    workload: Workload, job: Job, alone: contextlib.AbstractContextManager | None = None
) -> Result:
    """Holds a workload against itself without rnnmem: bits, peaks, seconds.

    TensorFlow must count memory and be deterministic; the pairs run within ``alone``.
    """
    start = [one.numpy() for one in workload.state]
    first = workload.results(workload.before(*workload.arguments))
    for variable, value in zip(workload.state, start, strict=True):
        variable.assign(value)
    second = workload.results(workload.after(*workload.arguments))
    pairs = list(zip(first, second, strict=True))
    gaps = [np.max(np.abs(one.astype("float64") - other)) for one, other in pairs]
    equal = all(one.tobytes() == other.tobytes() for one, other in pairs)
    del first, second, pairs
    with alone or contextlib.nullcontext():
        pair = rnnmem.measure_pair(
            workload.before, workload.after, *workload.arguments, repeats=job.steps
        )
    explanation = workload.explain() if workload.explain else None
    return Result(
        workload=job.workload,
        max_slowdown=job.max_slowdown,
        before_bytes=pair.first.peak_bytes,
        after_bytes=pair.second.peak_bytes,
        predicted_before_bytes=explanation.plan.original_peak if explanation else None,
        predicted_after_bytes=explanation.plan.predicted_peak if explanation else None,
        before_seconds=pair.first.seconds,
        after_seconds=pair.second.seconds,
        time_ratio=pair.time_ratio,
        bits_equal=equal,
        largest_difference=float(max(gaps)),
        goal_bytes=job.goal_bytes,
        goal_time=job.goal_time,
        report=str(explanation) if job.explain and explanation else "",
        estimated_ratio=explanation.plan.slowdown if explanation else None,
    )


def run(jobs: list[Job]) -> Iterator[Result]:
    """Measures each job in a fresh process, one after the other."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context, max_tasks_per_child=1) as pool:
        for job in jobs:
            yield pool.submit(measured, job).result()


def row(result: Result) -> str:
    """A result as a line of a Markdown table."""
    goals = []
    if result.goal_bytes is not None:
        goals.append(f"{_mib(result.goal_bytes)}")
    if result.goal_time is not None:
        goals.append(f"{result.goal_time:.2f}x")
    bits = "equal" if result.bits_equal else f"off by up to {result.largest_difference:.2g}"
    cells = (
        result.workload,
        f"{result.max_slowdown:g}",
        *(_mib(size) for size in (result.before_bytes, result.predicted_before_bytes)),
        *(_mib(size) for size in (result.after_bytes, result.predicted_after_bytes)),
        f"{result.time_ratio:.2f}x",
        bits,
        ", ".join(goals),
    )
    return f"| {' | '.join(cells)} |"


HEAD = """\
| workload | max_slowdown | before | predicted | after | predicted | step time | bits | goal |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: |"""


def _mib(size: int | None) -> str:
    return "?" if size is None else f"{size / MIB:.1f} MiB"


def slopes(results: list[Result]) -> tuple[float, float] | None:
    """Bytes that one more iteration adds under XLA, before and after; None without both lengths."""
    by_name = {result.workload: result for result in results}
    short, long = by_name.get("keras_lstm_jit_100"), by_name.get("keras_lstm_jit_400")
    if short is None or long is None:
        return None
    return (
        (long.before_bytes - short.before_bytes) / 300,
        (long.after_bytes - short.after_bytes) / 300,
    )


def define_flags() -> None:
    """Defines the knobs; not on import, so that a child process defines none."""
    flags.DEFINE_multi_enum("workload", None, sorted(WORKLOADS), "which to run (default: all)")
    flags.DEFINE_multi_float("max_slowdown", None, "bounds on time in place of the usual ones")
    flags.DEFINE_integer("steps", 5, "paired runs whose median is reported", lower_bound=1)
    flags.DEFINE_bool("explain", False, "print what becomes of each saved blob, and why")
    flags.DEFINE_string("json", None, "write the figures to this file")


def jobs() -> list[Job]:
    """The rows that the flags ask for."""
    chosen = [job for job in ALL if not FLAGS.workload or job.workload in FLAGS.workload]
    if FLAGS.max_slowdown:
        names = dict.fromkeys(job.workload for job in chosen)
        chosen = [Job(name, bound) for name in names for bound in FLAGS.max_slowdown]
    return [dataclasses.replace(job, steps=FLAGS.steps, explain=FLAGS.explain) for job in chosen]


def main(_):
    """Runs the rows, prints the table and writes the JSON."""
    results = []
    print(HEAD, flush=True)
    for result in run(jobs()):
        results.append(result)
        print(row(result), flush=True)
    for result in results:
        print(result.report, end="")
    slope = slopes(results)
    if slope:
        print(
            f"XLA, bytes an iteration: {slope[0]:.0f} before, {slope[1]:.0f} after, "
            f"{slope[0] / max(slope[1], 1.0):.1f} times fewer"
        )
    if FLAGS.json:
        rows = [dataclasses.asdict(result) for result in results]
        for one in rows:
            del one["report"]
        key_flags = FLAGS.get_key_flags_for_module(__name__)
        document = {
            "results": rows,
            "xla_bytes_an_iteration": slope,
            **environment(),
            "flags": {flag.name: flag.value for flag in key_flags},
        }
        with open(FLAGS.json, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)


if __name__ == "__main__":
    define_flags()
    app.run(main)
