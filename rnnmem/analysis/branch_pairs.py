"""Loops in a branch whose gradient loops stand in a branch of the gradient.

TensorFlow's gradient of a branch is another, on the same predicate; what the first hands it goes
through optionals, which are empty where the other way was taken:

    If { forward loop ─► acc ─► OptionalFromValue } ─► If { OptionalGetValue ─► gradient loop }
    or { OptionalNone }                                or { }
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from rnnmem.analysis.loops import LoopPair, loop_pairs
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import BRANCHES, LOOPS, UNWRAP, WRAP
from rnnmem.ir.order import through_identities


@dataclasses.dataclass(frozen=True)
class Handed:
    """One list that the forward branch hands to the gradient branch.

    Attributes:
      held: the blob of the forward branch that is wrapped.
      outer: the optional, outside of both.
      wrap: the op that wraps it.
      unwrap: the op of the gradient branch that unwraps it.
    """

    held: str
    outer: str
    wrap: Op
    unwrap: Op


@dataclasses.dataclass(frozen=True)
class BranchPair:
    """A loop pair between two branch ops of one Net.

    Attributes:
      pair: the pair; its path begins with the branch op and the branch.
      forward: the branch op that holds the forward loop.
      gradient: the one that holds the gradient loop.
      label: which of their branches.
      handed: what goes from one to the other through optionals that nobody else reads.
    """

    pair: LoopPair
    forward: Op
    gradient: Op
    label: str
    handed: tuple[Handed, ...]


def branch_pairs(net: Net) -> tuple[BranchPair, ...]:
    """The loop pairs between branches of a Net; a loop with several gradients is none of them."""
    branches = [op for op in net.ops if op.type in BRANCHES]
    found: dict[tuple[str, ...], list[BranchPair]] = {}
    for forward in branches:
        if not any(op.type in LOOPS for inner in forward.nets.values() for op in inner.ops):
            continue
        for gradient in branches:
            for one in _between(net, forward, gradient):
                found.setdefault(one.pair.path, []).append(one)
    alone = (some[0] for some in found.values() if len(some) == 1)
    return tuple(one for one in alone if len(one.pair.gradients) == 1 and not one.pair.closed)


def _between(net: Net, forward: Op, gradient: Op) -> list[BranchPair]:
    taken = [through_identities(net, op.inputs[0]) for op in (forward, gradient)]
    if taken[0] != taken[1] or gradient is forward or set(gradient.nets) != set(forward.nets):
        return []
    found = []
    for label in forward.nets:
        handed = _handed(net, forward, gradient, label)
        path = (forward.name, label)
        stands_for = {one.unwrap.outputs[0]: one.held for one in handed}
        nets = forward.nets[label], gradient.nets[label]
        for pair in loop_pairs(*nets, stands_for, path):
            found.append(BranchPair(pair, forward, gradient, label, handed))
    return found


def _handed(net: Net, forward: Op, gradient: Op, label: str) -> tuple[Handed, ...]:
    """What one branch of the forward op hands to the same branch of the gradient op alone."""
    made = {blob: place for place, blob in enumerate(forward.outputs)}
    found = []
    for place, outer in enumerate(gradient.inputs[1:]):
        if outer not in made or net.fan_out(outer) != 1:
            continue
        inside = forward.nets[label]
        wrap = inside.producer.get(inside.outputs[made[outer]])
        unwrap = _reader(gradient.nets, label, place)
        if wrap is None or wrap.type != WRAP or unwrap is None or len(wrap.inputs) != 1:
            continue
        if inside.fan_out(wrap.outputs[0]) == 1:
            held = through_identities(inside, wrap.inputs[0])
            found.append(Handed(held, outer, wrap, unwrap))
    return tuple(found)


def _reader(nets: Mapping[str, Net], label: str, place: int) -> Op | None:
    """The op that unwraps an argument for one reader, where no branch does more with it.

    What both branches hand over in one place is not followed: in a graph without branches only the
    predicate would tell which of them a value came from (`rnnmem/verify/arithmetic.py`).
    """
    alone = all(net.fan_out(net.inputs[place]) == (other == label) for other, net in nets.items())
    readers = nets[label].readers.get(nets[label].inputs[place], ())
    if not alone or readers[0].type != UNWRAP:
        return None
    return readers[0] if nets[label].fan_out(readers[0].outputs[0]) == 1 else None
