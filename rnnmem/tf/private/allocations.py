"""TensorFlow's profiler as a record of what its allocators were asked for."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.eager import context as _context
from tensorflow.tsl.profiler.protobuf import xplane_pb2 as _xplane_pb2

from rnnmem.errors import MeasureError

_CHANGES = {"MemoryAllocation": "take", "MemoryDeallocation": "give"}


class Change(NamedTuple):
    """One request to an allocator, one release, or a mark in between.

    Attributes:
      time: in picoseconds.
      kind: "take", "give", or the name of a ``tf.profiler.experimental.Trace`` that begins with
        "rnnmem"; a mark has nothing of what follows.
      address: of the chunk.
      size: requested bytes.
      allocator: its name.
      in_use: bytes in use in the allocator afterwards, by chunks.
      op: name of the op that asked; empty where unknown, and of a release.
    """

    time: int
    kind: str
    address: int = 0
    size: int = 0
    allocator: str = ""
    in_use: int = 0
    op: str = ""


class AllocationTrace:
    """TensorFlow's profiler, recording each request to its allocators and each release."""

    def __init__(self):
        """Starts recording.

        Raises:
          MeasureError: another profile is being taken, or this process is one of several workers.
        """
        if _context.context().coordination_service is not None:
            # About one trace in 60 ended in "free(): invalid pointer", and with it the cluster.
            raise MeasureError("TensorFlow's profiler may end one of several workers: not run here")
        self._directory = tempfile.TemporaryDirectory()
        try:
            # Given options, TensorFlow 2.21 refuses each on stderr, and takes its defaults.
            tf.profiler.experimental.start(self._directory.name)
        except tf.errors.AlreadyExistsError as error:
            raise MeasureError("another profile is being taken: stop it first") from error

    def stop(self) -> list[Change]:
        """What happened, by time."""
        with self._directory as directory:
            tf.profiler.experimental.stop()
            files = list(pathlib.Path(directory).rglob("*.xplane.pb"))
            spaces = [_xplane_pb2.XSpace.FromString(file.read_bytes()) for file in files]
        planes = [plane for space in spaces for plane in space.planes]
        return sorted((one for plane in planes for one in _changes(plane)), key=lambda one: one[0])


def _changes(plane: Any) -> Iterator[Change]:
    kinds = {key: one.name for key, one in plane.event_metadata.items()}
    names = {key: one.name for key, one in plane.stat_metadata.items()}
    for line in plane.lines:
        for event in line.events:
            kind = kinds[event.metadata_id]
            time = 1000 * line.timestamp_ns + event.offset_ps
            if kind.startswith("rnnmem"):
                yield Change(time, kind)
            elif kind in _CHANGES:
                held = {names[one.metadata_id]: _value(one, names) for one in event.stats}
                yield Change(
                    time,
                    _CHANGES[kind],
                    held["addr"],
                    held["requested_bytes"],
                    held.get("allocator_name", ""),
                    held.get("bytes_allocated", 0),
                    held.get("tf_op", ""),
                )


def _value(stat: Any, names: dict[int, str]) -> Any:
    """A number, or a text: texts that recur are told by their number among the names."""
    which = stat.WhichOneof("value")
    value = getattr(stat, which)
    return names[value] if which == "ref_value" else value
