"""Other forms of what loops save, measured: an LSTM with dropout in every iteration.

    python -m benchmarks.forms --max_slowdown=1.35

Each row is one choice of `allow`, in the order tried; peaks are above the resident state.
"""

from __future__ import annotations

from absl import app, flags

FLAGS = flags.FLAGS
TECHNIQUES = (
    ("recompute", "segments"),
    ("recompute", "segments", "bits"),
    ("recompute", "segments", "bits", "bfloat16"),
)


def define_flags() -> None:
    """Defines the knobs."""
    flags.DEFINE_integer("batch", 32, "rows of a batch")
    flags.DEFINE_integer("units", 256, "units of the cell, and features of its input")
    flags.DEFINE_integer("steps", 200, "iterations of the loop")
    flags.DEFINE_float("max_slowdown", 1.35, "bound on the estimated factor of step time")
    flags.DEFINE_integer("repeats", 5, "paired runs of a row")


def make_step(batch: int, units: int, steps: int):
    """A train step over an LSTM cell with dropout on its input and its output, and an input.

    Returns:
      ``(step, x)``; ``x`` is of [steps, batch, units].
    """
    import tensorflow as tf

    kernel = tf.Variable(tf.random.normal([2 * units, 4 * units]) * 0.05)
    bias = tf.Variable(tf.zeros([4 * units]))

    def body(x, i, h, c):
        given = tf.concat([x[i], tf.nn.dropout(h, 0.2)], 1)
        a, b, f, o = tf.split(given @ kernel + bias, 4, 1)
        c = tf.sigmoid(f) * c + tf.sigmoid(a) * tf.tanh(b)
        return i + 1, tf.nn.dropout(tf.nn.relu(tf.sigmoid(o) * tf.tanh(c)), 0.1), c

    def step(x):
        start = (0, tf.zeros([batch, units]), tf.zeros([batch, units]))
        with tf.GradientTape() as tape:
            h = tf.while_loop(lambda i, *_: i < steps, lambda *state: body(x, *state), start)[1]
            loss = tf.reduce_sum(h * h)
        return loss, tape.gradient(loss, [kernel, bias])

    return step, tf.random.normal([steps, batch, units])


def main(argv: list[str]) -> None:
    """Prints the table."""
    del argv
    import tensorflow as tf

    import rnnmem

    rnnmem.enable_cpu_memory_stats()
    tf.random.set_seed(1)
    step, x = make_step(FLAGS.batch, FLAGS.units, FLAGS.steps)
    plain = tf.function(step)
    for allow in TECHNIQUES:
        function = rnnmem.optimize(step, allow=allow, max_slowdown=FLAGS.max_slowdown)
        plan = function.plan(x)
        pair = rnnmem.measure_pair(plain, function, x, repeats=FLAGS.repeats)
        print(
            f"{', '.join(allow):44} {pair.first.peak_bytes / 2**20:6.1f} MiB before, "
            f"{plan.predicted_peak / 2**20:6.1f} predicted, "
            f"{pair.second.peak_bytes / 2**20:6.1f} measured, "
            f"time {plan.slowdown:.2f}x estimated, {pair.time_ratio:.2f}x measured",
            flush=True,
        )


if __name__ == "__main__":
    define_flags()
    app.run(main)
