"""TensorFlow's profiler as a record of what its allocators were asked for."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2 as _xplane_pb2

_CHANGES = {"MemoryAllocation": "take", "MemoryDeallocation": "give"}


class AllocationTrace:
    """TensorFlow's profiler, recording each request to its allocators and each release."""

    def __init__(self):
        """Starts recording; raises where another profile is being taken."""
        self._directory = tempfile.TemporaryDirectory()
        options = tf.profiler.experimental.ProfilerOptions(device_tracer_level=0)
        tf.profiler.experimental.start(self._directory.name, options)

    def stop(self) -> list[tuple[int, str, int, int]]:
        """What happened, by time.

        Returns:
          (picoseconds, "take", address, requested bytes), (..., "give", ...), and for each
          ``tf.profiler.experimental.Trace`` whose name starts with "rnnmem", (..., its name, 0, 0).
        """
        with self._directory as directory:
            tf.profiler.experimental.stop()
            files = list(pathlib.Path(directory).rglob("*.xplane.pb"))
            spaces = [_xplane_pb2.XSpace.FromString(file.read_bytes()) for file in files]
        planes = [plane for space in spaces for plane in space.planes]
        return sorted((one for plane in planes for one in _changes(plane)), key=lambda one: one[0])


def _changes(plane: Any) -> Iterator[tuple[int, str, int, int]]:
    kinds = {key: one.name for key, one in plane.event_metadata.items()}
    stats = {one.name: key for key, one in plane.stat_metadata.items()}
    for line in plane.lines:
        for event in line.events:
            kind = kinds[event.metadata_id]
            time = 1000 * line.timestamp_ns + event.offset_ps
            if kind.startswith("rnnmem"):
                yield time, kind, 0, 0
            elif kind in _CHANGES:
                held = {one.metadata_id: one.int64_value or one.uint64_value for one in event.stats}
                yield time, _CHANGES[kind], held[stats["addr"]], held[stats["requested_bytes"]]
