"""Peaks and step times of whole train steps, plain and under rnnmem.

    python -m benchmarks.whole_step                       # all workloads, under both bounds
    python -m benchmarks.whole_step --workload=transformer --max_slowdown=1.33 --pairs=9 --explain
    python -m benchmarks.whole_step --json=benchmarks/results/whole-step-cpu.json

A step is the loss and its gradients, which it returns, with op determinism on; what a step leaves
in its variables counts as a result too. Peaks are above what is resident, steps run in turn, and
the factor of time is the median over the pairs.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from absl import app, flags

import rnnmem
import rnnmem.keras
from benchmarks.recurrent import numbers
from models.nmt.benchmark import environment
from models.nmt.workloads import WORKLOADS as TRANSLATION
from models.nmt.workloads import make_batch, make_step
from rnnmem.sizes import MIB

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Workload:
    """A step as it is and optimised.

    Attributes:
      before: the step as TensorFlow runs it.
      after: the same with rnnmem.
      arguments: of both.
      explain: the report on the optimised step, or None where a model hides it.
      state: variables that a call of the one changes, and of the other.
    """

    before: Callable
    after: Callable
    arguments: tuple
    explain: Callable[[], object] | None = None
    state: tuple[list[tf.Variable], ...] = ([], [])


@dataclasses.dataclass(frozen=True)
class Result:
    """What one row measured: bytes above resident, seconds a step, and whether all bits agree."""

    workload: str
    max_slowdown: float
    before_bytes: int
    after_bytes: int
    before_seconds: float
    after_seconds: float
    time_ratio: float
    bits_equal: bool
    report: str = ""


def weights(*shapes: tuple[int, ...], scale: float = 0.08) -> list[tf.Variable]:
    """Variables of these shapes."""
    return [
        tf.Variable(numbers(*shape, seed=seed, scale=scale)) for seed, shape in enumerate(shapes)
    ]


def paired(loss: Callable, variables: list, arguments: tuple, options: dict[str, Any]) -> Workload:
    """A step that gives a loss and its gradients, plain and optimised."""

    def step(*inputs):
        with tf.GradientTape() as tape:
            value = loss(*inputs)
        gradients = tape.gradient(value, variables)
        return value, [tf.convert_to_tensor(one) for one in gradients]

    after = rnnmem.optimize(tf.function(step), **options)
    return Workload(tf.function(step), after, arguments, lambda: after.explain(*arguments))


def transformer(
    options: dict[str, Any], batch: int = 8, length: int = 256, width: int = 256, layers: int = 8
) -> Workload:
    """A pre-norm Transformer of 8 layers; batch 8, 256 tokens, 256 units, 8 heads; no loop."""
    heads = 8
    shapes = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
    variables = weights(*shapes * layers)

    def norm(x):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-6)

    def block(x, qkv, out, grow, shrink):
        split = tf.reshape(norm(x) @ qkv, [batch, length, 3, heads, width // heads])
        q, k, v = tf.unstack(tf.transpose(split, [2, 0, 3, 1, 4]))
        scores = tf.nn.softmax(q @ tf.transpose(k, [0, 1, 3, 2]) / (width // heads) ** 0.5)
        mixed = tf.transpose(scores @ v, [0, 2, 1, 3])
        x = x + tf.reshape(mixed, [batch, length, width]) @ out
        return x + tf.nn.gelu(norm(x) @ grow) @ shrink

    def loss(x):
        for layer in range(layers):
            x = block(x, *variables[4 * layer : 4 * layer + 4])
        return tf.reduce_mean(tf.square(x))

    return paired(loss, variables, (numbers(batch, length, width),), options)


def small_transformer(options: dict[str, Any]) -> Workload:
    """The same with 6 layers; batch 4, 160 tokens, 128 units."""
    return transformer(options, 4, 160, 128, 6)


def conv_lstm(
    options: dict[str, Any], frames: int = 64, size: int = 48, channels: int = 32, units: int = 64
) -> Workload:
    """Three convolutions, 3x3, 32 channels, gelu, over 64 frames of 48x48 in front of an LSTM."""
    shapes = [(3, 3, 3, channels), *[(3, 3, channels, channels)] * 2]
    kernels = weights(*shapes)
    kernel, recurrent, readout = weights((channels, 4 * units), (units, 4 * units), (units, 1))

    def loss(x):
        for one in kernels:
            x = tf.nn.gelu(tf.nn.conv2d(x, one, 1, "SAME"))
        given = tf.reduce_mean(x, [1, 2])[:, None]

        def step(t, h, c):
            i, f, g, o = tf.split(given[t] @ kernel + h @ recurrent, 4, axis=-1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            return t + 1, tf.sigmoid(o) * tf.tanh(c), c

        zeros = tf.zeros([1, units])
        _, h, _ = tf.while_loop(lambda t, *_: t < frames, step, (0, zeros, zeros))
        return tf.reduce_mean(tf.square(h @ readout - 1.0))

    variables = [*kernels, kernel, recurrent, readout]
    return paired(loss, variables, (numbers(frames, size, size, 3),), options)


def begin_anew() -> None:
    """Resets Keras' random numbers, and its counts of layers: sums are sorted by their names."""
    import keras

    keras.utils.clear_session()
    keras.utils.set_random_seed(0)


def resnet50(options: dict[str, Any], size: int = 224, batch: int = 8) -> Workload:
    """Keras' ResNet-50 at 224, batch 8, trained by ``train_on_batch`` under ``keras.optimize``."""
    import keras

    def model(optimised: bool):
        begin_anew()
        built = keras.applications.ResNet50(weights=None, input_shape=(size, size, 3), classes=100)
        built.compile(optimizer="sgd", loss="sparse_categorical_crossentropy")
        if optimised:
            rnnmem.keras.optimize(built, **options)
        return built

    x = numbers(batch, size, size, 3)
    y = tf.constant(np.random.default_rng(1).integers(0, 100, batch))
    models = {optimised: model(optimised) for optimised in (False, True)}

    state = [[one.value for one in models[optimised].weights] for optimised in (False, True)]
    before, after = models[False].train_on_batch, models[True].train_on_batch
    return Workload(before, after, (x, y), state=tuple(state))


def small_resnet50(options: dict[str, Any]) -> Workload:
    """The same at 64, batch 8."""
    return resnet50(options, 64)


def language_model(options: dict[str, Any], loss: Callable[..., tf.Tensor]) -> Workload:
    """A GRU with tied embeddings, of Penn Treebank's sizes; batch 20, 35 tokens, 10000 words."""
    batch, time, units, words = 20, 35, 200, 10000
    shapes = [(words, units), (units, 3 * units), (units, 3 * units), (3 * units,), (words,)]
    variables = weights(*shapes)
    table, inner, outer, bias, words_bias = variables

    def cell(x, h):
        update, reset, new = tf.split(x @ outer + bias, 3, 1)
        update_h, reset_h, new_h = tf.split(h @ inner, 3, 1)
        gate = tf.sigmoid(update + update_h)
        return gate * h + (1 - gate) * tf.tanh(new + tf.sigmoid(reset + reset_h) * new_h)

    def mean_loss(tokens, labels):
        x = tf.gather(table, tf.transpose(tokens))
        states = tf.TensorArray(tf.float32, time)

        def step(t, h, states):
            h = cell(x[t], h)
            return t + 1, h, states.write(t, h)

        zeros = tf.zeros([batch, units])
        *_, states = tf.while_loop(lambda t, *_: t < time, step, (0, zeros, states))
        hidden = tf.reshape(states.stack(), [-1, units])
        logits = tf.matmul(hidden, table, transpose_b=True) + words_bias
        return loss(logits, tf.reshape(tf.transpose(labels), [-1]))

    random = np.random.default_rng(0)
    sentences = [tf.constant(random.integers(0, words, [batch, time]), tf.int32) for _ in range(2)]
    return paired(mean_loss, variables, tuple(sentences), options)


def language_model_smoothed(options: dict[str, Any]) -> Workload:
    """The same with label smoothing by a log-softmax."""

    def loss(logits, labels):
        logs = tf.nn.log_softmax(logits)
        picked = tf.gather(logs, labels, batch_dims=1)
        return -tf.reduce_mean(0.9 * picked + 0.1 * tf.reduce_mean(logs, 1))

    return language_model(options, loss)


def language_model_sparse(options: dict[str, Any]) -> Workload:
    """The same with a masked sparse cross entropy."""

    def loss(logits, labels):
        real = tf.cast(labels > 3, tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return tf.reduce_sum(losses * real) / tf.reduce_sum(real)

    return language_model(options, loss)


def keras_language_model(options: dict[str, Any]) -> Workload:
    """A Keras model of 20 x 35 tokens and 10000 words, with an accuracy, by ``train_on_batch``."""
    import keras

    batch, time, units, words = 20, 35, 200, 10000

    def model(optimised: bool):
        begin_anew()
        layers = [
            keras.layers.Embedding(words, units),
            keras.layers.GRU(units, return_sequences=True),
            keras.layers.Dense(words),
        ]
        built = keras.Sequential(layers)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        built.compile("sgd", loss, metrics=["accuracy"], jit_compile=False)
        if optimised:
            rnnmem.keras.optimize(built, **options)
        return built

    random = np.random.default_rng(0)
    tokens = [tf.constant(random.integers(0, words, [batch, time]), tf.int32) for _ in range(2)]
    models = [model(optimised) for optimised in (False, True)]
    for one in models:
        one.build((batch, time))
    state = tuple([one.value for one in model.weights] for model in models)
    return Workload(models[0].train_on_batch, models[1].train_on_batch, tuple(tokens), state=state)


def translation(options: dict[str, Any], name: str) -> Workload:
    """A step of the translation models, of `models.nmt.workloads`."""
    workload = TRANSLATION[name]
    step, batch = make_step(workload.config), make_batch(workload)
    after = rnnmem.optimize(tf.function(step), **options)
    return Workload(tf.function(step), after, batch, lambda: after.explain(*batch))


WORKLOADS: dict[str, Callable[..., Workload]] = {
    "transformer": transformer,
    "small_transformer": small_transformer,
    "conv_lstm": conv_lstm,
    "resnet50": resnet50,
    "small_resnet50": small_resnet50,
    "language_model_smoothed": language_model_smoothed,
    "language_model_sparse": language_model_sparse,
    "keras_language_model": keras_language_model,
    "multi30k": functools.partial(translation, name="multi30k"),
    "attention-50": functools.partial(translation, name="attention-50"),
    "attention-150": functools.partial(translation, name="attention-150"),
    "attention-150-vocabulary-32000": functools.partial(
        translation, name="attention-150-vocabulary-32000"
    ),
}
"""What builds each; its docstring is its description."""


def original(name: str) -> tuple[Callable, tuple]:
    """A workload's step as TensorFlow runs it, and its arguments."""
    workload = WORKLOADS[name]({"max_slowdown": 1.1})
    return workload.before, workload.arguments


def measured(name: str, pairs: int, explain: bool, options: dict[str, Any]) -> Result:
    """Builds one workload in this process and measures it."""
    rnnmem.enable_cpu_memory_stats()
    tf.config.experimental.enable_op_determinism()
    workload = WORKLOADS[name](options)
    equal = True
    for _ in range(2):
        found = []
        for fn, state in zip((workload.before, workload.after), workload.state, strict=True):
            results = [*tf.nest.flatten(fn(*workload.arguments)), *state]
            found.append([np.asarray(one).tobytes() for one in results])
            del results
        equal = equal and found[0] == found[1]
    pair = rnnmem.measure_pair(workload.before, workload.after, *workload.arguments, repeats=pairs)
    return Result(
        name,
        options["max_slowdown"],
        pair.first.peak_bytes,
        pair.second.peak_bytes,
        pair.first.seconds,
        pair.second.seconds,
        pair.time_ratio,
        equal,
        str(workload.explain()) if explain and workload.explain is not None else "",
    )


HEAD = f"{'workload':20}{'bound':>6}{'before':>12}{'after':>12}{'saved':>8}{'time':>8}  bits"


def row(result: Result) -> str:
    """One line of the table."""
    before, after = result.before_bytes / MIB, result.after_bytes / MIB
    return (
        f"{result.workload:20}{result.max_slowdown:6.2f}{before:8.1f} MiB{after:8.1f} MiB"
        f"{before / after:7.2f}x{result.time_ratio:7.2f}x  "
        f"{'equal' if result.bits_equal else 'DIFFER'}"
    )


def run(
    jobs: Iterable[tuple[str, float]], pairs: int, explain: bool, allow: tuple[str, ...]
) -> Iterator[Result]:
    """Measures each workload under its bound, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    for name, bound in jobs:
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            options = {"max_slowdown": bound, "allow": allow}
            yield pool.submit(measured, name, pairs, explain, options).result()


def define_flags() -> None:
    """Defines the knobs; not on import, so that a child process defines none."""
    flags.DEFINE_multi_enum("workload", None, sorted(WORKLOADS), "which to run (default: all)")
    flags.DEFINE_multi_float("max_slowdown", [1.1, 1.33], "bounds on time")
    flags.DEFINE_list("allow", ["default"], "passes and groups of them that may be used")
    flags.DEFINE_integer("pairs", 5, "paired runs whose median is reported", lower_bound=1)
    flags.DEFINE_bool("explain", False, "print what is decided, and why")
    flags.DEFINE_string("json", None, "write the figures to this file")


def main(_):
    """Runs the rows, prints the table and writes the JSON."""
    names = FLAGS.workload or list(WORKLOADS)
    results = []
    print(HEAD, flush=True)
    jobs = [(name, bound) for name in names for bound in FLAGS.max_slowdown]
    for result in run(jobs, FLAGS.pairs, FLAGS.explain, tuple(FLAGS.allow)):
        results.append({**dataclasses.asdict(result), "report": ""})
        print(row(result), flush=True)
        print(result.report, end="")
        if FLAGS.json:  # after each row: all of them take ten minutes
            with open(FLAGS.json, "w", encoding="utf-8") as file:
                json.dump({"results": results, **environment()}, file, indent=2)


if __name__ == "__main__":
    define_flags()
    app.run(main)
