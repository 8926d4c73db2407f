"""What a call tells: shapes and whole numbers of its arguments, and how often loops run.

Of loops whose count only a run tells their part of the function is run. The Net is cut back to what
they are made from, so nothing is assigned, and the gradient is not computed; it runs op by op in a
`Workspace`, which counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from rnnmem.analysis.loops import Loop
from rnnmem.analysis.shape_rules import Fact
from rnnmem.analysis.shapes import KnownNet
from rnnmem.errors import NetError
from rnnmem.ir.graph import Net, Op, Path
from rnnmem.ir.op_table import LOOPS, acts
from rnnmem.ir.order import all_needed_by
from rnnmem.tf import private
from rnnmem.tf.workspace import Workspace

MOST_RUNS = 100_000
"""Runs of ops after which a loop is not waited for any longer: some seconds."""
MOST_TOLD = 4096
"""Whole numbers in a vector up to which a call tells them: lengths, of which the largest may be a
trip count, and labels of segments, of which the last one tells how many there are."""


def facts_of(net: Net, inputs: Sequence[Any], batch: int | None = None) -> list[Fact]:
    """What the inputs of a Net are in a call.

    Args:
      net: the whole function.
      inputs: tensors for its first inputs.
      batch: stands for a first dimension that one of them leaves open.
    """
    count = len(net.inputs)
    known = _facts(inputs, batch)
    return [*known[:count], *[Fact()] * (count - len(known))]


def facts_in_call(
    base: Any, concrete: Any, args: tuple, kwargs: dict[str, Any]
) -> tuple[Fact, ...]:
    """What the inputs of a traced function are in a call.

    Args:
      base: the ``tf.function``; None for a ConcreteFunction alone.
      concrete: its trace.
      args: of the call.
      kwargs: of the call.

    Returns:
      Nothing where it is traced for specifications, or called in a graph.
    """
    flat = tf.nest.flatten((args, kwargs))
    is_call = flat and not any(isinstance(one, tf.TypeSpec) for one in flat)
    if not is_call or not tf.executing_eagerly():
        return ()
    try:
        return _facts(private.flat_inputs(base, concrete, args, kwargs))
    except TypeError:  # what does not fit is refused by the call, as the original would
        return ()


def _facts(inputs: Sequence[Any], batch: int | None = None) -> tuple[Fact, ...]:
    return tuple(_fact(one, batch) if _is_dense(one) else Fact() for one in inputs)


def _fact(value: Any, batch: int | None) -> Fact:
    shape = tuple(value.shape)
    if shape and shape[0] is None:
        shape = batch, *shape[1:]
    is_whole = value.dtype in (tf.int32, tf.int64) and hasattr(value, "numpy")
    if not is_whole or len(shape) > 1 or sum(size or 0 for size in shape) > MOST_TOLD:
        return Fact(shape)
    return Fact(shape, tuple(value.numpy().tolist()) if shape else int(value))


def _is_dense(value: Any) -> bool:
    return value.dtype not in (tf.resource, tf.variant) and value.shape.rank is not None


def observed_trips(known: KnownNet, net: Net, inputs: Sequence[Any]) -> Mapping[Path, int]:
    """Runs the loops of unknown trip counts on these inputs.

    Args:
      known: what is known of the Net without a run.
      net: the whole function, inlined, as it was traced.
      inputs: its arguments and captures, as tensors.

    Returns:
      Path of a loop op -> iterations; for a loop inside another the mean of its runs, rounded up.
      Empty where no count is missing, where finding out would have
      effects (a print, a queue), take longer than `MOST_RUNS`, or need an op that runs only in a
      graph.
    """
    missing = dict(_unknown(known, Path()))
    wanted = [op for op in net.ops if op.type in LOOPS and not Loop(net, op).pops and op.outputs]
    wanted = [op for op in wanted if any(path[0] == op.name for path in missing)]
    if not wanted:
        return {}
    pruned = _made_from(net, wanted)
    if any(acts(op) for _, inner in pruned.walk() for op in inner.ops):
        return {}
    pruned = pruned.replace(inputs=net.inputs[: len(inputs)])
    workspace = Workspace(pruned, poison=False, most_runs=MOST_RUNS)
    try:
        workspace.run(inputs)
    except NetError:
        return {}
    runs = {name: spent.runs for name, spent in workspace.spent.items()}
    found = {}
    for path, body in missing.items():
        if path.text in runs and body.ops:
            most = max(runs.get(path.child("body", op.name).text, 0) for op in body.ops)
            found[path] = math.ceil(most / runs[path.text])
    return found


def _unknown(known: KnownNet, path: Path) -> Iterator[tuple[Path, Net]]:
    """Loops of unknown trip counts, by path, with their bodies."""
    for name, trips in known.trips.items():
        if trips is None:
            yield path.child(name), known.inner[name, "body"].net
    for (name, key), inner in known.inner.items():
        yield from _unknown(inner, path.child(name, key))


def _made_from(net: Net, wanted: list[Op]) -> Net:
    """The Net with nothing but some ops and what they need."""
    needed = all_needed_by(net, [op.name for op in wanted])
    return net.replace(
        ops=tuple(op for op in net.ops if op.name in needed),
        outputs=tuple(op.outputs[0] for op in wanted),
        control_outputs=(),
    )
