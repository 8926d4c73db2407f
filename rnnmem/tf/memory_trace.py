"""Memory over one run, as TensorFlow's own allocator told it to TensorFlow's profiler."""

from __future__ import annotations

import collections
import gc
from collections.abc import Callable
from typing import Any, NamedTuple

from rnnmem.errors import MeasureError
from rnnmem.tf import private
from rnnmem.tf.measure import reset_peak
from rnnmem.tf.own_devices import find_device, sync_devices


class Change(NamedTuple):
    """One chunk taken or given back.

    Attributes:
      op: name of the op that took it; empty where unknown, and where one is given back.
      bytes: in use afterwards, above what was resident before the run.
    """

    op: str
    bytes: int


def trace_memory(call: Callable[[], Any]) -> tuple[Change, ...]:
    """Runs a step once, and tells every change of what is in use on the measured device, in order.

    The results of the step are alive at the end. The device must count its memory.

    Raises:
      MeasureError: another profile is being taken, this process is one of several workers, or the
        profiler tells nothing of the device.
    """
    device = find_device(None)
    gc.collect()
    resident = reset_peak(device)
    trace = private.AllocationTrace()
    try:
        results = call()
        sync_devices()
    finally:
        changes = trace.stop()
    del results
    kind, _, number = device.partition(":")
    # The allocator of a GPU has its number in its name; one for the CPU has "cpu" there.
    wanted = f"GPU_{number}_bfc" if kind == "GPU" else "cpu"
    found = [one for one in changes if wanted in one.allocator]
    most = collections.Counter(one.allocator for one in found).most_common(1)
    if not most:
        raise MeasureError(f"TensorFlow's profiler tells no allocations on {device}")
    return tuple(
        Change(one.op, one.in_use - resident) for one in found if one.allocator == most[0][0]
    )
