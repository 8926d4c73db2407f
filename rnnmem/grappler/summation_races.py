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

from collections.abc import Iterable, Iterator, Sequence

from rnnmem.analysis.loops import Loop, loops_of
from rnnmem.analysis.versions import history
from rnnmem.grappler.summation_order import Sums, addends_of, summing_trees
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import BRANCHES, LOOPS, READ
from rnnmem.planning.plan import Turn

_INTO_LISTS = frozenset({"OptionalFromValue", "TensorListPushBack", "TensorListSetItem"})
_HANDING_OUT = frozenset(
    {"OptionalGetValue", "TensorListGetItem", "TensorListPopBack", *BRANCHES, *LOOPS}
)

_SHAPES = frozenset({"Rank", "Shape", "ShapeN", "Size"})


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


def sums_beside_shapes(net: Net) -> Iterator[Op]:
    """The sums, in forward step nets, that begin with an addend once its shape was taken, or not.

    Both take no time, so one thread runs them one after the other, in the order in which the graph
    optimizer lists ops that are ready together. That order hangs on all names in the function.

    Args:
      net: a whole Net, inlined and without dead ops.
    """
    for _, inner in net.walk():
        for loop in loops_of(inner):
            if loop.pushes:
                yield from _beside_shapes(loop)


def _beside_shapes(loop: Loop) -> Iterator[Op]:
    body = loop.body
    for tree in summing_trees(body):
        adding = {op.name for op in tree}
        if adding.isdisjoint(loop.racing):
            continue
        for blob in addends_of(body, tree):
            others = {op.type for op in body.readers.get(blob, ()) if op.name not in adding}
            source = body.producer.get(blob)
            given = source is None or source.type in _HANDING_OUT
            if others and others <= _SHAPES and not given and loop.may_be_let_go(blob):
                yield tree[0]
                break


def _adds_up(net: Net) -> bool:
    """Whether a sum of three values or more stands in the Net, at any depth."""
    return any(summing_trees(inner) for _, inner in net.walk())


def _shared(net: Net, path: Sequence[str]) -> set[str]:
    """Blobs whose buffer may be taken by a sum of which it is an addend."""
    found = set(net.inputs)
    for op in net.ops:
        if op.type in _HANDING_OUT:
            found.update(op.outputs)
        if op.type in _INTO_LISTS or op.type in LOOPS or op.type in BRANCHES:
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
