"""What TensorFlow's executor spends here on ops, iterations, lists and kernels, as it was measured.

A kernel alone says little of a small step: most of its time goes to dispatching ops, handing loop
variables from iteration to iteration, and waking what waits. That was measured in CPU time, which
a busy machine leaves as it is; kernels, which share their work among cores, by the clock.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType

Curve = tuple[tuple[float, float], ...]
"""(size, seconds) of kernels, by size; both above 0."""


@dataclasses.dataclass(frozen=True)
class Costs:
    """Seconds of one machine, each of one thing that happens in a step.

    Attributes:
      op: an op is dispatched and does next to nothing.
      dead: an op of a branch that is not taken.
      iteration: of a loop, with its counter and its condition.
      variable: one loop variable is handed to the next iteration.
      value: one value goes through a branch op.
      list: one push, or one pop.
      optional: a value goes into an optional, or comes out: half an optimization barrier.
      woken: other threads are handed parts of what a kernel does.
      products: operations of a matrix product of square matrices -> seconds.
      thin: the same of one of few rows, or that adds up few.
      moved: bytes that an elementwise op reads and writes -> seconds.
      kept: a byte that is saved, to be read much later: what that takes more than reading it at
        once.
      work: op type in lower case -> seconds for a unit of its work, as the op table counts it, of
        ops whose bytes are not what takes time; ``""``: of any other type.
    """

    op: float
    dead: float
    iteration: float
    variable: float
    value: float
    list: float
    optional: float
    woken: float
    products: Curve
    thin: Curve
    moved: Curve
    kept: float
    work: Mapping[str, float] = dataclasses.field(
        default_factory=lambda: MappingProxyType({}), hash=False
    )

    def product(self, operations: float, is_thin: bool) -> float:
        """Seconds of a product's kernel."""
        return _at(self.thin if is_thin else self.products, operations)

    def moving(self, size: float) -> float:
        """Seconds of reading and writing so many bytes."""
        return _at(self.moved, size)

    def computing(self, op_type: str, work: float) -> float:
        """Seconds of so much work, as the op table counts it for the type."""
        return work * self.work.get(op_type.lower(), self.work.get("", 0.0))


def _at(curve: Curve, size: float) -> float:
    """The curve between its points, by parts on logarithmic axes; beyond them in proportion."""
    if size <= 0.0:
        return 0.0
    index = bisect.bisect_left(curve, (size, 0.0))
    if index in (0, len(curve)):
        known, seconds = curve[min(index, len(curve) - 1)]
        return seconds * size / known
    (small, least), (large, most) = curve[index - 1 : index + 1]
    part = math.log(size / small) / math.log(large / small)
    return least * (most / least) ** part
