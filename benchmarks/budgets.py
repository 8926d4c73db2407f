"""Whether budgets are kept: ten of them for each of four programs, predicted and measured.

    python benchmarks/budgets.py
    python benchmarks/budgets.py --programs=lstm,nmt --budgets=4 --scale=0.5 --json=budgets.json
    python benchmarks/budgets.py --notime --json=benchmarks/results/budgets-cpu.json
    python -m benchmarks.budgets --notime --programs=multi30k,small_transformer

A program may also be one of ``benchmarks.whole_step`` that is no Keras model.

The budgets lie between the smallest that can be met (the one that `BudgetError` names) and the
original's peak, each by the same factor above the one before. A row says what was predicted and
measured; the lines below count budgets that were exceeded, predictions off by more than a tenth,
plans that became slower although the budget grew (by the estimate; measured times are printed), and
measured peaks that are larger than one under a larger budget.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

import numpy as np
from absl import app, flags

FLAGS = flags.FLAGS
PROGRAMS = ("lstm", "keras", "attention", "nmt")
AS_LARGE = 1.02
"""A measured peak may be so many times one under a larger budget."""


def define_flags() -> None:
    """Defines the knobs."""
    flags.DEFINE_list("programs", list(PROGRAMS), f"of {', '.join(PROGRAMS)}, and whole steps")
    flags.DEFINE_integer("budgets", 10, "budgets a program", lower_bound=2)
    flags.DEFINE_integer(
        "repeats", 5, "measured runs, of which the highest peak counts", lower_bound=1
    )
    flags.DEFINE_float("scale", 1.0, "factor of every sequence length", lower_bound=0.01)
    flags.DEFINE_bool("time", True, "tell how much slower each plan was measured to be")
    flags.DEFINE_string("json", None, "write the figures to this file")


def _length(tokens: int) -> int:
    return max(2, round(tokens * FLAGS.scale))


def _numbers(*shape: int, seed: int = 0):
    import tensorflow as tf

    return tf.constant(np.random.default_rng(seed).standard_normal(shape) * 0.05, tf.float32)


def _with_gradient(loss: Callable, variables) -> Callable:
    import tensorflow as tf

    def step(*inputs):
        with tf.GradientTape() as tape:
            value = loss(*inputs)
        gradients = tape.gradient(value, variables)
        return value, [tf.convert_to_tensor(gradient) for gradient in gradients]

    return step


def lstm():
    """An LSTM written out, loss on the last h: B 16, D 64, H 128."""
    import tensorflow as tf

    weight, bias = tf.Variable(_numbers(192, 512)), tf.Variable(_numbers(512))

    def loss(inputs):
        def body(i, h, c):
            gates = tf.concat([inputs[i], h], 1) @ weight + bias
            a, b, f, o = tf.split(gates, 4, 1)
            c = tf.sigmoid(f) * c + tf.sigmoid(a) * tf.tanh(b)
            return i + 1, tf.sigmoid(o) * tf.tanh(c), c

        start = (0, tf.zeros([16, 128]), tf.zeros([16, 128]))
        steps = inputs.shape[0]
        return tf.reduce_sum(tf.while_loop(lambda i, h, c: i < steps, body, start)[1] ** 2)

    return _with_gradient(loss, [weight, bias]), (_numbers(_length(200), 16, 64),)


def keras():
    """Two Keras LSTM layers with recurrent dropout below a classifier: batch 16, H 64."""
    import keras as keras_library
    import tensorflow as tf

    layers = keras_library.layers
    steps = _length(120)
    model = keras_library.Sequential(
        [
            keras_library.Input((steps, 32), batch_size=16),
            layers.LSTM(64, return_sequences=True, recurrent_dropout=0.1),
            layers.LSTM(64, recurrent_dropout=0.1),
            layers.Dense(8),
        ]
    )

    def loss(x, y):
        logits = model(x, training=True)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))

    step = _with_gradient(loss, model.trainable_variables)
    return step, (_numbers(16, steps, 32), tf.zeros([16], tf.int32))


def attention():
    """A cell that attends to a memory in each iteration: batch 8, 60 keys, H 64."""
    import tensorflow as tf

    weight, keys = tf.Variable(_numbers(128, 64)), tf.Variable(_numbers(64, 64, seed=1))

    def loss(inputs, memory):
        projected = memory @ keys

        def body(i, h):
            scores = tf.reduce_sum(tf.tanh(projected + h[:, None]) * memory, 2)
            context = tf.reduce_sum(memory * tf.nn.softmax(scores)[:, :, None], 1)
            return i + 1, tf.tanh(tf.concat([inputs[i], context], 1) @ weight)

        steps = inputs.shape[0]
        start = (0, tf.zeros([8, 64]))
        return tf.reduce_sum(tf.while_loop(lambda i, h: i < steps, body, start)[1] ** 2)

    return _with_gradient(loss, [weight, keys]), (
        _numbers(_length(100), 8, 64),
        _numbers(8, 60, 64, seed=2),
    )


def nmt():
    """The translation model's step: batch 32, 50 tokens, 256 units, vocabulary 1000."""
    from models.nmt.benchmark import build

    return build(32, _length(50), _length(50))


def smallest(step: Callable, arguments: tuple) -> int:
    """The smallest budget that can be met: the one that the error for a hopeless one names."""
    import rnnmem

    try:
        rnnmem.optimize(step, budget=1).plan(*arguments)
    except rnnmem.BudgetError as error:
        return int(re.search(r"(\d+) bytes", str(error)).group(1))
    raise AssertionError("a budget of one byte was met")


def program(name: str) -> tuple[Callable, tuple]:
    """The step of a program, and its arguments."""
    if name in PROGRAMS:
        return globals()[name]()
    from benchmarks.whole_step import original

    return original(name)


def rows_of(name: str) -> list[dict]:
    """One row a budget, smallest first."""
    import rnnmem

    step, arguments = program(name)
    least = smallest(step, arguments)
    plain = rnnmem.measure(rnnmem.optimize(step, allow=()), *arguments, repeats=FLAGS.repeats)
    most = max(least, plain.peak_bytes)
    rows = []
    for number in range(FLAGS.budgets):
        share = number / (FLAGS.budgets - 1)
        budget = math.ceil(least * (most / least) ** share)
        optimized = rnnmem.optimize(step, budget=budget)
        plan = optimized.plan(*arguments)
        pair = rnnmem.measure(optimized, *arguments, repeats=FLAGS.repeats)
        row = {
            "program": name,
            "budget": budget,
            "predicted": plan.predicted_peak,
            "measured": pair.peak_bytes,
            "estimated_slowdown": plan.slowdown,
        }
        if FLAGS.time:
            row["measured_slowdown"] = pair.seconds / plain.seconds
        rows.append(row)
        print(_line(rows[-1]), flush=True)
    return rows


def _line(row: dict) -> str:
    mib = {key: row[key] / 2**20 for key in ("budget", "predicted", "measured")}
    text = (
        f"{row['program']:<10} budget {mib['budget']:8.2f} MiB  predicted {mib['predicted']:8.2f}  "
        f"measured {mib['measured']:8.2f}  estimated {row['estimated_slowdown']:.3f}x"
    )
    took = row.get("measured_slowdown")
    return text if took is None else f"{text}  measured {took:.2f}x"


def verdict(rows: list[dict]) -> str:
    """What was promised and not kept."""
    above = [row for row in rows if row["measured"] > row["budget"]]
    off = [row for row in rows if abs(row["predicted"] - row["measured"]) > 0.1 * row["measured"]]
    pairs = [(a, b) for a, b in zip(rows, rows[1:], strict=False) if a["program"] == b["program"]]
    slower = [b for a, b in pairs if b["estimated_slowdown"] > a["estimated_slowdown"] + 1e-9]
    higher = [a for a, b in pairs if a["measured"] > AS_LARGE * b["measured"]]
    return (
        f"{len(rows)} budgets: {len(above)} exceeded, {len(off)} predictions off by more than a "
        f"tenth, {len(slower)} plans slower than with a smaller budget, {len(higher)} peaks higher "
        "than with a larger one"
    )


def _check(names: list[str]) -> None:
    """Refuses unknown programs before any is run."""
    if set(names) <= set(PROGRAMS):
        return
    from benchmarks.whole_step import WORKLOADS

    known = (*PROGRAMS, *WORKLOADS)
    if not set(names) <= set(known):
        raise app.UsageError(f"--programs={','.join(names)}: of {', '.join(known)}")


def main(_) -> None:
    """Runs every program under every budget."""
    import rnnmem

    _check(FLAGS.programs)
    rnnmem.enable_cpu_memory_stats()
    rows = [row for name in FLAGS.programs for row in rows_of(name)]
    print(verdict(rows))
    if FLAGS.json:
        with open(FLAGS.json, "w", encoding="utf-8") as file:
            json.dump({"results": rows, "verdict": verdict(rows)}, file, indent=2)


if __name__ == "__main__":
    define_flags()
    app.run(main)
