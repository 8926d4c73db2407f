"""A named workload as TensorFlow runs it, at rnnmem's default, and at its least memory.

All variants run in turn, round by round, in one process, so that a machine's drifts hit them alike;
the ratio of times is the median over the rounds. What fits in a limit is found by `rnnmem.largest`.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

import rnnmem
from models.nmt.workloads import WORKLOADS, Workload, make_batch, make_step
from rnnmem.sizes import format_bytes
from rnnmem.tf.counting import uncounted
from rnnmem.tf.measure import run_measured

OFF, DEFAULT, SMALLEST = "off", "default", "smallest"
VARIANTS = {DEFAULT: {}, SMALLEST: {"max_slowdown": 100.0}}  # whatever time it takes


@dataclasses.dataclass(frozen=True)
class Row:
    """One workload in one variant.

    Attributes:
        workload: its name.
        variant: "off", "default" or "smallest".
        before_bytes: peak above resident as TensorFlow runs it.
        after_bytes: likewise in this variant.
        seconds: the median of a step.
        time_ratio: the median of its seconds by those without rnnmem, over the rounds.
        tokens_per_second: target tokens.
        first_call_seconds: of tracing, planning and the first step.
        identical: whether loss and all gradients have the bits of TensorFlow's.
        largest_batch: that fits the limit; None where there is no limit.
        longest_sentence: of source and target, likewise.
    """

    workload: str
    variant: str
    before_bytes: int
    after_bytes: int
    seconds: float
    time_ratio: float
    tokens_per_second: float
    first_call_seconds: float
    identical: bool
    largest_batch: int | None = None
    longest_sentence: int | None = None

    @property
    def saving(self) -> float:
        """The part of the peak that is gone, 0 to 1."""
        return 1 - self.after_bytes / self.before_bytes


def compare(
    name: str, rounds: int, limit: int | str | None = None, highest: int | None = None
) -> list[Row]:
    """Measures one workload in every variant.

    Args:
        name: of `WORKLOADS`.
        rounds: how often every variant runs.
        limit: bytes above the resident state, for the largest batch and the longest sentence; None:
            they are not looked for.
        highest: the largest batch and length that are tried.

    Returns:
        A row a variant, "off" first.

    Raises:
        rnnmem.MeasureError: the device counts no memory.
    """
    workload = WORKLOADS[name]
    step = make_step(workload.config)
    steps = {OFF: tf.function(step)}
    for variant, options in VARIANTS.items():
        steps[variant] = rnnmem.optimize(step, **options)
    batch = make_batch(workload)
    first, bits = {}, {}
    for variant, function in steps.items():
        start = time.perf_counter()
        bits[variant] = [x.numpy().tobytes() for x in tf.nest.flatten(function(*batch))]
        first[variant] = time.perf_counter() - start
    peaks = {variant: 0 for variant in steps}
    seconds: dict[str, list[float]] = {variant: [] for variant in steps}
    for _ in range(rounds):
        for variant, function in steps.items():
            taken, peak = _timed(function, batch)
            if peak is None:
                raise rnnmem.MeasureError(f"nothing was measured: {uncounted()}")
            peaks[variant] = max(peaks[variant], peak)
            seconds[variant].append(taken)
    rows = []
    for variant, function in steps.items():
        median = statistics.median(seconds[variant])
        ratios = [s / off for s, off in zip(seconds[variant], seconds[OFF], strict=True)]
        row = Row(
            workload=name,
            variant=variant,
            before_bytes=peaks[OFF],
            after_bytes=peaks[variant],
            seconds=median,
            time_ratio=statistics.median(ratios),
            tokens_per_second=workload.batch * workload.target_length / median,
            first_call_seconds=first[variant],
            identical=bits[variant] == bits[OFF],
        )
        if limit is not None:
            batches, lengths = _sizes(workload)
            row = dataclasses.replace(
                row,
                largest_batch=_largest(function, batches, limit, highest),
                longest_sentence=_largest(function, lengths, limit, highest),
            )
        rows.append(row)
    return rows


def _timed(function, batch):
    """Seconds and peak of one step; its results are dropped."""
    taken = []

    def call():
        start = time.perf_counter()
        results = function(*batch)
        tf.test.experimental.sync_devices()
        taken.append(time.perf_counter() - start)
        return results

    results, peak = run_measured(call)
    del results
    return taken[0], peak


def _sizes(workload: Workload) -> tuple[Callable, Callable]:
    """How to make a batch of so many sentences, and one of so long sentences."""
    return (
        lambda n: make_batch(dataclasses.replace(workload, batch=n)),
        lambda n: make_batch(dataclasses.replace(workload, source_length=n, target_length=n)),
    )


def _largest(function, make_args, limit, highest):
    """The largest size that fits; 0 where nothing does."""
    try:
        return rnnmem.largest(function, make_args, limit, high=highest)
    except rnnmem.BudgetError:
        return 0


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    sizes = any(row.largest_batch is not None for row in rows)
    lines = [
        "| Workload | rnnmem | Before | After | Saving | Time | Tokens/s | Bits |"
        + (" Batch | Length |" if sizes else ""),
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"
        + (" ---: | ---: |" if sizes else ""),
    ]
    for r in rows:
        line = (
            f"| {r.workload} | {r.variant} | {format_bytes(r.before_bytes)} "
            f"| {format_bytes(r.after_bytes)} | {100 * r.saving:.1f} % | {r.time_ratio:.2f}x "
            f"| {r.tokens_per_second:.0f} | {'identical' if r.identical else 'DIFFER'} |"
        )
        lines.append(line + (f" {r.largest_batch} | {r.longest_sentence} |" if sizes else ""))
    return "\n".join(lines)


def draw(rows: Sequence[Row], path: str | os.PathLike) -> None:
    """Draws peaks and times of all workloads as bars; the file's name says the format.

    Raises:
        ValueError: matplotlib, of the extra [report], is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("a picture needs matplotlib: pip install 'rnnmem[report]'") from error
    names = list(dict.fromkeys(row.workload for row in rows))
    variants = (OFF, *VARIANTS)
    figure = Figure(figsize=(10, 1.5 + 0.9 * len(names)), layout="constrained")
    memory, speed = figure.subplots(1, 2, sharey=True)
    for i, variant in enumerate(variants):
        chosen = {row.workload: row for row in rows if row.variant == variant}
        places = [n + (i - 1) * 0.27 for n in range(len(names))]
        peaks = [chosen[name].after_bytes / 2**20 for name in names]
        bars = memory.barh(places, peaks, 0.25, label=f"rnnmem {variant}")
        memory.bar_label(bars, fmt="%.0f", padding=2)
        ratios = [chosen[name].time_ratio for name in names]
        speed.bar_label(speed.barh(places, ratios, 0.25), fmt="%.2f", padding=2)
    memory.set_xlabel("peak above resident, MiB")
    memory.set_xscale("log")
    speed.set_xlabel("time of a step, TensorFlow = 1")
    memory.set_yticks(range(len(names)), names)
    memory.invert_yaxis()
    figure.legend(loc="outside upper center", ncols=len(variants))
    figure.savefig(path)
