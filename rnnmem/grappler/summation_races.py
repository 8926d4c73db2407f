"""Whether control edges could show in a sum: who still holds an addend when the sum begins.

A sum of three values or more begins with the first addend that nobody else holds
(:mod:`rnnmem.grappler.summation_order`), so its last bits depend on whether another reader of an
addend is done by then. Where the data flow does not order the two, that is a race which nearly
always ends one way. An edge that holds up one of them may end it the other way:

    while ─┬─► Sum ◄── control edge of a later op      Sum holds the state that it reads, which the
           └─► gradient loop: AddN(a, b, state)        gradient loop adds up: another order

Lists hand buffers on unseen, so what a loop hands out, and what is put into a list or comes out of
one, may be an addend of any sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rnnmem.analysis.versions import history
from rnnmem.grappler.summation_order import Sums, summing_trees
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import BRANCHES, HANDS_OUT, LOOPS, PUTS, READ
from rnnmem.planning.plan import Turn


def may_change_a_sum(net: Net, edges: Iterable[Turn], path: Sequence[str] = ()) -> bool:
    """Whether the edges order a sum and another reader of what it may add up, in a race till now.

    Args:
      net: the Net in which the edges are to stand.
      edges: the edges; their paths do not matter.
      path: of the Net, ending in the attribute that holds it; empty for a whole function.
    """
    adding = {op.name for tree in summing_trees(net) for op in tree}
    adding.update(op.name for op in net.ops if any(map(_adds_up, op.nets.values())))
    if not adding:
        return False
    shared = _shared(net, path)
    past = history(net)
    number = {op.name: index for index, op in enumerate(past.ops)}
    delayed = _delayed(net, edges)
    sums = sum(1 << number[name] for name in adding)
    late = sum(1 << number[name] for name in adding & delayed)
    ahead: list[int] = []  # op -> a bit for each op that surely ran before it, and for itself
    behind = _behind(past.after)
    for index, others in enumerate(past.before):
        known = 1 << index
        for other in others:
            known |= ahead[other]
        ahead.append(known)
        op = past.ops[index]
        if not shared.isdisjoint(op.inputs):
            at_stake = sums if op.name in delayed else late
            if at_stake & ~(known | behind[index]):
                return True
    return False


def _adds_up(net: Net) -> bool:
    """Whether a sum of three values or more stands in the Net, at any depth."""
    return any(summing_trees(inner) for _, inner in net.walk())


def _shared(net: Net, path: Sequence[str]) -> set[str]:
    """Blobs whose buffer may be taken by a sum of which it is an addend."""
    found = set(net.inputs)
    for op in net.ops:
        if op.type in HANDS_OUT or op.type in LOOPS or op.type in BRANCHES:
            found.update(op.outputs)
        if op.type in PUTS or op.type in LOOPS or op.type in BRANCHES:
            found.update(op.inputs)
    # The variable holds what is read of it.
    found.difference_update(*(op.outputs for op in net.ops if op.type == READ))
    found |= Sums(net, carried=path[-1:] == ("body",)).addends
    return found if path else found.difference(net.inputs)  # which the caller holds


def _delayed(net: Net, edges: Iterable[Turn]) -> set[str]:
    """Names of the ops that wait, and of all that run after them."""
    found: set[str] = set()
    pending: list[Op] = [net.op_by_name[edge.op] for edge in edges]
    while pending:
        op = pending.pop()
        if op.name not in found:
            found.add(op.name)
            pending += [reader for blob in op.outputs for reader in net.readers.get(blob, ())]
            pending += net.controlled.get(op.name, ())
    return found


def _behind(after: Iterable[Iterable[int]]) -> list[int]:
    """Op -> a bit for each op that runs only after it."""
    following = list(after)
    found = [0] * len(following)
    for index in reversed(range(len(following))):
        for other in following[index]:
            found[index] |= found[other] | 1 << other
    return found
