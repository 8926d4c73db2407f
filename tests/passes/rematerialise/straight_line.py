"""The budget of a function without a loop: its forward part is one step that runs once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from rnnmem.analysis.machine import CPU
from rnnmem.errors import BudgetError, NetError, OptionError
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.order import all_needed_by
from rnnmem.passes.rematerialise.milp import as_it_was, fastest_within, smallest_within
from rnnmem.passes.rematerialise.min_cut import SavedSet, Step
from rnnmem.sizes import format_bytes, parse_bytes


def forward_step(
    net: Net,
    losses: tuple[str, ...],
    seconds: Callable[[Op, Net], float] = CPU.seconds,
    seconds_to_keep: Callable[[int], float] = lambda size: 0.0,
) -> Step:
    """The forward part of a Net, and what its gradient part reads of it.

    Args:
      net: forward and gradient in one Net.
      losses: blobs that the gradient starts from; what they depend on is the forward part.
      seconds: time of one run of an op.
      seconds_to_keep: time of holding so many bytes for the gradient.

    Raises:
      NetError: the Net has no such blob.
    """
    for blob in losses:
        if blob not in net.blobs:
            raise NetError(f"losses={losses!r}: {net.name} has no blob {blob!r}")
    forward = all_needed_by(
        net, [net.producer[blob].name for blob in losses if blob in net.producer]
    )
    gradient = [op for op in net.ops if op.name not in forward]
    read = {blob for op in gradient for blob in op.inputs}
    results = {*net.outputs, *losses}  # alive to the end anyway
    live_in = frozenset(
        blob
        for blob in read - results
        if blob in net.producer and net.producer[blob].name in forward
    )
    return Step(
        body=net.replace(
            ops=tuple(op for op in net.ops if op.name in forward), outputs=tuple(losses)
        ),
        invariants=frozenset({*net.inputs, *results}),
        live_in=live_in,
        pushed=live_in,
        seconds=seconds,
        seconds_to_keep=seconds_to_keep,
    )


@dataclasses.dataclass(frozen=True)
class Selection:
    """What a function without a loop keeps for its gradient.

    Attributes:
      saved: blobs that are kept.
      recomputed: names of the ops that run again, in order.
      bytes: kept.
      original_bytes: kept where nothing runs again.
      extra_seconds: spent on running again.
    """

    saved: frozenset[str]
    recomputed: tuple[str, ...]
    bytes: int
    original_bytes: int
    extra_seconds: float


def select(step: Step, budget: int | str | float) -> Selection:
    """What to keep of a step that runs once, at the least time within a budget.

    Args:
      step: of :func:`forward_step`, or any step net's.
      budget: bytes as an int or text; a float from 0.0 to 1.0 is a share of what the original
        keeps.

    Raises:
      BudgetError: the budget cannot be met; names the least that can and its time.
      OptionError: the budget is malformed.
    """
    original = as_it_was(step)
    total = original.bytes if original is not None else math.inf
    limit = _limit(budget, total)
    found = fastest_within(step, limit)
    if found is None:
        raise _too_small(step, budget)
    return Selection(found.saved, found.recomputed, found.bytes, total, _extra(step, found))


def _limit(budget: int | str | float, total: float) -> int:
    if isinstance(budget, float):
        if not 0.0 <= budget <= 1.0:
            raise OptionError(f"budget={budget!r}: a share is a float from 0.0 to 1.0")
        return math.floor(budget * total + 1e-6)
    return parse_bytes(budget, "budget")


def _too_small(step: Step, budget) -> BudgetError:
    least = smallest_within(step, math.inf)
    if least is None:
        return BudgetError(f"budget={budget!r}: something is read that can be neither kept nor had")
    return BudgetError(
        f"budget={budget!r} cannot be met: the least that can be kept is {least.bytes} bytes "
        f"({format_bytes(least.bytes)}), which runs {_extra(step, least):.3g} s again"
    )


def _extra(step: Step, found: SavedSet) -> float:
    return sum(step.seconds(step.body.op_by_name[name], step.body) for name in found.recomputed)
