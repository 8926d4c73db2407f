"""A train step of any framework, and its cost: seconds, and bytes of the process."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_GLIBC_THRESHOLD = 128 << 10
"""What glibc begins with."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One step: loss and the gradients of all weights.

    Attributes:
      call: computes it, and returns when all of it is there.
      arrays: what `call` returned -> "loss" and the gradient of each weight.
      counted: bytes above the resident state as the framework counts them; None: it counts none.
    """

    call: Callable[[], Any]
    arrays: Callable[[Any], dict[str, np.ndarray]]
    counted: Callable[[], int | None]


def median_seconds(step: Step, repeats: int) -> float:
    """The median time of a step, its results dropped."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        results = step.call()
        taken.append(time.perf_counter() - start)
        del results
    return statistics.median(taken)


def share_one_arena() -> None:
    """Has all threads allocate from one arena; before there are several.

    Otherwise small buffers that one thread freed are of no use to the others, and the process's
    peak says more about which thread ran what than about the step.
    """
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def process_peak(step: Step, repeats: int) -> int:
    """The process's peak resident set in a step above its idle state, in bytes; the largest of all.

    glibc raises the size from which a buffer is a mapping of its own, given back when it is freed,
    with every one that is freed. It is held at what it begins with, and what is free is given back
    before each step, so that what the step touches shows.
    """
    libc = ctypes.CDLL(None)
    for parameter in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
        libc.mallopt(parameter, _GLIBC_THRESHOLD)
    peaks = []
    for _ in range(repeats):
        gc.collect()
        libc.malloc_trim(0)
        idle = _kib("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak is forgotten
        results = step.call()
        peaks.append(_kib("VmHWM") - idle)
        del results
    return max(peaks) << 10


def _kib(entry: str) -> int:
    return int(re.search(rf"{entry}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])
