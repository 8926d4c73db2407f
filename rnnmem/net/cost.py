"""A static estimate of time, for planning without a profile."""

from __future__ import annotations

import dataclasses

from rnnmem.net.nouns import Net, Op
from rnnmem.net.optypes import arithmetic


@dataclasses.dataclass(frozen=True)
class Machine:
    """What an estimate of time assumes.

    Attributes:
      operations_per_second: of a matrix product, float32.
      pointwise_per_second: elements of an addition.
      bytes_per_second: of memory traffic.
      launch_seconds: what any op costs before it does anything.
    """

    operations_per_second: float
    pointwise_per_second: float
    bytes_per_second: float
    launch_seconds: float

    def seconds(self, op: Op, net: Net) -> float:
        """Estimated time of one run of the op (of one iteration, for a loop op)."""
        work, moved = arithmetic(op, net)
        rate = self.operations_per_second if _multiplies(op) else self.pointwise_per_second
        return self.launch_seconds + max(work / rate, moved / self.bytes_per_second)


def _multiplies(op: Op) -> bool:
    return "MatMul" in op.type or "Conv" in op.type or op.type == "Einsum"


CPU = Machine(5e10, 5e9, 3e10, 2e-6)
GPU = Machine(2e13, 1e12, 1e12, 5e-6)
