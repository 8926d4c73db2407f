"""What rnnmem does on a GPU, in ten minutes: one command, one table, one JSON.

    python -m benchmarks.gpu --json=benchmarks/results/gpu.json
    python -m benchmarks.gpu --small --pairs=1 --limit=16MiB      # the same rows, on a CPU

Rows run in order of worth, a process each, until `--seconds` are over; the JSON is written after
each, and one that fails has its reason in the place of figures. The plans of `--jobs` rows are made
at once, and one row is measured at a time. Steps are the loss and its gradients with op determinism
on; peaks are above what is resident, plain and under rnnmem in turn, each beside the predicted one.
`docs/gpu.md` says what was measured where.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from absl import app, flags

from rnnmem.sizes import MIB

FLAGS = flags.FLAGS

BATCH, SMALL_BATCH = 32, 4
HIGHEST, SMALL_HIGHEST = 1 << 16, 16
"""The largest batch that is tried."""
CHILD = "child:"
"""What the argument of a child process begins with."""


@dataclasses.dataclass(frozen=True)
class Figures:
    """One row; what does not apply is None.

    Attributes:
      before_bytes: peak as TensorFlow runs it; `after_bytes` under rnnmem.
      predicted_before_bytes: of the first by the plan; `predicted_after_bytes` of the second.
      before_seconds: median of a step; `after_seconds` under rnnmem.
      time_ratio: median of the second's by the first's, over the pairs; `estimated_ratio` by the
        plan.
      bits_equal: whether all results have the same bits.
      largest_difference: of an element, where they have not.
      before_batch: the largest batch that fits; `after_batch` under rnnmem.
      before_tokens: target tokens a second at that batch; `after_tokens` under rnnmem.
      overlap: part of the time of copying to the host and back that no step waits for.
      reason: why there are no figures.
    """

    before_bytes: int | None = None
    after_bytes: int | None = None
    predicted_before_bytes: int | None = None
    predicted_after_bytes: int | None = None
    before_seconds: float | None = None
    after_seconds: float | None = None
    time_ratio: float | None = None
    estimated_ratio: float | None = None
    bits_equal: bool | None = None
    largest_difference: float | None = None
    before_batch: int | None = None
    after_batch: int | None = None
    before_tokens: float | None = None
    after_tokens: float | None = None
    overlap: float | None = None
    reason: str | None = None


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a child process is to measure.

    Attributes:
      row: a name in `ROWS`.
      small: whether sizes are small.
      pairs: paired runs.
      limit: bytes for the largest batch; None: what the device has.
      lock: a file that is locked by the process that measures; empty: there is no other.
    """

    row: str
    small: bool = False
    pairs: int = 5
    limit: str | None = None
    lock: str = ""

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While no other row is measured."""
        if not self.lock:
            yield
            return
        with open(self.lock, "w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


# --- rows; they import TensorFlow in their own process


def _held(workload: Any, asked: Asked) -> Figures:
    from benchmarks import recurrent

    job = recurrent.Job(asked.row, steps=asked.pairs)
    found = recurrent.compared(workload, job, asked.alone())
    names = {field.name for field in dataclasses.fields(Figures)}
    return Figures(**{k: v for k, v in dataclasses.asdict(found).items() if k in names})


def _workload(step: Callable, arguments: tuple, compiled: bool = False, **options: Any) -> Any:
    import tensorflow as tf

    import rnnmem
    from benchmarks.recurrent import Workload

    before = tf.function(step, jit_compile=compiled or None)
    after = rnnmem.optimize(tf.function(step, jit_compile=compiled or None), **options)

    def arrays(results):
        return [one.numpy() for one in tf.nest.flatten(results)]

    return Workload(before, after, arguments, arrays, lambda: after.explain(*arguments))


def _translation(asked: Asked, length: int, words: int, batch: int | None = None):
    """The benchmark model's step, and a batch."""
    from models.nmt.benchmark import build

    if asked.small:
        return build(batch or SMALL_BATCH, length // 10, length // 10, 16, 16, words // 10)
    return build(batch or BATCH, length, length, vocabulary=words)


def nmt(asked: Asked, length: int, words: int, **options: Any) -> Figures:
    """The benchmark model: LSTM, attention, 256 units, batch 32."""
    return _held(_workload(*_translation(asked, length, words), **options), asked)


def keras_layers(
    asked: Asked, layers: Callable, policy: str = "float32", **options: Any
) -> Figures:
    """Keras layers over 400 steps of 256 features, batch 16."""
    from benchmarks.recurrent import _keras

    batch, time_steps, features = (2, 20, 8) if asked.small else (16, 400, 256)
    return _held(
        _keras(
            lambda keras: layers(keras, features),
            batch,
            time_steps,
            features,
            1.1,
            policy,
            **options,
        ),
        asked,
    )


def _dropout(keras: Any, units: int) -> list:
    options = {"return_sequences": True, "recurrent_dropout": 0.1}
    return [keras.layers.LSTM(units, seed=seed, **options) for seed in (1, 2)]


def _cudnn(keras: Any, units: int) -> list:
    return [keras.layers.LSTM(units, return_sequences=True)]


def _custom_cell(keras: Any, units: int) -> list:
    import tensorflow as tf

    class MinimalGated(keras.layers.Layer):
        """The minimal gated unit of Zhou et al. (2016)."""

        def __init__(self):
            super().__init__()
            self.state_size = self.output_size = units
            self.gates = keras.layers.Dense(units, "sigmoid")
            self.fresh = keras.layers.Dense(units, "tanh")

        def build(self, shape):
            self.gates.build((shape[0], shape[-1] + units))
            self.fresh.build((shape[0], shape[-1] + units))

        def call(self, inputs, states):
            (h,) = states
            gate = self.gates(tf.concat([inputs, h], -1))
            h = (1 - gate) * h + gate * self.fresh(tf.concat([inputs, gate * h], -1))
            return h, [h]

    return [keras.layers.RNN(MinimalGated(), return_sequences=True)]


def offload(asked: Asked) -> Figures:
    """What loops save in host memory, beside rnnmem without; and how much of the copying is hidden.

    A step's copies are what it holds less on the device. They are timed alone, out and in again;
    what the step takes longer than without them was not hidden.
    """
    import tensorflow as tf

    import rnnmem

    step, batch = _translation(asked, 150, 1000)
    found = _held(_workload(step, batch, allow=("default", "offload")), asked)
    plain = rnnmem.optimize(step)
    plain(*batch)
    with asked.alone():
        without = rnnmem.measure(plain, *batch, repeats=asked.pairs)
        moved = without.peak_bytes - found.after_bytes
        if moved <= 0 or not tf.config.list_logical_devices("GPU"):
            return found
        copying = _seconds_to_copy(moved)
    waited = max(0.0, found.after_seconds - without.seconds)
    return dataclasses.replace(found, overlap=max(0.0, 1 - waited / copying))


def _seconds_to_copy(size: int) -> float:
    """What so many bytes take from the device to the host, and back."""
    import tensorflow as tf

    with tf.device("GPU:0"):
        blob = tf.zeros([size // 4])
    start = time.perf_counter()
    with tf.device("CPU:0"):
        host = tf.identity(blob)
    with tf.device("GPU:0"):
        tf.identity(host)
    tf.test.experimental.sync_devices()
    return time.perf_counter() - start


def largest_batch(asked: Asked) -> Figures:
    """The largest batch of the benchmark model, length 150, and its tokens a second."""
    import tensorflow as tf

    import rnnmem

    length = 15 if asked.small else 150

    def arguments(batch: int):
        return _translation(asked, 150, 1000, batch)[1]

    step, _ = _translation(asked, 150, 1000)
    found = {}
    for when, one in (("before", tf.function(step)), ("after", rnnmem.optimize(step))):
        highest = SMALL_HIGHEST if asked.small else HIGHEST
        batch = rnnmem.largest(one, arguments, asked.limit, high=highest)
        with asked.alone():
            measured = rnnmem.measure(one, *arguments(batch), repeats=min(asked.pairs, 3))
        found |= {
            f"{when}_batch": batch,
            f"{when}_tokens": batch * length / measured.seconds,
            f"{when}_bytes": measured.peak_bytes,
            f"{when}_seconds": measured.seconds,
        }
    return Figures(**found)


ROWS: dict[str, Callable[[Asked], Figures]] = {
    "nmt-150": lambda asked: nmt(asked, 150, 1000),
    "nmt-150, 32000 words": lambda asked: nmt(asked, 150, 32000),
    "Keras LSTM, recurrent dropout": lambda asked: keras_layers(asked, _dropout),
    "largest batch, nmt-150": largest_batch,
    "nmt-150, jit_compile": lambda asked: nmt(asked, 150, 1000, compiled=True),
    "nmt-50": lambda asked: nmt(asked, 50, 1000),
    "Keras RNN of a custom cell": lambda asked: keras_layers(asked, _custom_cell),
    "Keras LSTM, mixed_bfloat16, recurrent dropout": lambda asked: keras_layers(
        asked, _dropout, "mixed_bfloat16"
    ),
    "nmt-150, offload": offload,
    "nmt-50, 32000 words": lambda asked: nmt(asked, 50, 32000),
    "nmt-150, max_slowdown=1.35": lambda asked: nmt(asked, 150, 1000, max_slowdown=1.35),
    "nmt-150, saved as bfloat16": lambda asked: nmt(
        asked, 150, 1000, allow=("default", "bfloat16")
    ),
    "Keras LSTM (on a GPU cuDNN's: no loop)": lambda asked: keras_layers(asked, _cudnn),
}
"""What each measures, in order of worth."""


# --- the process of a row


def measured(asked: Asked) -> Figures:
    """Runs a row in this process; what it raises is its reason."""
    import tensorflow as tf

    import rnnmem

    rnnmem.enable_cpu_memory_stats()
    tf.config.experimental.enable_op_determinism()
    try:
        return ROWS[asked.row](asked)
    except Exception as error:  # a row that fails must not take the others with it
        return Figures(reason=f"{type(error).__name__}: {str(error).strip()[:300]}")


def run(asked: Asked, seconds: float) -> Figures:
    """Runs a row in a process of its own, for at most so many seconds."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu"]
    command.append(CHILD + json.dumps(dataclasses.asdict(asked)))
    shared = {**os.environ, "TF_FORCE_GPU_ALLOW_GROWTH": "true"}  # others are on the device, too
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=shared)
    except subprocess.TimeoutExpired:
        return Figures(reason=f"not done in {seconds:.0f} s")
    if done.returncode:
        return Figures(reason=f"the process ended with {done.returncode}: {done.stderr[-300:]}")
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


# --- the command


def line(name: str, found: Figures) -> str:
    """A row of the table."""
    if found.reason:
        return f"| {name} | {found.reason} |"
    bits = {None: "", True: "equal", False: f"off by up to {found.largest_difference or 0:.2g}"}
    cells = (
        name,
        _pair(found.before_bytes, found.after_bytes, lambda size: f"{size / MIB:.1f}"),
        _pair(
            found.predicted_before_bytes,
            found.predicted_after_bytes,
            lambda size: f"{size / MIB:.1f}",
        ),
        _pair(found.before_seconds, found.after_seconds, lambda one: f"{one:.4f}"),
        *(
            "" if ratio is None else f"{ratio:.2f}x"
            for ratio in (found.time_ratio, found.estimated_ratio)
        ),
        bits[found.bits_equal],
        _pair(found.before_batch, found.after_batch, str),
        _pair(found.before_tokens, found.after_tokens, lambda one: f"{one:.0f}"),
        "" if found.overlap is None else f"{found.overlap:.0%}",
    )
    return f"| {' | '.join(cells)} |"


def _pair(before: Any, after: Any, shown: Callable[[Any], str]) -> str:
    texts = ["?" if one is None else shown(one) for one in (before, after)]
    return "" if texts == ["?", "?"] else " → ".join(texts)


HEAD = """\
| row | peak, MiB | predicted, MiB | s/step | time | estimate | bits | batch | tokens/s | overlap |
| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: |"""


def define_flags() -> None:
    """Defines the knobs; not on import, so that these programs can be imported side by side."""
    flags.DEFINE_multi_enum("row", None, list(ROWS), "which to run (default: all)")
    flags.DEFINE_bool("small", False, "small sizes, for tests")
    flags.DEFINE_integer("pairs", 5, "paired runs whose median is reported", lower_bound=1)
    flags.DEFINE_string("limit", None, "for the largest batch (default: what the device has)")
    jobs = max(1, (os.cpu_count() or 1) // 3)
    flags.DEFINE_integer("jobs", jobs, "rows whose plans are made at once", lower_bound=1)
    flags.DEFINE_float("seconds", 570, "for all rows together")
    flags.DEFINE_float("most", 150, "seconds for one row")
    flags.DEFINE_string("json", None, "write the figures to this file")


def main(_) -> None:
    """Runs the rows, prints the table and writes the JSON after each."""
    start, found = time.monotonic(), {}
    rows, recording = FLAGS.row or list(ROWS), threading.Lock()
    print(HEAD, flush=True)

    def row(name: str, lock: str) -> None:
        left = min(FLAGS.most, FLAGS.seconds - (time.monotonic() - start))
        asked = Asked(name, FLAGS.small, FLAGS.pairs, FLAGS.limit, lock)
        figures = run(asked, left) if left > 1 else Figures(reason="no time was left")
        with recording:
            found[name] = figures
            print(line(name, figures), flush=True)
            if FLAGS.json:
                write({one: found[one] for one in rows if one in found})

    with (
        tempfile.NamedTemporaryFile() as file,
        concurrent.futures.ThreadPoolExecutor(FLAGS.jobs) as pool,
    ):
        for done in [pool.submit(row, name, file.name) for name in rows]:
            done.result()


def write(found: dict[str, Figures]) -> None:
    """Writes the figures, the machine and the versions."""
    from models.nmt.benchmark import environment

    document = {
        "results": {name: dataclasses.asdict(one) for name, one in found.items()},
        **environment(),
        "flags": {
            name: FLAGS[name].value for name in ("small", "pairs", "limit", "seconds", "jobs")
        },
    }
    Path(FLAGS.json).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith(CHILD):
        child = Asked(**json.loads(sys.argv[1][len(CHILD) :]))
        print(json.dumps(dataclasses.asdict(measured(child))))
    else:
        define_flags()
        app.run(main)
