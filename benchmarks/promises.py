"""Whether measured times stay within ``max_slowdown``: a table of programs by bounds.

    python -m benchmarks.promises                            # all programs; takes about an hour
    python -m benchmarks.promises --program=keras --program=attention-50 --max_slowdown=1.1
    python -m benchmarks.promises --profile=10 --json=promises.json

Programs are those of the conformance table at large sizes, of ``benchmarks.recurrent`` and of
``benchmarks.whole_step``, each in a process of its own; those whose original needs less than 1 MiB
are left out. The time ratio is the median over pairs of runs in turn. An idle machine is needed.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import multiprocessing
import statistics
from collections.abc import Callable, Iterator

import tensorflow as tf
from absl import app, flags

import rnnmem
from models.nmt.benchmark import environment
from rnnmem.sizes import MIB

FLAGS = flags.FLAGS
LEAST = MIB
"""Bytes that the original must need at its peak."""
ABOVE = 0.05
"""Part of the bound that a measured time may be above it."""
LONG_SECONDS = 2.0
"""Programs whose step takes longer are left out."""


@dataclasses.dataclass(frozen=True)
class Row:
    """What one program measured under one bound: peaks in bytes, factors of step time."""

    program: str
    bound: float
    before_bytes: int
    after_bytes: int
    estimated: float
    measured: float

    @property
    def is_kept(self) -> bool:
        """Whether the measured time is within the bound and a twentieth."""
        return self.measured <= self.bound * (1 + ABOVE)


def conformance(name: str) -> tuple[Callable, tuple]:
    """A train step of the conformance table, and its arguments."""
    from tests.conformance import programs

    with programs.sized(**programs.LARGE):
        case = programs.build(name)
        step = tf.function(programs.train_step(case))
        step.get_concrete_function(*case.inputs)  # traced at these sizes
    return step, case.inputs


def recurrent(name: str) -> tuple[Callable, tuple]:
    """A step of ``benchmarks.recurrent``."""
    from benchmarks.recurrent import WORKLOADS

    workload = WORKLOADS[name](1.1)
    return workload.before, workload.arguments


def whole_step(name: str) -> tuple[Callable, tuple]:
    """A step of ``benchmarks.whole_step``."""
    from benchmarks.whole_step import original

    return original(name)


def programs() -> dict[str, tuple[Callable, str]]:
    """What may be measured: full name -> what builds it, and by which name."""
    from benchmarks.recurrent import WORKLOADS as RECURRENT
    from benchmarks.whole_step import WORKLOADS as WHOLE_STEPS
    from tests.conformance.programs import PROGRAMS

    kinds = (conformance, PROGRAMS), (recurrent, RECURRENT), (whole_step, WHOLE_STEPS)
    return {f"{build.__name__}/{name}": (build, name) for build, names in kinds for name in names}


def measured(full: str, bounds: list[float], pairs: int, profile: float) -> list[Row]:
    """The rows of one program, in this process; none where it is too small or too long."""
    rnnmem.enable_cpu_memory_stats()
    tf.config.experimental.enable_op_determinism()
    build, name = programs()[full]
    step, arguments = build(name)
    if not hasattr(step, "get_concrete_function"):
        return []  # a method of a Keras model
    alone = rnnmem.measure(step, *arguments, repeats=2)
    if alone.peak_bytes < LEAST or alone.seconds > LONG_SECONDS:
        return []
    rows = []
    for bound in bounds:
        after = rnnmem.optimize(step, max_slowdown=bound, profile=profile)
        after(*arguments)
        plan = after.plan(*arguments)
        pair = rnnmem.measure_pair(step, after, *arguments, repeats=pairs)
        peaks = pair.first.peak_bytes, pair.second.peak_bytes
        rows.append(Row(full, bound, *peaks, plan.slowdown, pair.time_ratio))
    return rows


def run(names: list[str], *rest) -> Iterator[Row]:
    """The rows of these programs, in a process for each."""
    context = multiprocessing.get_context("spawn")
    for name in names:
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            try:
                yield from pool.submit(measured, name, *rest).result()
            except Exception as error:  # the others are measured all the same
                print(f"{name}: {type(error).__name__}: {error}", flush=True)


def line(row: Row) -> str:
    """One line of the table."""
    before, after = row.before_bytes / MIB, row.after_bytes / MIB
    return (
        f"{row.program:45}{row.bound:6.2f}{before:9.1f} MiB{after:9.1f} MiB"
        f"{row.estimated:8.2f}x{row.measured:7.2f}x  {'' if row.is_kept else 'ABOVE'}"
    )


def summary(rows: list[Row], bound: float) -> str:
    """How many rows of a bound are within it, and what they save, in a sentence."""
    here = [row for row in rows if row.bound == bound]
    kept = sum(row.is_kept for row in here)
    saved = statistics.median(row.before_bytes / row.after_bytes for row in here)
    took = statistics.median(row.measured for row in here)
    return (
        f"bound {bound:g}: {kept} of {len(here)} within it ({100 * kept / len(here):.0f} %), "
        f"{took:.2f}x the time and {saved:.2f}x less memory in the median"
    )


def write(rows: list[Row]) -> None:
    """Writes the JSON as far as it is measured: what is stopped keeps its rows."""
    if FLAGS.json:
        told = [{**dataclasses.asdict(row), "is_kept": row.is_kept} for row in rows]
        found = {"rows": told, **environment()}
        with open(FLAGS.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2)


def main(_):
    """Measures the programs, prints the table and writes the JSON."""
    every = programs()
    wanted = FLAGS.program or [""]
    names = [name for name in every if any(one in name for one in wanted)]
    bounds, rows = FLAGS.max_slowdown, []
    print(
        f"{'program':45}{'bound':>6}{'before':>13}{'after':>13}{'est.':>9}{'time':>8}", flush=True
    )
    for row in run(names, bounds, FLAGS.pairs, FLAGS.profile):
        rows.append(row)
        print(line(row), flush=True)
        write(rows)
    for bound in bounds if rows else ():
        print(summary(rows, bound))


if __name__ == "__main__":
    flags.DEFINE_multi_string("program", None, "parts of the names of those to run (default: all)")
    flags.DEFINE_multi_float("max_slowdown", [1.1, 1.35, 2.0], "bounds on time")
    flags.DEFINE_integer("pairs", 9, "paired runs whose median counts", lower_bound=1)
    flags.DEFINE_float(
        "profile", 0.0, "seconds for which times are measured to plan", lower_bound=0
    )
    flags.DEFINE_string("json", None, "write the figures to this file")
    app.run(main)
