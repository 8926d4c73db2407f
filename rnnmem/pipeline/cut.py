"""Where to cut a list of layers into stages: pure arithmetic over measured costs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from rnnmem.errors import BudgetError, OptionError
from rnnmem.pipeline.schedule import ONE_FORWARD_ONE_BACKWARD
from rnnmem.sizes import format_bytes


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """What one layer costs for one micro-batch.

    Attributes:
      seconds: of its forward and backward.
      scope_bytes: what the backward reads of a forward.
      working_bytes: what a forward or backward takes at most besides.
      state_bytes: variables, optimizer and sums of gradients.
      sent_bytes: what it returns.
    """

    seconds: float
    scope_bytes: int
    working_bytes: int
    state_bytes: int
    sent_bytes: int


@dataclasses.dataclass(frozen=True)
class Cut:
    """Layers in stages.

    Attributes:
      bounds: stage s holds the layers bounds[s] to bounds[s + 1] - 1.
      seconds: by stage, for one micro-batch.
      bytes: by stage, the predicted peak, state included.
    """

    bounds: tuple[int, ...]
    seconds: tuple[float, ...]
    bytes: tuple[int, ...]


def stage_bytes(layers: Sequence[LayerCost], scopes: int, received: int) -> int:
    """The predicted peak of a stage.

    Args:
      layers: its layers.
      scopes: forward scopes that are alive at once.
      received: bytes that it gets from the stage before, for one micro-batch.
    """
    state = sum(layer.state_bytes for layer in layers)
    scope = sum(layer.scope_bytes for layer in layers)
    working = max(layer.working_bytes for layer in layers)
    # In and out, there and back: two of each that is sent, one of each that is received.
    buffers = 3 * received + 3 * layers[-1].sent_bytes
    return state + scopes * scope + working + buffers


def cut(
    costs: Sequence[LayerCost],
    stages: int,
    budgets: Sequence[int | None],
    schedule: str = ONE_FORWARD_ONE_BACKWARD,
    micro_batches: int = 1,
) -> Cut:
    """Finds the cut whose slowest stage is fastest among those that fit; the exact optimum.

    Dynamic programming over (stages, layers), O(stages * layers^2). Of equally fast cuts it takes
    the one with the least squares of stage times.

    Args:
      costs: by layer, in order.
      stages: how many, each with at least one layer.
      budgets: by stage, the most bytes, or None.
      schedule: decides how many scopes are alive at a stage.
      micro_batches: the same.

    Raises:
      OptionError: more stages than layers.
      BudgetError: no cut fits; the text names the least common budget that would do.
    """
    if stages > len(costs):
        raise OptionError(f"stages={stages} are more than the {len(costs)} layers: pass fewer")
    found = _best(costs, stages, budgets, schedule, micro_batches)
    if found is not None:
        return found
    sizes = sorted(
        {
            _bytes(costs, i, j, s, stages, schedule, micro_batches)
            for s in range(stages)
            for i in range(len(costs))
            for j in range(i + 1, len(costs) + 1)
        }
    )
    low, high = 0, len(sizes) - 1
    while low < high:
        middle = (low + high) // 2
        fits = _best(costs, stages, [sizes[middle]] * stages, schedule, micro_batches)
        low, high = (low, middle) if fits is not None else (middle + 1, high)
    given = ", ".join("none" if one is None else format_bytes(one) for one in budgets)
    raise BudgetError(
        f"budget={given}: no cut of {len(costs)} layers into {stages} stages fits; "
        f"{sizes[low]} bytes ({format_bytes(sizes[low])}) for each device is the least that would"
    )


def _scopes(stage: int, stages: int, schedule: str, micro_batches: int) -> int:
    ahead = stages - stage if schedule == ONE_FORWARD_ONE_BACKWARD else micro_batches
    return min(ahead, micro_batches)


def _bytes(costs, first, last, stage, stages, schedule, micro_batches) -> int:
    received = costs[first - 1].sent_bytes if first else 0
    scopes = _scopes(stage, stages, schedule, micro_batches)
    return stage_bytes(costs[first:last], scopes, received)


def _best(costs, stages, budgets, schedule, micro_batches) -> Cut | None:
    count = len(costs)
    before = [0.0]
    for layer in costs:
        before.append(before[-1] + layer.seconds)
    # best[j]: (slowest stage, squares, bounds) of the first j layers in the stages so far.
    best: list[tuple[float, float, tuple[int, ...]] | None] = [None] * (count + 1)
    best[0] = (0.0, 0.0, (0,))
    for stage in range(stages):
        following: list[tuple[float, float, tuple[int, ...]] | None] = [None] * (count + 1)
        budget = math.inf if budgets[stage] is None else budgets[stage]
        for j in range(stage + 1, count + 1):
            for i in range(stage, j):
                first = best[i]
                if first is None:
                    continue
                if _bytes(costs, i, j, stage, stages, schedule, micro_batches) > budget:
                    continue
                seconds = before[j] - before[i]
                slowest, squares, bounds = first
                one = (max(slowest, seconds), squares + seconds**2, (*bounds, j))
                other = following[j]
                if other is None or one < other:
                    following[j] = one
        best = following
    found = best[count]
    if found is None:
        return None
    bounds = found[2]
    spans = list(zip(bounds[:-1], bounds[1:], strict=True))
    return Cut(
        bounds,
        tuple(before[j] - before[i] for i, j in spans),
        tuple(
            _bytes(costs, i, j, s, stages, schedule, micro_batches)
            for s, (i, j) in enumerate(spans)
        ),
    )
