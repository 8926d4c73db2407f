"""Memory and throughput of pipeline training.

    python -m benchmarks.pipeline --measure=memory --json=benchmarks/results/pipeline-memory.json
    python -m benchmarks.pipeline --measure=throughput --json=pipeline-throughput.json

memory: four stages, each an LSTM layer, one after the other on the CPU. Each row of the table is a
process of its own, with one thread, in which each stage's bytes are counted action by action
(`Pipeline.measure`). There are two tables: what a stage asked the allocator for in a step, by
TensorFlow's trace of it; and what the allocator itself counted, whole chunks. How chunks happen to
lie is chance, and the peak is the largest of many: each row of 1f1b takes as many micro-batches, in
as many steps as that needs.

throughput: the same stack in two stages, one in the process that drives and one in a worker, each
held to one core, against the stack in one piece with gradient accumulation in one process that is
held to one core. It needs two idle cores.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from absl import app, flags

FLAGS = flags.FLAGS
LAYERS = 4
SIZES = {
    "memory": {"each": 256, "length": 8, "units": 64},
    "throughput": {"each": 64, "length": 20, "units": 256},
}
"""Examples of a micro-batch, tokens of a sequence, units of each layer, unless flags say so."""


def define_flags() -> None:
    """Defines the knobs; not on import."""
    flags.DEFINE_enum("measure", "memory", ["memory", "throughput"], "what to measure")
    flags.DEFINE_list("micro_batches", ["8", "32", "128", "512"], "one column each")
    flags.DEFINE_list("contrast", ["8", "32", "128"], "the same for forward-then-backward")
    flags.DEFINE_integer("taken", 1024, "micro-batches in all, of a row of 1f1b", lower_bound=1)
    flags.DEFINE_integer("each", None, "examples of a micro-batch", lower_bound=1)
    flags.DEFINE_integer("length", None, "tokens of a sequence", lower_bound=1)
    flags.DEFINE_integer("units", None, "units of each layer", lower_bound=1)
    flags.DEFINE_bool("optimize", False, "put each stage under rnnmem.optimize")
    flags.DEFINE_string("limit", None, "memory that TensorFlow may take, e.g. 512MiB")
    flags.DEFINE_integer("steps", 7, "timed steps of either variant", lower_bound=1)
    flags.DEFINE_integer("split", 16, "micro-batches of a timed step", lower_bound=2)
    flags.DEFINE_string("json", None, "write the figures to this file")
    flags.DEFINE_string("one", None, "what a process started by this program does")


def stack() -> list:
    """Four LSTM layers with the same weights every time."""
    import keras

    import rnnmem

    keras.utils.set_random_seed(1)
    layers = [keras.layers.LSTM(FLAGS.units, return_sequences=True) for _ in range(LAYERS)]
    return [rnnmem.optimize(layer) for layer in layers] if FLAGS.optimize else layers


def batch(micro_batches: int):
    """Random sequences, float32 [examples, length, units], which are their own labels."""
    import numpy as np

    size = [FLAGS.each * micro_batches, FLAGS.length, FLAGS.units]
    return np.random.default_rng(0).normal(size=size).astype("float32")


def one_thread() -> None:
    """Makes TensorFlow run one op at a time, on one core."""
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)


def count_memory(schedule: str, micro_batches: int) -> dict:
    """Peaks of all stages, in this process."""
    import tensorflow as tf

    import rnnmem
    from rnnmem.errors import PipelineError
    from rnnmem.pipeline import Pipeline

    rnnmem.enable_cpu_memory_stats(FLAGS.limit)
    one_thread()
    pipeline = Pipeline(stack(), ["CPU:0"] * LAYERS, micro_batches, "sgd", schedule, loss="mse")
    x = batch(micro_batches)
    steps = max(1, FLAGS.taken // micro_batches) if schedule == "1f1b" else 1
    try:
        found = pipeline.measure(x, x, steps=steps, requests=True)
    except (PipelineError, tf.errors.ResourceExhaustedError):
        return {"schedule": schedule, "micro_batches": micro_batches, "out_of_memory": True}
    return {
        "schedule": schedule,
        "micro_batches": micro_batches,
        "steps": steps,
        "requested_bytes": [one.requested_bytes for one in found],
        "chunk_bytes": [one.peak_bytes for one in found],
        "resident_bytes": [one.resident_bytes for one in found],
        "scopes": [one.scopes for one in found],
    }


def memory() -> dict:
    """All rows, each from a fresh process."""
    rows = []
    for schedule, counts in (
        ("1f1b", FLAGS.micro_batches),
        ("forward-then-backward", FLAGS.contrast),
    ):
        rows += [_ask(f"{schedule},{count}") for count in counts]
    spread = {what: _spread(rows, what) for what in ("requested_bytes", "chunk_bytes")}
    for what, by_stage in spread.items():
        print(table(rows, what))
        print(f"{what} of 1f1b differ by " + ", ".join(f"{100 * one:.2f} %" for one in by_stage))
    return {"rows": rows, "spread": spread}


def _spread(rows: list[dict], what: str) -> list[float]:
    """By stage, how much the largest figure of 1f1b is above the smallest."""
    found = [row[what] for row in rows if row["schedule"] == "1f1b" and what in row]
    return [max(one) / min(one) - 1 for one in zip(*found, strict=True)]


def table(rows: list[dict], what: str) -> str:
    """The rows as a Markdown table: MiB above resident, by stage; scopes in brackets."""
    lines = [
        "| schedule | micro-batches | " + " | ".join(f"stage {s}" for s in range(LAYERS)) + " |",
        "| --- | ---: |" + " ---: |" * LAYERS,
    ]
    for row in rows:
        if "scopes" in row:
            pairs = zip(row[what], row["scopes"], strict=True)
            cells = [f"{peak / 2**20:.2f} ({scopes})" for peak, scopes in pairs]
        else:
            cells = ["out of memory"] * LAYERS
        lines.append(f"| {row['schedule']} | {row['micro_batches']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def throughput() -> dict:
    """Examples a second of two stages in two processes, and of one process."""
    found = {"split": [], "unsplit": []}
    for _ in range(2):  # in turn, so that a machine's drift hits both
        for what in found:
            found[what] += _ask(what)["seconds"]
    examples = FLAGS.each * FLAGS.split
    rates = {what: examples / statistics.median(seconds) for what, seconds in found.items()}
    ratio = rates["split"] / rates["unsplit"]
    print(
        f"unsplit, one core: {rates['unsplit']:.1f} examples/s; two stages, one core each: "
        f"{rates['split']:.1f} examples/s; ratio {ratio:.2f}"
    )
    return {"seconds": found, "examples_per_second": rates, "ratio": ratio}


def time_unsplit() -> dict:
    """Seconds of steps of the model in one piece, on core 0."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
    one_thread()
    import keras
    import tensorflow as tf

    layers = stack()
    optimizer = keras.optimizers.SGD()
    x = batch(FLAGS.split)

    @tf.function
    def gradient(part):
        with tf.GradientTape() as tape:
            found = part
            for layer in layers:
                found = layer(found, training=True)
            loss = tf.reduce_mean(keras.losses.mean_squared_error(part, found))
        return loss, tape.gradient(loss, variables())

    def variables():
        return [v.value for layer in layers for v in layer.trainable_variables]

    def step():
        sums = None
        for start in range(0, len(x), FLAGS.each):
            _, found = gradient(tf.constant(x[start : start + FLAGS.each]))
            sums = found if sums is None else [a + b for a, b in zip(sums, found, strict=True)]
        means = [one / FLAGS.split for one in sums]
        optimizer.apply_gradients(zip(means, variables(), strict=True))

    for layer in layers:
        layer.build((None, FLAGS.length, FLAGS.units))
    return {"seconds": _timed(step)}


def time_split() -> dict:
    """Seconds of steps of two stages: the first in this process on core 0, the other on core 1."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise SystemExit("--measure=throughput needs two cores")
    os.sched_setaffinity(0, {cores[0]})
    from rnnmem.pipeline import Pipeline, connect

    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    worker = _worker(address, cores[1])
    one_thread()
    try:
        layers = stack()
        stages = [layers[: LAYERS // 2], layers[LAYERS // 2 :]]
        devices = ["CPU:0", *connect([address], timeout=120)]
        pipeline = Pipeline(stages, devices, FLAGS.split, "sgd", loss="mse", prefetch=True)
        x = batch(FLAGS.split)
        return {"seconds": _timed(lambda: pipeline.train_step(x, x).numpy())}
    finally:
        worker.kill()


def _worker(address: str, core: int) -> subprocess.Popen:
    command = [sys.executable, "-m", "rnnmem.pipeline.worker", f"--workers={address}", "--task=0"]
    return subprocess.Popen(
        ["taskset", "-c", str(core), *command, "--intra_threads=1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _timed(step) -> list[float]:
    for _ in range(2):
        step()
    seconds = []
    for _ in range(FLAGS.steps):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds


def _ask(what: str) -> dict:
    """Runs one part of the work in a process of its own."""
    given = [argument for argument in sys.argv[1:] if not argument.startswith("--json")]
    command = [sys.executable, "-m", "benchmarks.pipeline", *given, f"--one={what}"]
    done = subprocess.run(
        command,
        cwd=Path(__file__).resolve().parent.parent,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    print(f"{what} done", file=sys.stderr, flush=True)
    return json.loads(done.stdout.splitlines()[-1])


def _part(what: str) -> dict:
    if what == "split":
        return time_split()
    if what == "unsplit":
        return time_unsplit()
    schedule, count = what.split(",")
    return count_memory(schedule, int(count))


def _main(arguments: list[str]) -> None:
    del arguments
    for name, size in SIZES[FLAGS.measure].items():
        if FLAGS[name].value is None:
            FLAGS[name].value = size
    if FLAGS.one:
        print(json.dumps(_part(FLAGS.one)), flush=True)
        os._exit(0)  # TensorFlow would wait for workers that are gone
    found = memory() if FLAGS.measure == "memory" else throughput()
    if FLAGS.json:
        import importlib.metadata

        knobs = ("taken", "each", "length", "units", "optimize", "limit", "steps", "split")
        found["flags"] = {name: FLAGS[name].value for name in knobs}
        found["machine"] = {"system": platform.platform(), "cores": os.cpu_count()}
        found["versions"] = {
            name: importlib.metadata.version(name) for name in ("tensorflow", "keras", "numpy")
        }
        Path(FLAGS.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    define_flags()
    app.run(_main)
