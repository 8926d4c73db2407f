"""How much memory each stage takes, as TensorFlow's allocators see it.

A GPU, logical ones too, and a worker process have an allocator of their own: their peak is read
after an ordinary step. All CPU devices of one process share one allocator. There the step runs
in one thread, one action at a time, what goes between stages is truly copied, and each action's
bytes are counted for its stage; no order of actions within a stage is changed, so neither is its
peak.

An allocator hands out whole free chunks of up to twice the size that was asked for, as they happen
to lie, and its statistics count those. What was asked for is told by TensorFlow's own trace of its
allocators (``Requests``), which is exact and slow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from rnnmem.errors import MeasureError
from rnnmem.pipeline.devices import is_local, worker_of
from rnnmem.sizes import format_bytes
from rnnmem.tf import private
from rnnmem.tf.counting import shows_small_tensors

PROBE = "pyfunc_0"
"""The name under which a worker's process registers ``count_memory``; see worker.py."""
_MARK = 7305271
_NAME = "rnnmem stage "
_START = "start it with python -m rnnmem.pipeline.worker, or call rnnmem.pipeline.serve in it"


@dataclasses.dataclass(frozen=True)
class StageMemory:
    """What one stage took in one step.

    Attributes:
      stage: its number.
      device: where it ran.
      resident_bytes: in use before the step: variables, optimizer, sums of gradients.
      peak_bytes: the most that was in use, above that.
      scopes: the most forward scopes that were alive at once.
      requested_bytes: the most that the stage had asked for and not given back, without the loss of
        whole chunks; None where that was not traced.
    """

    stage: int
    device: str
    resident_bytes: int
    peak_bytes: int
    scopes: int
    requested_bytes: int | None = None

    def __str__(self) -> str:
        """Prints one line."""
        return (
            f"stage {self.stage}: peak {format_bytes(self.peak_bytes)} above "
            f"{format_bytes(self.resident_bytes)} resident, at most {self.scopes} forward scopes, "
            f"on {self.device}"
        )


def allocator_of(device: str) -> str:
    """Names the allocator behind a device."""
    spec = tf.DeviceSpec.from_string(device)
    return worker_of(device) if spec.device_type == "CPU" else device


def count_memory(reset: np.ndarray) -> tuple[np.int64, np.int64, np.int64]:
    """A worker's own memory: a mark, bytes in use, and the peak since the last reset."""
    # The first op of this process chooses its allocator, and there must be one.
    info = tf.config.experimental.get_memory_info("CPU:0")
    if reset:
        tf.config.experimental.reset_memory_stats("CPU:0")
    return np.int64(_MARK), np.int64(info["current"]), np.int64(info["peak"])


class Meter:
    """Reads one device's allocator."""

    def __init__(self, device: str):
        self.device = device
        self._read(reset=True)
        if not shows_small_tensors(device, lambda: self._read(reset=False)[0]):
            raise self._uncounted()

    def reset(self) -> int:
        """Starts a new peak; answers with the bytes in use."""
        return self._read(reset=True)[0]

    def read(self) -> tuple[int, int]:
        """Bytes in use, and the peak since the last reset."""
        return self._read(reset=False)

    def _read(self, reset: bool) -> tuple[int, int]:
        if is_local(self.device):
            name = self.device.rsplit("device:", 1)[-1]
            try:
                info = tf.config.experimental.get_memory_info(name)
                if reset:
                    tf.config.experimental.reset_memory_stats(name)
            except ValueError as error:
                raise self._uncounted() from error
            return info["current"], info["peak"]
        if tf.DeviceSpec.from_string(self.device).device_type != "CPU":
            raise MeasureError(f"{self.device}: memory of a worker's GPU cannot be read from here")
        try:
            with tf.device(worker_of(self.device) + "/device:CPU:0"):
                mark, current, peak = tf.raw_ops.PyFunc(
                    input=[tf.constant(reset)], token=PROBE, Tout=[tf.int64] * 3
                )
                found = int(mark), int(current), int(peak)
        except tf.errors.OpError as error:
            raise MeasureError(f"{self.device} does not count its memory: {_START}") from error
        if found[0] != _MARK:
            raise MeasureError(f"{self.device} does not count its memory: {_START}")
        return found[1:]

    def _uncounted(self) -> MeasureError:
        return MeasureError(
            f"{self.device} does not count all of its memory: call "
            "rnnmem.enable_cpu_memory_stats() before TensorFlow runs its first op"
        )


class Shares:
    """Counts, for stages that share an allocator, what each one's actions take and give back."""

    def __init__(self, meters: list[Meter]):
        self._meters = meters
        self._held = [0] * len(meters)
        self.peaks = [0] * len(meters)

    @contextlib.contextmanager
    def around(self, stage: int) -> Iterator[None]:
        """A context in which only the stage takes memory."""
        meter = self._meters[stage]
        before = meter.reset()
        yield
        after, peak = meter.read()
        self.peaks[stage] = max(self.peaks[stage], self._held[stage] + peak - before)
        self._held[stage] += after - before


class Requests:
    """Counts, from TensorFlow's trace of its allocators, what each stage asked for.

    What was asked for counts for the stage whose action it was, until it is given back.
    """

    WINDOW = 64
    """Actions after which the trace is read, which would else grow large."""

    def __init__(self, stages: int):
        self.peaks = [0] * stages
        self._held = [0] * stages
        self._owner: dict[int, tuple[int, int]] = {}  # address -> (stage, bytes)
        self._actions = 0
        self._trace: Any = None

    @contextlib.contextmanager
    def around(self, stage: int) -> Iterator[None]:
        """A context in which only the stage takes memory."""
        if self._trace is None:
            self._trace = private.AllocationTrace()
        with tf.profiler.experimental.Trace(f"{_NAME}{stage}"):
            yield
        self._actions += 1
        if self._actions % self.WINDOW == 0:
            self.read()

    def read(self) -> None:
        """Counts what was traced since the last time."""
        trace, self._trace = self._trace, None
        stage = 0
        for _, kind, address, size, *_ in trace.stop() if trace is not None else ():
            if kind == "take":
                self._drop(address)
                self._owner[address] = stage, size
                self._held[stage] += size
                self.peaks[stage] = max(self.peaks[stage], self._held[stage])
            elif kind == "give":
                self._drop(address)
            else:
                stage = int(kind.removeprefix(_NAME))

    def _drop(self, address: int) -> None:
        # What was there before the first action is resident, and nobody's.
        stage, size = self._owner.pop(address, (0, 0))
        self._held[stage] -= size


def resident_of(states: list, meters: list[Meter]) -> list[int]:
    """By stage, the bytes of its variables, its optimizer and its sums of gradients.

    Where a stage has its allocator alone this is what that has in use.
    """
    gc.collect()
    allocators = [allocator_of(state.device) for state in states]
    return [
        meter.reset() if allocators.count(allocators[i]) == 1 else states[i].resident_bytes
        for i, meter in enumerate(meters)
    ]
