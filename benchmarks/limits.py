"""The longest sentences that the translation model trains on under a hard limit of memory.

    python -m benchmarks.limits --multiple=9 --most=9 --json=benchmarks/results/limits-cpu.json
    python -m benchmarks.limits --limit=256MiB --variants=vocabulary --multiple=6

Every length is tried in a process of its own, whose allocator has the limit
(``TF_CPU_BFC_MEM_LIMIT_IN_MB``): it traces the step (loss and all gradients; batch 32, 256 units,
vocabulary 1000), runs it once, and survives or is told by TensorFlow that memory is exhausted.
Weights and the batch count too. What TensorFlow alone survives is bisected; rnnmem is then tried at
whole multiples of that, one after the other, up or down from ``--multiple``.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Callable

from absl import app, flags

from rnnmem.sizes import MIB

FLAGS = flags.FLAGS

TECHNIQUES = ("recompute", "segments", "order")
OFF = "off"
VARIANTS = {"exact": TECHNIQUES, "vocabulary": (*TECHNIQUES, "vocabulary")}
"""Name -> the techniques that rnnmem may use."""

SURVIVED, EXHAUSTED = "survived", "exhausted"
HIGHEST = 2**16
"""Tokens beyond which nobody looks."""


def define_flags() -> None:
    """Defines the knobs; not on import, so that a child process defines none."""
    flags.DEFINE_string("limit", "512MiB", "what the allocator may hand out")
    flags.DEFINE_list("variants", list(VARIANTS), f"of {', '.join(VARIANTS)}")
    flags.DEFINE_string("workload", "attention-50", "a named one of models/nmt, but for lengths")
    flags.DEFINE_float("max_slowdown", 100.0, "optimize's bound on the step time", lower_bound=1)
    flags.DEFINE_integer("start", 64, "the first length tried with TensorFlow alone", lower_bound=1)
    flags.DEFINE_integer("multiple", 8, "of TensorFlow's longest: the first tried", lower_bound=1)
    flags.DEFINE_integer("most", 16, "of TensorFlow's longest: the last tried", lower_bound=1)
    flags.DEFINE_integer("timeout", 540, "seconds that a length may take; then it does not count")
    flags.DEFINE_string("json", None, "write the figures to this file")
    flags.register_validator(
        "variants",
        lambda names: all(name in VARIANTS for name in names),
        f"variants are {', '.join(VARIANTS)}",
    )


@dataclasses.dataclass(frozen=True)
class Try:
    """One length in one process.

    Attributes:
      length: tokens of source and target.
      outcome: "survived", "exhausted", or "timed out": the length counts as too long then.
      loss: of the step, where it survived; two variants that agree in it did the same work.
      peak_bytes: the most that the allocator had handed out, weights and batch included.
      seconds: of tracing, planning and the step.
    """

    length: int
    outcome: str
    loss: float | None = None
    peak_bytes: int | None = None
    seconds: float | None = None


def tried(variant: str, length: int) -> Try:
    """Runs one length in a fresh process.

    Raises:
      RuntimeError: the process failed for another reason than memory or time.
    """
    asked = {
        "variant": variant,
        "length": length,
        "limit": FLAGS.limit,
        "workload": FLAGS.workload,
        "max_slowdown": FLAGS.max_slowdown,
    }
    command = [sys.executable, "-m", "benchmarks.limits", _CHILD + json.dumps(asked)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FLAGS.timeout)
    except subprocess.TimeoutExpired:
        return Try(length, "timed out")
    if done.returncode:
        raise RuntimeError(f"{variant} at {length} tokens failed:\n{done.stderr[-2000:]}")
    return Try(**json.loads(done.stdout.splitlines()[-1]))


_CHILD = "child:"
"""What the argument of a child process begins with."""


def child(asked: dict) -> Try:
    """Runs the step once, under the limit."""
    import tensorflow as tf

    import rnnmem
    from models.nmt.workloads import WORKLOADS, make_batch, make_step

    rnnmem.enable_cpu_memory_stats(asked["limit"])
    length, workload = asked["length"], WORKLOADS[asked["workload"]]
    workload = dataclasses.replace(workload, source_length=length, target_length=length)
    step = tf.function(make_step(workload.config))
    if asked["variant"] != OFF:
        options = {"max_slowdown": asked["max_slowdown"], "allow": VARIANTS[asked["variant"]]}
        step = rnnmem.optimize(step, **options)
    batch = make_batch(workload)
    start = time.perf_counter()
    try:
        loss, gradients = step(*batch)
    except tf.errors.ResourceExhaustedError:
        return Try(length, EXHAUSTED)
    del gradients
    return Try(
        length=length,
        outcome=SURVIVED,
        loss=float(loss),
        peak_bytes=tf.config.experimental.get_memory_info("CPU:0")["peak"],
        seconds=time.perf_counter() - start,
    )


def bisected(survives: Callable[[int], bool], start: int) -> int:
    """The longest length that survives; 0 where not even 1 does.

    Args:
      survives: whether a length does; asked once a length.
      start: the first length to try; it is doubled until one does not survive.
    """
    low, high = 0, start
    while high <= HIGHEST and survives(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if survives(middle) else (low, middle)
    return low


def largest_multiple(survives: Callable[[int], bool], unit: int, start: int, most: int) -> int:
    """The largest multiple of ``unit`` that survives next to one that does not; 0 for none.

    Args:
      survives: whether a length does; asked once a length.
      unit: the length that is multiplied.
      start: the first multiple to try; the next ones are above it, or below where it fails.
      most: the multiple above which none is tried.
    """
    if survives(start * unit):
        multiple = start
        while multiple < most and survives((multiple + 1) * unit):
            multiple += 1
        return multiple
    return next((n for n in range(start - 1, 0, -1) if survives(n * unit)), 0)


class Row:
    """One variant: every length tried, and what was found."""

    def __init__(self, variant: str):
        self.variant = variant
        self.tries: list[Try] = []
        self.longest = 0

    def survives(self, length: int) -> bool:
        """Tries a length and prints how it went."""
        one = tried(self.variant, length)
        self.tries.append(one)
        peak = "" if one.peak_bytes is None else f", {one.peak_bytes / MIB:.0f} MiB"
        took = "" if one.seconds is None else f", {one.seconds:.0f} s"
        print(f"{self.variant:<10} {length:>6} tokens: {one.outcome}{peak}{took}", flush=True)
        return one.outcome == SURVIVED


def main(_) -> None:
    """Finds the longest length of TensorFlow alone, and multiples of it for every variant."""
    from models.nmt.benchmark import environment

    plain = Row(OFF)
    plain.longest = bisected(plain.survives, FLAGS.start)
    rows = [plain]
    for variant in FLAGS.variants if plain.longest else ():
        rows.append(Row(variant))
        multiple = largest_multiple(rows[-1].survives, plain.longest, FLAGS.multiple, FLAGS.most)
        rows[-1].longest = multiple * plain.longest
        print(f"{variant}: {rows[-1].longest} tokens, {multiple} times TensorFlow's", flush=True)
    if FLAGS.json:
        named = FLAGS.get_key_flags_for_module(__name__)
        results = [
            {**vars(row), "tries": [dataclasses.asdict(one) for one in row.tries]} for row in rows
        ]
        document = {
            "results": results,
            **environment(),
            "flags": {flag.name: flag.value for flag in named},
        }
        with open(FLAGS.json, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith(_CHILD):
        print(json.dumps(dataclasses.asdict(child(json.loads(sys.argv[1][len(_CHILD) :])))))
    else:
        define_flags()
        app.run(main)
