"""Which ops, and which loop variables, a run needs: TensorFlow prunes the others before it runs.

A loop variable is needed where its last value is read, where an op waits for the loop, where the
cond reads it, or where another needed variable is made from it. An accumulator whose pops nobody
needs is never filled:

    forward   push(acc, x)      gradient   pop(acc) ─► MatMul ─► nobody        acc: not needed
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import LOOPS, is_prunable
from rnnmem.ir.order import topological

Opened = Mapping[str, "Opened"]
"""Name of a loop that may lose variables -> the same of the loops in its body."""


@dataclasses.dataclass(frozen=True)
class Needed:
    """What a run of a Net needs.

    Attributes:
      ops: the ops that run, in an order in which they may.
      inputs: positions of the Net's inputs that are read.
      variables: loop op -> positions of its variables that are needed.
      bodies: loop op -> what a run of its body needs for those.
    """

    ops: tuple[Op, ...]
    inputs: frozenset[int]
    variables: Mapping[str, frozenset[int]]
    bodies: Mapping[str, Needed]


def needed(net: Net, outputs: Iterable[int] | None = None) -> Needed:
    """Finds what a run needs.

    Args:
      net: the Net.
      outputs: positions of its outputs that are needed; None: all.
    """
    wanted = tuple(range(len(net.outputs)) if outputs is None else outputs)
    known = net.of_ops(_found)
    key = (net.inputs, net.outputs, net.control_outputs, wanted)
    if key not in known:
        known[key] = needed_where(net, wanted)
    return known[key]


def _found(ops: tuple[Op, ...]) -> dict[tuple, Needed]:
    """What was found out for Nets of these ops, by what they take and hand out."""
    return {}


def needed_where(
    net: Net,
    outputs: Iterable[int],
    opened: Opened | None = None,
    kept: Callable[[Op], Iterable[int]] = lambda op: (),
) -> Needed:
    """What a run needs, if some loops alone may lose variables that are not needed.

    Args:
      net: the Net.
      outputs: positions of its outputs that are needed.
      opened: those loops; None: all.
      kept: positions of variables that such a loop of the Net itself is given all the same.
    """
    blobs = {net.outputs[position] for position in outputs}
    awaited = set(net.control_outputs)
    ops: list[Op] = []
    variables: dict[str, frozenset[int]] = {}
    bodies: dict[str, Needed] = {}
    for op in reversed(net.of_ops(topological)):
        if blobs.isdisjoint(op.outputs) and op.name not in awaited and is_prunable(op):
            continue
        ops.append(op)
        awaited.update(op.controls)
        if op.type in LOOPS and (opened is None or op.name in opened):
            # Who waits for a loop waits for all of its variables' last values.
            awaits = op.name in awaited
            live = set(op.outputs) if awaits else blobs.intersection(op.outputs)
            inside = None if opened is None else opened[op.name]
            variables[op.name], bodies[op.name] = _in_loop(op, live, inside)
            blobs.update(op.inputs[position] for position in {*variables[op.name], *kept(op)})
        else:
            blobs.update(op.inputs)
    inputs = frozenset(i for i, blob in enumerate(net.inputs) if blob in blobs)
    return Needed(tuple(reversed(ops)), inputs, variables, bodies)


def _in_loop(op: Op, read: set[str], opened: Opened | None) -> tuple[frozenset[int], Needed]:
    """The variables of a loop that are needed, and what its body needs for them."""
    cond, body = op.nets["cond"], op.nets["body"]
    live = {position for position, blob in enumerate(op.outputs) if blob in read}
    live |= {position for position, blob in enumerate(cond.inputs) if cond.fan_out(blob)}
    while True:
        outputs = sorted(live)
        found = needed(body, outputs) if opened is None else needed_where(body, outputs, opened)
        if found.inputs <= live:
            return frozenset(live), found
        live |= found.inputs
