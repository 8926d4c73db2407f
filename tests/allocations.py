"""What TensorFlow ran, and what its allocator was asked for, from its own events.

``get_memory_info`` counts whole chunks, and a buffer may take a free chunk of nearly twice its
size: the figure depends on what ran before. What was asked for does not.
"""

import collections
import glob

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from rnnmem.analysis.machine import rounded


def asked_for(fn, args, folder) -> int:
    """The most bytes that one run had asked the allocator for and not yet given back."""
    space = _profiled(fn, args, folder)
    alive, live, most = {}, 0, 0
    for _, allocates, address, size in sorted(_events(space)):
        if allocates:
            alive[address] = rounded(size)
            live += rounded(size)
        else:
            live -= alive.pop(address, 0)
        most = max(most, live)
    return most


def ops_run(fn, args, folder) -> collections.Counter:
    """Op type -> how often one run came to it."""
    space = _profiled(fn, args, folder)
    names = (
        plane.event_metadata[event.metadata_id].name
        for plane in space.planes
        for line in plane.lines
        for event in line.events
    )
    return collections.Counter(name.rpartition(":")[2] for name in names if ":" in name)


def _profiled(fn, args, folder):
    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=2, python_tracer_level=0, device_tracer_level=0
    )
    tf.profiler.experimental.start(str(folder), options)
    result = fn(*args)
    tf.profiler.experimental.stop()
    del result
    (found,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
    space = xplane_pb2.XSpace()
    with open(found, "rb") as file:
        space.ParseFromString(file.read())
    return space


def _events(space):
    for plane in space.planes:
        names = {key: value.name for key, value in plane.event_metadata.items()}
        events = {key: name for key, name in names.items() if name.startswith("Memory")}
        stats = {key: value.name for key, value in plane.stat_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                name = events.get(event.metadata_id)
                if name is not None:
                    found = {stats[stat.metadata_id]: stat for stat in event.stats}
                    when = line.timestamp_ns * 1000 + event.offset_ps
                    allocates = name.startswith("MemoryAllocation")
                    yield when, allocates, _number(found["addr"]), _number(found["requested_bytes"])


def _number(stat) -> int:
    return getattr(stat, stat.WhichOneof("value"))
