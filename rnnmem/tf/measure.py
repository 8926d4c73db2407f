"""Peak memory and time of a step, as TensorFlow's own allocator sees them.

The allocator counts what is in use, not what the process keeps in reserve, so other processes do
not matter. It counts by chunks: a buffer takes a free chunk whole unless half of it (or 128 MiB)
would be left over. On a GPU the figures are always there. On a CPU they need the BFC allocator,
which TensorFlow chooses when it runs its first op (`enable_cpu_memory_stats`); its default one
has figures that must not be believed (`rnnmem.tf.counting`).

Times on a shared machine are noisy: quote ratios, and take them from `measure_pair`.
"""

import dataclasses
import functools
import gc
import os
import statistics
import time
from collections.abc import Callable
from typing import Any, SupportsIndex

import tensorflow as tf

from rnnmem.errors import MeasureError, OptionError
from rnnmem.sizes import MIB, format_bytes, parse_bytes
from rnnmem.tf import private
from rnnmem.tf.counting import ENABLE, USE_BFC, counts_memory, in_use
from rnnmem.tf.own_devices import find_device, sync_devices

_BFC_LIMIT_MIB = "TF_CPU_BFC_MEM_LIMIT_IN_MB"

ROW_SECONDS = 0.1
"""How long the steps of a pair run in a row, where one takes less: behind a collection of garbage
the first finds cold caches and sleeping threads, as no step of a training does."""
MOST_IN_ROW = 25
"""Steps that run so at most."""


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What one step costs.

    Attributes:
        peak_bytes: the most that the step had in use above what was resident, its results included.
        resident_bytes: in use before the step (weights, optimizer slots, inputs), at that peak.
        seconds: median time of a step.
        repeats: how many steps were measured.
        device: whose memory was measured, e.g. "CPU:0".
    """

    peak_bytes: int
    resident_bytes: int
    seconds: float
    repeats: int
    device: str

    def __str__(self) -> str:
        """Prints one line, memory in MiB."""
        return (
            f"peak {self.peak_bytes / MIB:.2f} MiB above {self.resident_bytes / MIB:.2f} MiB "
            f"resident on {self.device}, {self.seconds:.4f} s (median of {self.repeats})"
        )


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two steps measured in turn.

    Attributes:
        first: the step to compare with.
        second: the step that is compared.
        time_ratio: median over the pairs of the second's seconds by the first's.
    """

    first: Measurement
    second: Measurement
    time_ratio: float

    @property
    def peak_ratio(self) -> float:
        """The second's peak by the first's."""
        return self.second.peak_bytes / self.first.peak_bytes

    def __str__(self) -> str:
        """Prints three lines: first, second, ratios."""
        return (
            f"first:  {self.first}\nsecond: {self.second}\n"
            f"second/first: {self.peak_ratio:.3f}x peak, {self.time_ratio:.3f}x time"
        )


@dataclasses.dataclass(frozen=True)
class _Run:
    peak_bytes: int
    resident_bytes: int
    seconds: float


def enable_cpu_memory_stats(limit: SupportsIndex | str | None = None) -> None:
    """Makes TensorFlow count its CPU memory, optionally with a limit that it cannot exceed.

    It must come before TensorFlow's first op. Calling it again changes nothing.

    Args:
        limit: bytes as an int, or "512MiB", "2GiB"; above it TensorFlow raises
            `tf.errors.ResourceExhaustedError`. TensorFlow counts whole MiB, so it is rounded down.
            None keeps TensorFlow's own limit.

    Raises:
        MeasureError: TensorFlow already runs, without memory statistics or with another limit.
        OptionError: the limit is not a size, or less than 1 MiB.
    """
    limit_mib = None
    if limit is not None:
        limit_mib = str(parse_bytes(limit, "limit") // MIB)
        if limit_mib == "0":
            raise OptionError(f"limit={limit!r} is less than 1 MiB, TensorFlow's smallest limit")
    if private.eager_context_is_initialized():
        _check_enabled_in_time(limit, limit_mib)
        return
    os.environ[USE_BFC] = "true"
    if limit_mib is not None:
        os.environ[_BFC_LIMIT_MIB] = limit_mib


def measure(
    fn: Callable[..., Any],
    *args: Any,
    repeats: int = 5,
    device: str | None = None,
    **kwargs: Any,
) -> Measurement:
    """Measures the peak memory and the time of `fn(*args, **kwargs)`.

    The function runs once unmeasured, so that it is traced and its variables exist, then `repeats`
    times. Its results are dropped after each run.

    Args:
        fn: the step; any callable that runs TensorFlow ops. A Python function runs them one by
            one: give ``tf.function(fn)`` for what TensorFlow makes of it.
        *args: its arguments.
        repeats: measured runs; the peak is the largest, the time the median.
        device: whose memory to measure, e.g. "GPU:1"; by default the first GPU, else "CPU:0". It
            does not place the ops.
        **kwargs: its keyword arguments.

    Returns:
        The measurement.

    Raises:
        MeasureError: the device counts no memory, or the function uses none of it.
        OptionError: `fn`, `repeats` or `device` is malformed.
    """
    device = _prepare(device, repeats, fn=fn)
    step = functools.partial(fn, *args, **kwargs)
    _run(step, device)
    runs = [_run(step, device) for _ in range(repeats)]
    return _summarize(runs, device, "fn")


def measure_pair(
    first: Callable[..., Any],
    second: Callable[..., Any],
    *args: Any,
    repeats: int = 5,
    device: str | None = None,
    **kwargs: Any,
) -> Comparison:
    """Measures two functions on the same arguments in turn: first, second, first, second, ...

    A machine's drifts hit both runs of a pair alike, so the ratio of times is the median of the
    pairs' ratios. Both functions run once unmeasured before. Steps that take less than a tenth of a
    second run several times in a row in each pair, and their median counts, as in a training one
    step follows the other; peaks are those of the first.

    Args:
        first: the step to compare with; as `fn` of `measure`.
        second: the step that is compared.
        *args: arguments of both.
        repeats: measured pairs.
        device: as in `measure`.
        **kwargs: keyword arguments of both.

    Returns:
        Both measurements and the ratio of times.

    Raises:
        MeasureError: as in `measure`.
        OptionError: as in `measure`.
    """
    device = _prepare(device, repeats, first=first, second=second)
    steps = [functools.partial(fn, *args, **kwargs) for fn in (first, second)]
    for step in steps:
        _run(step, device)
    pairs = [tuple(_in_row(step, _run(step, device)) for step in steps) for _ in range(repeats)]
    return Comparison(
        first=_summarize([one for one, _ in pairs], device, "first"),
        second=_summarize([other for _, other in pairs], device, "second"),
        time_ratio=statistics.median(other.seconds / one.seconds for one, other in pairs),
    )


def run_measured(call: Callable[[], Any]) -> tuple[Any, int | None]:
    """Calls a step once, and measures the peak above what was resident.

    Returns:
        The step's results, and the peak in bytes; None where there is no figure: `uncounted` tells
        why.
    """
    device = find_device(None)
    if not counts_memory(device):
        return call(), None
    gc.collect()
    resident = reset_peak(device)
    results = call()
    used = peak(device) - resident
    return results, used if used > 0 else None


def counting_device(device: str | None) -> str:
    """The name of a device (by default of the first GPU, else "CPU:0") that counts its memory.

    Raises:
        MeasureError: it counts none.
        OptionError: it is not here.
    """
    name = find_device(device)
    if not counts_memory(name):
        raise MeasureError(f"{name} does not count all of its memory: {ENABLE}")
    return name


def reset_peak(device: str) -> int:
    """Forgets a device's peak; returns the bytes in use now."""
    sync_devices()
    tf.config.experimental.reset_memory_stats(device)
    return in_use(device)


def peak(device: str) -> int:
    """The most bytes that were in use at once since `reset_peak`."""
    sync_devices()
    return tf.config.experimental.get_memory_info(device)["peak"]


def _prepare(device: str | None, repeats: int, **functions: Callable[..., Any]) -> str:
    """Checks everything that can be checked before a step runs; returns the device's name."""
    for name, function in functions.items():
        if not callable(function):
            raise OptionError(f"{name}={function!r} is not callable: pass the step itself")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise OptionError(f"repeats={repeats!r} is not a count: pass an int of at least 1")
    if not tf.executing_eagerly() or tf.inside_function():
        raise MeasureError("measuring happens outside of tf.function and of graphs: call it there")
    return counting_device(device)


def _check_enabled_in_time(limit: SupportsIndex | str | None, limit_mib: str | None) -> None:
    if not counts_memory("CPU:0"):
        raise MeasureError(
            f"too late: TensorFlow already ran ops without statistics of all CPU memory; {ENABLE}"
        )
    if limit_mib is not None and limit_mib != os.environ.get(_BFC_LIMIT_MIB):
        raise MeasureError(
            f"too late for limit={limit!r}: TensorFlow already ran ops with another limit; "
            "call rnnmem.enable_cpu_memory_stats(limit) before its first op"
        )


def _run(step: Callable[[], Any], device: str) -> _Run:
    # Garbage of the run before must not count as resident, nor be freed in the middle of this one.
    gc.collect()
    resident = reset_peak(device)
    result, seconds = _timed(step)
    most = peak(device)
    del result
    return _Run(peak_bytes=most - resident, resident_bytes=resident, seconds=seconds)


def _timed(step: Callable[[], Any]) -> tuple[Any, float]:
    """What a step returns, and its seconds."""
    start = time.perf_counter()
    result = step()
    sync_devices()
    return result, time.perf_counter() - start


def _in_row(step: Callable[[], Any], run: _Run) -> _Run:
    """The run with the time that the step takes where it follows itself, if it is a short one."""
    count = int(ROW_SECONDS / max(run.seconds, ROW_SECONDS / MOST_IN_ROW))
    if not count:
        return run
    return dataclasses.replace(
        run, seconds=statistics.median(_timed(step)[1] for _ in range(count))
    )


def _summarize(runs: list[_Run], device: str, name: str) -> Measurement:
    worst = max(runs, key=lambda run: run.peak_bytes)
    if worst.peak_bytes <= 0:
        raise MeasureError(
            f"{name} used no memory of {device} above the {format_bytes(worst.resident_bytes)} "
            "that was resident: a peak of 0 is no figure. Does it run TensorFlow ops, and on "
            f"{device}? Name another with device=..."
        )
    return Measurement(
        peak_bytes=worst.peak_bytes,
        resident_bytes=worst.resident_bytes,
        seconds=statistics.median(run.seconds for run in runs),
        repeats=len(runs),
        device=device,
    )
