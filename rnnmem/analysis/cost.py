"""Estimates of time: static ones, and those of a profile where one was taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from rnnmem.analysis.op_signature import op_signature
from rnnmem.ir.devices import ACCELERATOR, HOST
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import READ, arithmetic
from rnnmem.ir.order import through_identities

_NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Machine:
    """What an estimate of time assumes.

    Attributes:
      operations_per_second: of a matrix product, float32.
      pointwise_per_second: elements of an addition.
      bytes_per_second: of memory traffic, of values that were just written.
      kept_bytes_per_second: of a value that is written now and read much later, out of every cache.
      launch_seconds: what any op costs before it does anything.
      measured: op signature -> seconds of its kernel, where a profile was taken.
      host_bytes_per_second: of copies between the device and the host.
      device: where ops run that name no device.
    """

    operations_per_second: float
    pointwise_per_second: float
    bytes_per_second: float
    kept_bytes_per_second: float
    launch_seconds: float
    measured: Mapping[str, float] = dataclasses.field(default_factory=lambda: _NOTHING, hash=False)
    host_bytes_per_second: float = 2e10
    device: str = HOST

    def seconds(self, op: Op, net: Net) -> float:
        """Estimated time of one run of the op (of one iteration, for a loop op)."""
        if op.type == "TensorListPushBack":
            kept = 0 if _lives_anyway(net, op.inputs[1]) else net.blobs[op.inputs[1]].bytes or 0
            return self.launch_seconds + self.seconds_to_keep(kept)
        if self.measured and not op.nets:
            found = self.measured.get(op_signature(op, net) or "")
            if found is not None:
                return self.launch_seconds + found
        work, moved = arithmetic(op, net)
        rate = self.operations_per_second if _multiplies(op) else self.pointwise_per_second
        return self.launch_seconds + max(work / rate, moved / self.bytes_per_second)

    def seconds_to_keep(self, size: int) -> float:
        """Estimated time that saving ``size`` bytes for the gradient takes: out and in again."""
        return 2.0 * size / self.kept_bytes_per_second


def _lives_anyway(net: Net, blob: str) -> bool:
    """Whether the blob is a variable's buffer or a loop invariant: keeping it moves nothing."""
    blob = through_identities(net, blob)
    producer = net.producer.get(blob)
    if producer is not None:
        return producer.type == READ
    return any(pair == (blob, blob) for pair in zip(net.inputs, net.outputs, strict=False))


def _multiplies(op: Op) -> bool:
    return "MatMul" in op.type or "Conv" in op.type or op.type == "Einsum"


CPU = Machine(
    operations_per_second=5e10,
    pointwise_per_second=5e9,
    bytes_per_second=3e10,
    kept_bytes_per_second=1e10,
    launch_seconds=2e-6,
)
GPU = Machine(
    operations_per_second=2e13,
    pointwise_per_second=1e12,
    bytes_per_second=1e12,
    kept_bytes_per_second=1e12,
    launch_seconds=5e-6,
    device=ACCELERATOR,
)
