"""Time of ops at the user's own shapes, measured once by running each kernel alone.

A graph of some copies of the op, one after the other, is run and compared with one that has none.
Ops that the static estimate holds for dearest come first, and a bound on the total time ends it.
What was measured is kept in memory and in a file below ``$XDG_CACHE_HOME/rnnmem``, by TensorFlow
version, device and op.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from rnnmem.analysis.machine import Machine
from rnnmem.analysis.op_signature import op_signature
from rnnmem.analysis.shapes import with_known_shapes
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net, Op
from rnnmem.ir.op_table import Work, facts
from rnnmem.tf.exporter import export_graph_def
from rnnmem.tf.own_devices import sync_devices

SECONDS = 2.0
"""Time that profiling one function may take."""
LARGEST = 256 * 2**20
"""Bytes that the inputs and outputs of one op may have to be measured."""
COPIES = 8
REPEATS = 5


def profiled(machine: Machine, net: Net, seconds: float = SECONDS) -> Machine:
    """The machine with measured times for the ops of a Net, dearest first.

    Args:
      machine: what holds for ops that are not measured.
      net: the whole step, inlined.
      seconds: how long measuring may take; what is in the cache takes none.
    """
    cache = _cache(_device())
    wanted = _wanted(machine, with_known_shapes(net))
    with tf.init_scope():
        end = time.perf_counter() + seconds
        for signature, (op, inner) in wanted.items():
            if signature in cache.times:
                continue
            if time.perf_counter() > end:
                break
            cache.times[signature] = _measured(op, inner)
            cache.changed = True
    cache.save()
    known = {key: cache.times.get(key) for key in wanted}
    times = {key: one for key, one in known.items() if one is not None}
    return dataclasses.replace(machine, measured={**machine.measured, **times})


def cache_folder() -> Path:
    """Where profiles are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "rnnmem"


def _device() -> str:
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return f"CPU-{os.cpu_count()}"
    return str(tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU"))


class _Cache:
    """Measured times of one device: op signature -> seconds, None where it cannot be measured."""

    def __init__(self, path: Path):
        self.path = path
        self.changed = False
        self.times: dict[str, float | None] = {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            self.times = {str(key): value for key, value in found.items() if _is_a_time(value)}
        except (OSError, ValueError, TypeError, AttributeError):
            pass  # not there, or not ours: measured again

    def save(self) -> None:
        """Writes the file whole or not at all; a folder that cannot be written is no error."""
        if not self.changed:
            return
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, json.dumps(self.times))
            self.changed = False


def _is_a_time(value: Any) -> bool:
    """Whether it is a number of seconds, or None; anything else is measured again."""
    if value is None:
        return True
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and value >= 0


def write_whole(path: Path, text: str) -> None:
    """Writes a file whole; where that fails, the disk is as it was."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        try:
            file.write(text)
            file.close()  # a full disk may show only now
            os.replace(file.name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(file.name)
            raise


def _cache(device: str) -> _Cache:
    name = re.sub(r"[^\w.-]+", "_", f"profile-{tf.__version__}-{device}")
    return _cache_at(cache_folder() / f"{name}.json")


@functools.cache
def _cache_at(path: Path) -> _Cache:
    return _Cache(path)


def _wanted(machine: Machine, net: Net) -> dict[str, tuple[Op, Net]]:
    """The distinct ops that are worth measuring, those first that take most time by estimate."""
    found: dict[str, tuple[Op, Net]] = {}
    weights: dict[str, float] = {}
    for path, inner in net.walk():
        for op in inner.ops:
            if not _can_be_measured(op, inner):
                continue
            signature = op_signature(op, inner)
            if signature is None:
                continue
            found.setdefault(signature, (op, inner))
            runs = 64.0 if path else 1.0
            static = dataclasses.replace(machine, measured={})
            weights[signature] = weights.get(signature, 0.0) + runs * static.seconds(op, inner)
    return {key: found[key] for key in sorted(found, key=lambda key: -weights[key])}


def _can_be_measured(op: Op, net: Net) -> bool:
    known = facts(op)
    if known is None or known.work is Work.NONE or op.nets or op.type == "Const":
        return False
    blobs = [net.blobs[blob] for blob in (*_given(op, net), *op.outputs)]
    if any(blob.dtype not in BYTES_PER_ELEMENT or blob.bytes is None for blob in blobs):
        return False
    return sum(blob.bytes or 0 for blob in blobs) <= LARGEST


def _measured(op: Op, net: Net) -> float | None:
    """Seconds of one run of the op's kernel; None where it does not run alone."""
    try:
        several, none = _graph(op, net, COPIES), _graph(op, net, 0)
        inputs = [_values(net.blobs[blob]) for blob in _given(op, net)]
        return max(0.0, _median(several, inputs) - _median(none, inputs)) / COPIES
    except Exception:  # an op that needs other values than these is estimated
        return None


def _given(op: Op, net: Net) -> list[str]:
    """Inputs that are no constants of the Net."""
    constants = {
        blob for blob in op.inputs if blob in net.producer and net.producer[blob].type == "Const"
    }
    return [blob for blob in dict.fromkeys(op.inputs) if blob not in constants]


def _graph(op: Op, net: Net, copies: int) -> Callable:
    """A function of the op's inputs that runs copies of it, one after the other."""
    given = _given(op, net)
    constants = [net.producer[blob] for blob in dict.fromkeys(op.inputs) if blob not in given]
    ops = [_bare(one) for one in constants]
    blobs = {blob: net.blobs[blob] for blob in op.inputs}
    outputs = []
    for number in range(copies):
        names = tuple(f"copy{number}:{i}" for i in range(len(op.outputs)))
        blobs |= {
            name: dataclasses.replace(net.blobs[blob], name=name)
            for name, blob in zip(names, op.outputs, strict=True)
        }
        before = (f"copy{number - 1}",) if number else ()
        copy = _bare(op).replace(name=f"copy{number}", outputs=names, controls=before)
        ops.append(copy)
        outputs.append(names[0])
    alone = Net("profile", tuple(given), tuple(outputs), tuple(ops), blobs)
    graph_def = export_graph_def(alone)

    @tf.function(autograph=False)
    def run(*values):
        return tf.graph_util.import_graph_def(
            graph_def,
            input_map=dict(zip(given, values, strict=True)) if copies else {},
            return_elements=[f"copy{number}:0" for number in range(copies)] or None,
            name="",
        )

    return run


def _bare(op: Op) -> Op:
    """The op without what ties it to its place."""
    attributes = {key: value for key, value in op.attributes.items() if not key.startswith("_")}
    return op.replace(attributes=attributes, controls=(), device="")


def _values(blob) -> tf.Tensor:
    """Numbers between 0 and 1, or zeros where they are whole."""
    dtype = tf.as_dtype(blob.dtype)
    if dtype.is_floating:
        return tf.cast(tf.random.uniform(blob.shape, seed=1), dtype)
    return tf.zeros(blob.shape, dtype)


def _median(run: Callable, inputs: list[tf.Tensor]) -> float:
    run(*inputs)  # traces
    times = []
    for _ in range(REPEATS):
        sync_devices()
        start = time.perf_counter()
        run(*inputs)
        sync_devices()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])
