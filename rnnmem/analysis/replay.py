"""What it takes to run iterations of a loop again from the state that one of them began with.

Asked for are some blobs of the step net in every iteration of a segment. They need ops, those need
states, and a state needs what makes it in the iteration before:

    asked: z      ops: MatMul, Add, Tanh ...     states: h, c     invariants: x (a list), t's bound

What only a first run can tell (a draw of a stateful random op, a variable that is written
meanwhile) cannot be had again, nor what depends on it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from rnnmem.analysis.loops import Loop
from rnnmem.ir.graph import BYTES_PER_ELEMENT
from rnnmem.ir.op_table import READ, is_pure
from rnnmem.ir.order import reached


@dataclasses.dataclass(frozen=True)
class Replay:
    """What runs again, and what from.

    Attributes:
      wanted: blobs of the step net that running again gives.
      ops: names of the ops of the step net that run again.
      states: body arguments whose value at the start of a segment must be kept.
      invariants: body arguments that are the same in every iteration.
      reads: blobs among ``ops``' inputs that one read beside the loop stands for; where a branch
        reads the variable, its handle.
    """

    wanted: tuple[str, ...]
    ops: frozenset[str]
    states: tuple[str, ...]
    invariants: tuple[str, ...]
    reads: tuple[str, ...]


def replay_of(
    loop: Loop,
    asked: Iterable[str],
    loop_invariant: frozenset[str],
    never: frozenset[str] = frozenset(),
    reading: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> Replay:
    """What running again takes for those of the asked blobs that can be had so.

    Args:
      loop: the loop.
      asked: blobs of its step net.
      loop_invariant: blobs of the step net that read a variable which does not change meanwhile.
      never: names of ops that may not run again, whatever their type.
      reading: branch ops that read variables which do not change meanwhile -> their handles.
    """
    lost = _lost(loop, loop_invariant, never, frozenset(reading))
    wanted = tuple(dict.fromkeys(blob for blob in asked if blob not in lost))
    body = loop.body

    def needs(blob: str) -> Iterable[str]:
        op = body.producer.get(blob)
        if blob in loop_invariant or blob in loop.invariants:
            return ()
        if op is None:
            return (body.outputs[body.inputs.index(blob)],)
        return (one for one in op.inputs if one not in reading.get(op.name, ()))

    ops: set[str] = set()
    arguments: set[str] = set()
    reads: dict[str, None] = {}
    for blob in reached(wanted, needs, deep=True):
        op = body.producer.get(blob)
        if blob in loop_invariant:
            reads[blob] = None
        elif op is None:
            arguments.add(blob)
        else:
            ops.add(op.name)
            handles = reading.get(op.name, ())
            reads |= {one: None for one in op.inputs if one in handles}
    in_order = [blob for blob in body.inputs if blob in arguments]
    return Replay(
        wanted=wanted,
        ops=frozenset(ops),
        states=tuple(blob for blob in in_order if blob not in loop.invariants),
        invariants=tuple(blob for blob in in_order if blob in loop.invariants),
        reads=tuple(reads),
    )


def _lost(
    loop: Loop, loop_invariant: frozenset[str], never: frozenset[str], reading: frozenset[str]
) -> set[str]:
    """Blobs that running again cannot give: a fixed point over the iterations."""
    body = loop.body
    lost = {
        blob
        for blob in body.inputs
        if blob not in loop.invariants and body.blobs[blob].dtype not in BYTES_PER_ELEMENT
    }
    while True:
        for op in body.ops:
            may_run = (is_pure(op) or op.name in reading) and op.name not in never
            again = may_run or (op.type == READ and op.outputs[0] in loop_invariant)
            if not again or not lost.isdisjoint(op.inputs):
                lost.update(op.outputs)
        carried = {
            argument
            for argument, result in zip(body.inputs, body.outputs, strict=True)
            if result in lost and argument not in lost
        }
        if not carried:
            return lost
        lost |= carried
