"""Most examples a second under a limit of memory, with and without rnnmem, each at its best batch.

    python -m benchmarks.throughput
    python -m benchmarks.throughput --program=lstm_bfloat16 --budget=256MiB --json=throughput.json

Each way runs in a process of its own; `rnnmem.largest(..., goal="throughput")` looks for the batch.
"""

from __future__ import annotations

import concurrent.futures
import functools
import json
import multiprocessing
from collections.abc import Callable

import tensorflow as tf
from absl import app, flags

import rnnmem
from benchmarks.recurrent import numbers
from models.nmt.benchmark import build, environment
from rnnmem.sizes import parse_bytes

FLAGS = flags.FLAGS


def nmt_150() -> tuple[Callable, Callable[[int], tuple]]:
    """The translation model's step at 150 tokens, 256 units, 1000 words."""
    step, _ = build(1, 150, 150)
    return step, lambda batch: build(batch, 150, 150)[1]


def lstm_bfloat16() -> tuple[Callable, Callable[[int], tuple]]:
    """A Keras LSTM that returns its sequences, under mixed_bfloat16: 400 steps, 256 -> 512."""
    import keras

    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = keras.Sequential(
        [keras.Input((400, 256)), keras.layers.LSTM(512, return_sequences=True)]
    )
    variables = [one.value for one in model.trainable_variables]

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.cast(model(x, training=True), tf.float32)))
        return loss, tape.gradient(loss, variables)

    return step, lambda batch: (numbers(batch, 400, 256),)


PROGRAMS = {program.__name__: program for program in (nmt_150, lstm_bfloat16)}
WAYS: dict[str, Callable[[Callable], Callable]] = {
    "tensorflow": tf.function,
    "rnnmem": functools.partial(rnnmem.optimize, max_slowdown=1.35),
}


def measured(program: str, way: str, budget: str, low: int, high: int) -> rnnmem.Throughput:
    """What is found in this process."""
    rnnmem.enable_cpu_memory_stats()
    step, make_args = PROGRAMS[program]()
    return rnnmem.largest(WAYS[way](step), make_args, budget, low=low, high=high, goal="throughput")


def define_flags() -> None:
    """Defines the knobs."""
    flags.DEFINE_multi_enum("program", list(PROGRAMS), list(PROGRAMS), "what to run")
    flags.DEFINE_string("budget", "512MiB", "limit of the peak above the resident state")
    flags.DEFINE_integer("low", 2, "the smallest batch", lower_bound=1)
    flags.DEFINE_integer("high", 512, "the largest batch", lower_bound=1)
    flags.DEFINE_string("json", None, "write the figures to this file")


def main(_) -> None:
    """Prints what was tried, and the factor of rnnmem's best by TensorFlow's."""
    context = multiprocessing.get_context("spawn")
    sizes = FLAGS.budget, FLAGS.low, FLAGS.high
    figures = {}
    for program in FLAGS.program:
        found = {}
        for way in WAYS:
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
                found[way] = pool.submit(measured, program, way, *sizes).result()
            print(f"{program}, {way}, at most {FLAGS.budget}\n{found[way]}\n", flush=True)
        before, after = (one.examples_per_second for one in found.values())
        print(f"{program}: {before:.1f} and {after:.1f} examples a second, {after / before:.2f}x\n")
        figures[program] = {
            way: [
                {
                    "size": trial.size,
                    "seconds": trial.seconds,
                    "peak_bytes": trial.peak_bytes,
                    "best": trial is one.best,
                }
                for trial in one.tried
            ]
            for way, one in found.items()
        }
    if FLAGS.json:
        data = {**environment(), "budget_bytes": parse_bytes(FLAGS.budget, "budget"), **figures}
        with open(FLAGS.json, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)


if __name__ == "__main__":
    define_flags()
    app.run(main)
