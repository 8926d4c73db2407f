"""``balance``: cuts a list of layers into stages of like time, under a budget of each device."""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rnnmem.errors import OptionError
from rnnmem.pipeline.batches import Batch
from rnnmem.pipeline.calling import Chain, name_of
from rnnmem.pipeline.cut import Cut, LayerCost, cut
from rnnmem.pipeline.devices import resolve
from rnnmem.pipeline.memory import Meter
from rnnmem.pipeline.optimizers import maker_of
from rnnmem.pipeline.schedule import ONE_FORWARD_ONE_BACKWARD, TRAINING, checked_count
from rnnmem.pipeline.states import StageState
from rnnmem.pipeline.tracing import Purpose, trace, with_gradient
from rnnmem.pipeline.wiring import Stage
from rnnmem.sizes import format_bytes, parse_bytes, parse_count

_ALONE = Purpose(training=True, loss=False)


@dataclasses.dataclass(frozen=True)
class Balance:
    """Layers cut into stages; prints as a table.

    Attributes:
      stages: for ``Pipeline``.
      cut: where the cuts are, with each stage's seconds and predicted bytes.
      costs: by layer, what was measured.
      names: by layer.
    """

    stages: list[Chain]
    cut: Cut
    costs: list[LayerCost]
    names: list[str]

    def __str__(self) -> str:
        """A line for each stage: its layers, time of a micro-batch, predicted peak."""
        lines = []
        for s, chain in enumerate(self.stages):
            first, last = self.cut.bounds[s], self.cut.bounds[s + 1]
            lines.append(
                f"stage {s}: layers {first} to {last - 1} ({name_of(chain)}), "
                f"{1000 * self.cut.seconds[s]:.1f} ms a micro-batch, "
                f"{format_bytes(self.cut.bytes[s])}"
            )
        return "\n".join(lines)


def balance(
    layers: Sequence[Callable[..., Any]],
    stages: int,
    x: Any,
    *,
    micro_batches: int,
    optimizer: Any = "adam",
    budget: int | str | Sequence[int | str | None] | None = None,
    schedule: str = ONE_FORWARD_ONE_BACKWARD,
    device: str = "CPU:0",
    repeats: int = 3,
) -> Balance:
    """Measures every layer and cuts the list where the slowest stage is fastest.

    Each layer runs alone on one micro-batch, forward and backward, on what the layer before
    returns. Time is the median; bytes are those of TensorFlow's allocator. No variable changes.

    Args:
      layers: Keras layers, callables or builders, each taking what the one before returns.
      stages: into how many to cut.
      x: a batch like those to train on.
      micro_batches: into how many it is cut.
      optimizer: as for ``Pipeline``; its variables count.
      budget: the most bytes of each device, for all or by stage.
      schedule: as for ``Pipeline``; decides how many forward scopes a stage holds.
      device: where to measure.
      repeats: timed runs of each layer.

    Returns:
      The stages, and what led to them.

    Raises:
      OptionError: an argument is malformed, the layers do not meet, or are fewer than the stages.
      BudgetError: no cut fits the budget; the text names the least that would.
      MeasureError: the device counts no memory.
    """
    layers = list(layers)
    _check(layers, stages, schedule, micro_batches, repeats)
    budgets = _budgets(budget, stages)
    batch = Batch(x, None, micro_batches)
    where = resolve([device], 1)[0]
    meter = Meter(where)
    states = [StageState(i, Stage(fn, name=name_of(fn)), where) for i, fn in enumerate(layers)]
    for state in states:
        state.make()
        state.fetch_variables()
    program = trace(
        [state.stage for state in states],
        [where] * len(states),
        batch.feeds,
        batch.specs,
        lambda labels, predictions: predictions,
        _ALONE,
    )
    make_optimizer = maker_of(optimizer)
    with tf.device(where):
        leaves = {(-1, i): tf.identity(batch.part(i, 0)) for i in range(len(batch.specs))}
    costs = []
    for state, traced in zip(states, program.stages, strict=True):
        state.adopt([traced.function])
        inputs = [leaves[leaf.stage, leaf.place] for leaf in traced.reads]
        moving = [v for v in state.variables if not v.trainable]
        before = [variable.read_value() for variable in moving]
        cost, results = _measure(state, traced, inputs, meter, repeats)
        for variable, value in zip(moving, before, strict=True):
            variable.assign(value)
        costs.append(dataclasses.replace(cost, state_bytes=_state_bytes(state, make_optimizer)))
        leaves.update({(state.index, i): one for i, one in enumerate(results)})
    found = cut(costs, stages, budgets, schedule, micro_batches)
    parts = [state.stage.fn for state in states]
    spans = zip(found.bounds[:-1], found.bounds[1:], strict=True)
    chains = [Chain(parts[first:last]) for first, last in spans]
    return Balance(chains, found, costs, [name_of(part) for part in parts])


def _check(layers: list, stages: int, schedule: str, micro_batches: int, repeats: int) -> None:
    for i, layer in enumerate(layers):
        if not callable(layer):
            raise OptionError(f"layers[{i}]={layer!r} is neither a layer, a callable nor a builder")
    parse_count(stages, "stages")
    parse_count(repeats, "repeats")
    if stages > len(layers):
        raise OptionError(f"stages={stages} are more than the {len(layers)} layers: pass fewer")
    checked_count(schedule, stages, micro_batches, TRAINING)


def _budgets(budget: Any, stages: int) -> list[int | None]:
    if budget is None or isinstance(budget, (int, str)):
        return [None if budget is None else parse_bytes(budget, "budget")] * stages
    given = [None if one is None else parse_bytes(one, "budget") for one in budget]
    if len(given) != stages:
        raise OptionError(f"budget={budget!r} names {len(given)} devices, stages={stages}")
    return given


def _measure(state, traced, inputs, meter, repeats) -> tuple[LayerCost, list[tf.Tensor]]:
    """One layer's forward and backward, alone; the first run is not counted."""
    seconds, scopes, working = [], [], []
    results: list[tf.Tensor] = []
    outputs = traced.function.outputs[: traced.results]
    floats = [i for i, one in enumerate(outputs) if one.dtype.is_floating]
    traced = with_gradient(traced, floats, state.trainable_variables)
    gradient = traced.gradient
    for _ in range(repeats + 1):
        results.clear()
        gc.collect()
        before = meter.reset()
        start = time.perf_counter()
        with tf.device(state.device):
            scope, made = state.forward(traced, inputs)
        held, forward_peak = meter.read()
        meter.reset()
        with tf.device(state.device):
            found = []
            if gradient.halves is not None:
                upstream = [tf.ones_like(made[place]) for place in gradient.places]
                upstream += [] if scope.loss is None else [tf.ones_like(scope.loss)]
                found = gradient.halves.backward(upstream, scope.kept)
                del upstream
            for one in found:
                if one is not None:
                    tf.reduce_sum(one).numpy()
        seconds.append(time.perf_counter() - start)
        _, backward_peak = meter.read()
        scopes.append(held - before)
        working.append(max(forward_peak, backward_peak) - held)
        results.extend(made)
        del scope, made, found
    sent = sum(int(np.prod(one.shape)) * one.dtype.size for one in results)
    cost = LayerCost(
        seconds=statistics.median(seconds[1:]),
        scope_bytes=max(0, max(scopes[1:])),
        working_bytes=max(0, max(working[1:])),
        state_bytes=0,
        sent_bytes=sent,
    )
    return cost, results


def _state_bytes(state: StageState, make_optimizer: Callable[[], Any]) -> int:
    """Variables, the optimizer's slots as if it had been built, and sums of gradients."""
    own = sum(_bytes(variable) for variable in state.variables)
    trained = state.trainable_variables
    optimizer = make_optimizer()
    optimizer.build(trained)
    slots = sum(_bytes(slot) for slot in optimizer.variables)
    return own + slots + sum(_bytes(variable) for variable in trained)


def _bytes(variable: Any) -> int:
    return int(np.prod(variable.shape)) * tf.as_dtype(variable.dtype).size
