r"""Memory and time of the translation model's step, plain and under rnnmem.

    python -m models.nmt.benchmark          # two workloads, 50 and 150 tokens
    python -m models.nmt.benchmark --source_length=100,400 \
        --target_length=50,400 --json=nmt.json
    python -m models.nmt.benchmark --source_length=50 --explain  # each blob
    python -m models.nmt.benchmark --device=GPU:0 --batch=256   # on a GPU
    python -m models.nmt.benchmark --workloads=attention-150,multi30k \
        --limit=512MiB --json=workloads.json --picture=workloads.png

A train step here is the loss and its gradients with respect to every variable,
all returned. Memory is the peak above what is resident before the step. Both
variants run interleaved in one process; the step-time ratio is the median over
paired runs. Loss and gradients are compared bit by bit with op determinism on,
under which TensorFlow's cross entropy takes two more blobs of the logits' size
(at 150 tokens 886 MiB instead of 853); `--nodeterministic` measures TensorFlow
as it is by default. Named workloads run in three variants.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import app, flags

import rnnmem
from models.nmt import comparison
from models.nmt.flag_groups import one_group
from models.nmt.model import ModelConfig
from models.nmt.workloads import WORKLOADS, Workload, make_batch, make_step
from rnnmem.sizes import format_bytes

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the knobs; not on import, so that these programs can be imported side by side."""
    flags.DEFINE_integer("batch", 32, "sentence pairs a step", lower_bound=1)
    flags.DEFINE_list("source_length", ["50", "150"], "source tokens; one workload a value")
    flags.DEFINE_list(
        "target_length", None, "target tokens; as many values (default: as the source)"
    )
    flags.DEFINE_integer("units", 256, "units of encoder and decoder", lower_bound=1)
    flags.DEFINE_integer("embedding", 256, "size of the word embeddings", lower_bound=1)
    flags.DEFINE_integer("vocabulary", 1000, "words of either language", lower_bound=5)
    flags.DEFINE_integer("steps", 5, "paired runs whose median is reported", lower_bound=1)
    flags.DEFINE_string(
        "device", None, "where to run, e.g. CPU:0 or GPU:0 (default: TensorFlow's choice)"
    )
    flags.DEFINE_string("budget", None, "optimize's budget, e.g. 64MiB (default: least memory)")
    flags.DEFINE_float("max_slowdown", 1.1, "optimize's bound on the step time, without a budget")
    flags.DEFINE_list(
        "allow", None, "optimize's means, e.g. recompute,segments,vocabulary (default: its own)"
    )
    flags.DEFINE_bool("deterministic", True, "turn TensorFlow's op determinism on")
    flags.DEFINE_bool("explain", False, "print what becomes of each saved blob, and why")
    flags.DEFINE_string("json", None, "write the figures to this file")
    flags.DEFINE_list(
        "workloads", None, f"named ones, in three variants each: {', '.join(WORKLOADS)}"
    )
    flags.DEFINE_string("limit", None, "find what fits in so much, e.g. 512MiB (of --workloads)")
    flags.DEFINE_integer("highest", None, "the largest size that is tried with --limit")
    flags.DEFINE_string("picture", None, "draw the figures of --workloads into this file")
    flags.register_validator(
        "workloads",
        lambda names: names is None or all(name in WORKLOADS for name in names),
        f"workloads are {', '.join(WORKLOADS)}",
    )
    for name in ("source_length", "target_length"):
        flags.register_validator(
            name,
            lambda values: values is None or all(v.isdecimal() and int(v) > 0 for v in values),
            "lengths are whole numbers above 0, separated by commas, e.g. 50,150",
        )


@dataclasses.dataclass(frozen=True)
class Result:
    """One workload: peaks in bytes above resident, times in seconds a step."""

    name: str
    batch: int
    source_length: int
    target_length: int
    before_bytes: int
    after_bytes: int
    before_seconds: float
    after_seconds: float
    time_ratio: float  # the median of after / before over paired runs
    first_call_seconds: tuple[float, float]  # tracing and all, before and after
    loss_identical: bool
    gradients_identical: bool
    gradients_largest_difference: float
    digest: str = ""  # of loss and gradients as TensorFlow runs them: first 16 digits of SHA-256

    @property
    def saving(self) -> float:
        """The part of the peak that is gone, 0 to 1."""
        return 1 - self.after_bytes / self.before_bytes


def build(
    batch: int,
    source_length: int,
    target_length: int,
    units: int = 256,
    embedding: int = 256,
    vocabulary: int = 1000,
) -> tuple[Callable, tuple[tf.Tensor, tf.Tensor]]:
    """Makes the model and one batch, and the train step as a plain Python function.

    Returns:
        The step, and its arguments: source int32 [B, S], target int32 [B, T + 1].
    """
    config = ModelConfig(vocabulary, vocabulary, units, embedding)
    workload = Workload(config, batch, source_length, target_length)
    return make_step(config), make_batch(workload)


def compare(source_length: int, target_length: int) -> tuple[Result, str]:
    """Measures one workload of the flags, plain and optimized in turn.

    Returns:
        The `Result`, and the optimized step's report as text where `--explain` asks for it.
    """
    name = f"nmt {source_length}x{target_length}"
    sizes = FLAGS.units, FLAGS.embedding, FLAGS.vocabulary
    train_step, arguments = build(FLAGS.batch, source_length, target_length, *sizes)
    options = {
        "budget": FLAGS.budget,
        "max_slowdown": FLAGS.max_slowdown,
        "allow": FLAGS.allow and tuple(FLAGS.allow),
    }
    before, after = tf.function(train_step), rnnmem.optimize(train_step, **options)
    expected, before_first = _first_call(before, arguments)
    actual, after_first = _first_call(after, arguments)
    differences = [np.max(np.abs(x - y)) for x, y in zip(expected[1:], actual[1:], strict=True)]
    digest = hashlib.sha256(b"".join(one.tobytes() for one in expected)).hexdigest()[:16]
    identical = [x.tobytes() == y.tobytes() for x, y in zip(expected, actual, strict=True)]
    del expected, actual

    print(f"{name}: {FLAGS.steps} paired runs", end="\r", file=sys.stderr, flush=True)
    pair = rnnmem.measure_pair(before, after, *arguments, repeats=FLAGS.steps)
    print(end="\033[K", file=sys.stderr)
    result = Result(
        name=name,
        batch=FLAGS.batch,
        source_length=source_length,
        target_length=target_length,
        before_bytes=pair.first.peak_bytes,
        after_bytes=pair.second.peak_bytes,
        before_seconds=pair.first.seconds,
        after_seconds=pair.second.seconds,
        time_ratio=pair.time_ratio,
        first_call_seconds=(before_first, after_first),
        loss_identical=identical[0],
        gradients_identical=all(identical[1:]),
        gradients_largest_difference=float(max(differences)),
        digest=digest,
    )
    return result, str(after.explain(*arguments)) if FLAGS.explain else ""


def _first_call(step, arguments):
    """The loss and the gradients as arrays, and the seconds that tracing and running took."""
    start = time.perf_counter()
    loss, gradients = step(*arguments)
    arrays = [loss.numpy(), *(gradient.numpy() for gradient in gradients)]
    return arrays, time.perf_counter() - start


def table(results: list[Result]) -> str:
    """The results as a Markdown table, a line per workload."""
    lines = [
        "| Model | Before | After | Saving | Step time | Loss and gradients |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for r in results:
        if r.loss_identical and r.gradients_identical:
            equality = "bit-identical"
        else:
            equality = f"DIFFER, by up to {r.gradients_largest_difference:.2g}"
        lines.append(
            f"| {r.name} | {format_bytes(r.before_bytes)} | {format_bytes(r.after_bytes)} "
            f"| {100 * r.saving:.1f} % | {r.time_ratio:.2f}x | {equality} |"
        )
    return "\n".join(lines)


def environment() -> dict:
    """The day, the machine, the versions and the flags: what another needs to judge the figures."""
    gpus = tf.config.list_physical_devices("GPU")
    return {
        "date": datetime.date.today().isoformat(),
        "machine": {
            "system": platform.platform(),
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "gpus": [tf.config.experimental.get_device_details(g).get("device_name") for g in gpus],
        },
        "versions": {
            "python": platform.python_version(),
            "tensorflow": tf.__version__,  # its package may be tensorflow-cpu
            **{name: _version(name) for name in ("keras", "numpy", "rnnmem")},
        },
        "flags": {flag.name: flag.value for flag in FLAGS.get_key_flags_for_module(__name__)},
    }


def _version(distribution):
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def lengths() -> list[tuple[int, int]]:
    """The workloads that the flags ask for, as (source, target) lengths."""
    source = FLAGS.source_length
    target = FLAGS.target_length or source
    if len(source) != len(target):
        raise app.UsageError(
            f"--source_length={','.join(source)} has {len(source)} values, "
            f"--target_length={','.join(target)} has {len(target)}: give as many of either"
        )
    return [(int(s), int(t)) for s, t in zip(source, target, strict=True)]


def main(_):
    """Runs every workload, prints the table and writes the JSON."""
    workloads = lengths()
    rnnmem.enable_cpu_memory_stats()
    if FLAGS.deterministic:
        tf.config.experimental.enable_op_determinism()
    if FLAGS.workloads:
        compare_named()
        return
    results = []
    with tf.device(FLAGS.device):
        for source, target in workloads:
            result, report = compare(source, target)
            results.append(result)
            if report:
                print(report)
    print(table(results))
    write_json(results)


def compare_named() -> None:
    """Runs the named workloads in every variant: table, JSON and picture."""
    rows = []
    try:
        with tf.device(FLAGS.device):
            for name in FLAGS.workloads:
                print(f"{name}: {FLAGS.steps} rounds", end="\r", file=sys.stderr, flush=True)
                rows += comparison.compare(name, FLAGS.steps, FLAGS.limit, FLAGS.highest)
        print(end="\033[K", file=sys.stderr)
        print(comparison.table(rows))
        write_json(rows)
        if FLAGS.picture:
            comparison.draw(rows, FLAGS.picture)
    except (OSError, ValueError, rnnmem.RnnmemError) as error:
        sys.exit(f"benchmark: {error}")


def write_json(results: list) -> None:
    """Writes the results, the machine and the versions where `--json` asks for it."""
    if FLAGS.json:
        rows = [{**dataclasses.asdict(r), "saving": r.saving} for r in results]
        with open(FLAGS.json, "w", encoding="utf-8") as file:
            json.dump({"results": rows, **environment()}, file, indent=2)


if __name__ == "__main__":
    with one_group("What is measured, and how"):
        define_flags()
    app.run(main)
