"""What this machine costs, measured: see `rnnmem.analysis.costs`.

A number that is plausible nowhere is taken for the nearest that is, and one that no time was left
for from a machine that is known, as much slower or faster as the rest was here.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import tensorflow as tf

from rnnmem.analysis.costs import Costs, Curve
from rnnmem.analysis.known_costs import GROUPS_APART, KNOWN, completed, of_flat
from rnnmem.ir.op_table import TABLE
from rnnmem.tf import microbenchmarks as bench

SECONDS = 3.0
"""Time that measuring all of it may take: what would begin later than that is not measured."""
LAST_START = 0.85
"""Part of it after which nothing is begun."""
ROUNDS = 3
"""How often each is measured at most; the median counts."""
MANY = 8
"""Copies of what is small, in one iteration."""
SMALL, KEPT = 16, 2**18
"""Elements of what is saved to find out what lists cost, and what bytes do."""
LARGE = 2**18
"""Elements of ops whose arithmetic is measured."""
COPIES = 8
"""Ops beside each other whose kernels are measured."""
NOTHING = 16
"""Elements, and operations, of a kernel that has next to nothing to do."""
WAKING = 0.5
"""Part of a small product of several matrices that hands its work to other threads: it takes as
long to start. By hand."""
FEW = 256
"""Rows and columns of a product from which on fewer copies are run."""
FIRST = ("moved.2", "thin.2", "work.tanh", "moved.3", "products.2")
"""Costs that are measured early: on a busy machine the others may have to follow from them."""

_UNARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "tanh": lambda value, _: tf.tanh(value),
    "sigmoid": lambda value, _: tf.sigmoid(value),
    "exp": lambda value, _: tf.exp(value),
}


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Costs of this machine.

    Attributes:
      costs: all of them.
      measured: names of those that were measured; the others were not, for want of time.
      seconds: that measuring took.
    """

    costs: Costs
    measured: tuple[str, ...]
    seconds: float


def calibrated(seconds: float = SECONDS) -> Calibration:
    """Measures what the machine costs, what matters most first.

    Args:
      seconds: how long that may take, about.
    """
    start = time.perf_counter()
    found: dict[str, list[float]] = {}
    with tf.init_scope():
        for name, value in itertools.chain.from_iterable(_measured() for _ in range(ROUNDS)):
            found.setdefault(name, []).append(value)
            if time.perf_counter() - start > LAST_START * seconds:
                break
    middle = {name: statistics.median_low(values) for name, values in found.items()}
    # A GPU's kernels are far faster than the executor, which runs on a CPU all the same.
    apart = math.inf if tf.config.list_logical_devices("GPU") else GROUPS_APART
    costs = of_flat(completed(middle, apart))
    return Calibration(costs, tuple(found), time.perf_counter() - start)


def _measured() -> Iterator[tuple[str, float]]:
    """Name of a cost -> what it was measured to be: first one of each kind, then the others."""
    plain = bench.loop(bench.ops(1), 1)
    op = (bench.loop(bench.ops(1 + MANY), 1) - plain) / MANY
    yield "op", op
    nothing = bench.pointwise(tf.maximum, NOTHING, COPIES)
    kernels = dict(_kernels(nothing, op))
    for name in FIRST:
        yield name, kernels.pop(name)()
    kept = bench.lists(1, KEPT) - bench.lists(1, KEPT, pushes=False)
    yield "kept", kept / (4.0 * KEPT)
    variable = (bench.loop(bench.ops(1), 1 + MANY) - plain) / MANY
    yield "variable", variable
    yield "optional", (bench.loop(bench.optionals(MANY), 1) - plain) / (2 * MANY)
    yield "woken", bench.batched(COPIES) * WAKING
    for name, measure in kernels.items():
        yield name, measure()
    # Each list is a variable of two loops, has a push in one and a pop in the other, and two ops.
    each = (bench.lists(1 + MANY // 2, SMALL) - bench.lists(1, SMALL)) / (MANY // 2)
    yield "list", (each - 2.0 * variable - 4.0 * op) / 2.0
    one = bench.loop(bench.branch(), 1)
    yield "value", ((bench.loop(bench.branch(), 1 + MANY) - one) / MANY - variable - 2 * op) / 2.0
    yield "dead", (bench.loop(bench.branch(4 * MANY), 1) - one) / (4 * MANY)


def _kernels(nothing: float, started: float) -> Iterator[tuple[str, Callable[[], float]]]:
    """Name of the cost of a kernel -> what measures it.

    Args:
      nothing: seconds of an empty one whose value is handed out.
      started: seconds of one whose value is not.
    """

    def numbered(curve: Curve) -> Iterator[tuple[int, float]]:
        return ((number, size) for number, (size, _) in enumerate(curve) if number)

    def product(rows: int, size: int) -> float:
        return bench.product(rows, size, COPIES if size < FEW else 2) - started

    def pointwise(op: Callable[[Any, Any], Any], size: int) -> float:
        return bench.pointwise(op, size, COPIES) - nothing

    def work(name: str, op: Callable[[Any, Any], Any]) -> float:
        return pointwise(op, LARGE) / (LARGE * TABLE[name].weight)

    for number, moved in numbered(KNOWN.moved):
        yield f"moved.{number}", partial(pointwise, tf.maximum, round(moved / 12))
    for number, operations in numbered(KNOWN.thin):
        size = round((operations / (2 * bench.THIN_ROWS)) ** 0.5)
        yield f"thin.{number}", partial(product, bench.THIN_ROWS, size)
    for number, operations in numbered(KNOWN.products):
        size = round((operations / 2) ** (1 / 3))
        yield f"products.{number}", partial(product, size, size)
    for name, op in _UNARY.items():
        yield f"work.{name}", partial(work, name.capitalize(), op)
    yield "work.", partial(work, "TanhGrad", bench.small_op)
