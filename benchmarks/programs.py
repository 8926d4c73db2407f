"""Every program of the conformance table on the device that is here: bits, peaks, times.

    python -m benchmarks.programs --jobs=12 --json=benchmarks/results/gpu-programs.json
    python -m benchmarks.programs --program=keras.LSTM --program=autograph.range

A program's step runs three times from one state as TensorFlow runs it and under rnnmem, with op
determinism, at several bounds on time; all results, variables and side effects are compared bit for
bit. With several jobs processes share the device, so their times tell little.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from absl import app, flags

FLAGS = flags.FLAGS
BOUNDS = (1.1, 1.35, 1e9)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One program at one bound.

    Attributes:
      program: its name in `tests.conformance.programs`.
      max_slowdown: the bound.
      rewritten: whether anything was.
      difference: the first result whose bits differ, or side effects; empty where all are equal.
      before_bytes: peak as TensorFlow runs it; `after_bytes` under rnnmem.
      predicted_bytes: between which the second was predicted to lie.
      time_ratio: its time by the original's; `estimated_ratio` by the plan.
      reason: why there are no figures.
    """

    program: str
    max_slowdown: float = 0.0
    rewritten: bool = False
    difference: str = ""
    before_bytes: int | None = None
    after_bytes: int | None = None
    predicted_bytes: tuple[int, int] | None = None
    time_ratio: float | None = None
    estimated_ratio: float | None = None
    reason: str = ""

    @property
    def is_foretold(self) -> bool | None:
        """Whether the peak lies where it was predicted to; None where it was not."""
        if self.predicted_bytes is None or self.after_bytes is None:
            return None
        low, high = self.predicted_bytes
        return low <= self.after_bytes <= high


def outcomes(program: str) -> list[Outcome]:
    """Runs one program in this process, which has run none before."""
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"  # several processes share the device
    import tensorflow as tf

    import rnnmem

    rnnmem.enable_cpu_memory_stats()
    tf.keras.utils.set_random_seed(7)
    tf.config.experimental.enable_op_determinism()
    from tests.conformance.harness import Subject
    from tests.conformance.programs import LARGE, build, sized

    try:
        with sized(**LARGE):
            subject = Subject(build(program))
        original = subject.run(subject.function)
        return [_outcome(program, subject, original, bound) for bound in BOUNDS]
    except Exception as error:  # a program that fails must not take the others with it
        return [Outcome(program, reason=f"{type(error).__name__}: {str(error).strip()[:300]}")]


def _outcome(program, subject, original, bound: float) -> Outcome:
    import rnnmem
    from tests.conformance.harness import difference

    inputs = subject.case.inputs
    function, _ = subject.optimised(bound)
    plan = function.plan(*inputs)
    run = subject.run(function)
    gap = difference(original, run)
    if not gap and run.effects != original.effects:
        gap = f"side effects: {run.effects}, not {original.effects}"
    pair = rnnmem.measure_pair(subject.function, function, *inputs)
    return Outcome(
        program,
        bound,
        not plan.changes_nothing,
        gap,
        pair.first.peak_bytes,
        pair.second.peak_bytes,
        plan.predicted_interval,
        pair.time_ratio,
        plan.slowdown,
    )


def run(programs: Iterable[str], jobs: int) -> Iterator[list[Outcome]]:
    """Runs each program in a process of its own, so many at once; as they are done."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, context, max_tasks_per_child=1) as pool:
        pending = [pool.submit(outcomes, program) for program in programs]
        for one in concurrent.futures.as_completed(pending):
            yield one.result()


def summary(found: list[Outcome]) -> list[str]:
    """What came of all, a line for each bound, and each that is not as it should be."""
    lines = [f"{one.program}: {one.reason}" for one in found if one.reason]
    for bound in BOUNDS:
        rows = [one for one in found if one.max_slowdown == bound and one.rewritten]
        foretold = [one.is_foretold for one in rows]
        saved = [one for one in rows if one.after_bytes and one.before_bytes]
        ratios = sorted(one.before_bytes / one.after_bytes for one in saved)
        lines += [f"{one.program} at {bound:g}: {one.difference}" for one in rows if one.difference]
        lines.append(
            f"max_slowdown={bound:g}: {len(rows)} rewritten, "
            f"{sum(not one.difference for one in rows)} with equal bits; peak in the predicted "
            f"interval {foretold.count(True)}, outside {foretold.count(False)}; "
            f"median saving {ratios[len(ratios) // 2] if ratios else 1:.2f}x"
        )
    return lines


def define_flags() -> None:
    """Defines the knobs; not on import, so that these programs can be imported side by side."""
    flags.DEFINE_multi_string("program", None, "which to run (default: all)")
    flags.DEFINE_integer("jobs", 1, "processes at once", lower_bound=1)
    flags.DEFINE_string("json", None, "write the figures to this file")


def main(_) -> None:
    """Runs the programs and prints what came of them."""
    from models.nmt.benchmark import environment
    from tests.conformance.programs import PROGRAMS

    found: list[Outcome] = []
    for some in run(FLAGS.program or PROGRAMS, FLAGS.jobs):
        found += some
        print(".", end="", flush=True)
    print("", *summary(found), sep="\n")
    if FLAGS.json:
        results = sorted(map(dataclasses.asdict, found), key=lambda one: one["program"])
        document = {"results": results, **environment()}
        Path(FLAGS.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    define_flags()
    app.run(main)
