"""One model in one column, measured in this process: `benchmarks.peers` starts one for each.

Its argument is what :func:`measured` is given, as JSON; it prints what that returns.
"""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np

from benchmarks.peers.columns import COLUMNS
from benchmarks.peers.models import MODELS, SMALL
from benchmarks.peers.step import median_seconds, process_peak, share_one_arena

QUICK, SLOW = 1.0, 5.0
"""Seconds of a step up to which it is repeated five times, and from which once."""


SECONDS, COUNTED, PROCESS = "seconds", "counted", "process"


def runs(column: str) -> list[list[str]]:
    """What is measured together, in one process.

    To count, TensorFlow needs an allocator that gives nothing back to the system, so that the
    process's peak is another one's. Other frameworks do all in one.
    """
    if COLUMNS[column].framework == "tensorflow":
        return [[SECONDS, COUNTED], [PROCESS]]
    return [[SECONDS, PROCESS, COUNTED]]


def measured(model: str, column: str, small: bool, figures: list[str], arrays: str) -> dict:
    """Measures one model in one column.

    Args:
      model: a name in `MODELS`.
      column: a name in `COLUMNS`.
      small: whether the sizes are those of `SMALL`.
      figures: one of what `runs` gives.
      arrays: where the loss and the gradients are written, as ``.npz``.
    """
    if PROCESS in figures:
        share_one_arena()
    if COLUMNS[column].framework == "tensorflow":
        _set_up_tensorflow(COUNTED in figures)
    start = time.perf_counter()
    step = COLUMNS[column].make_step((SMALL if small else MODELS)[model]())
    first = step.arrays(step.call())
    found: dict = {"first_call_seconds": time.perf_counter() - start}
    np.savez(arrays, **first)
    start = time.perf_counter()
    second = step.arrays(step.call())
    seconds = time.perf_counter() - start
    found["repeats_itself"] = all(first[n].tobytes() == second[n].tobytes() for n in first)
    del first, second
    repeats = 5 if seconds < QUICK else 3 if seconds < SLOW else 1
    if SECONDS in figures:
        found |= {"repeats": repeats, "seconds": median_seconds(step, repeats)}
    if PROCESS in figures:
        found["process_bytes"] = process_peak(step, min(repeats, 3))
    if COUNTED in figures:
        found["counted_bytes"] = step.counted()
    return found


def _set_up_tensorflow(counts: bool) -> None:
    # Otherwise oneDNN's allocator keeps what it once had.
    os.environ["TF_ONEDNN_USE_SYSTEM_ALLOCATOR"] = "true"
    import tensorflow as tf

    import rnnmem

    tf.config.experimental.enable_op_determinism()
    if counts:
        rnnmem.enable_cpu_memory_stats()


if __name__ == "__main__":
    print(json.dumps(measured(**json.loads(sys.argv[1]))))
