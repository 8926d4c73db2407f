"""Sums that race: who still holds an addend when the sum begins, and which edges could show in it.

A sum of three values or more begins with the first addend that nobody else holds
(:mod:`rnnmem.grappler.summation_order`), so its last bits depend on whether another reader of an
addend is done by then. Where the data flow does not order the two, that is a race which nearly
always ends one way. An edge that holds up one of them may end it the other way:

    while ─┬─► Sum ◄── control edge of a later op      Sum holds the state that it reads, which the
           └─► gradient loop: AddN(a, b, state)        gradient loop adds up: another order

Lists hand buffers on unseen: what a loop with some hands out, and what is put into a list or comes
out of one, may be an addend of any sum that adds up such a blob.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from rnnmem.analysis.loops import Loop, loops_of
from rnnmem.analysis.reachability import bits_of_all
from rnnmem.analysis.shared_rows import SLICED, may_be_rows
from rnnmem.analysis.versions import ssa
from rnnmem.grappler.summation_order import (
    Sums,
    addends_of,
    summation_trees,
    sums_of,
)
from rnnmem.ir.graph import Net, Op, Path
from rnnmem.ir.handed_on import buffer_of
from rnnmem.ir.op_table import (
    ASKS_SHAPE,
    BRANCHES,
    HANDS_OUT,
    LOOPS,
    PUTS,
    READ,
    SAME_BUFFER,
    TAKES,
)
from rnnmem.ir.order import (
    all_needed_by,
    all_waiting_for,
    is_constant,
    popped_at_once,
    through_identities,
)

_HANDING_OUT = HANDS_OUT | BRANCHES | LOOPS


def not_to_wait(net: Net, path: Sequence[str] = (), held: Collection[str] = ()) -> frozenset[str]:
    """Names of the ops that no edge may hold up: a sum could show it.

    They are the sums, and other readers of what one may add up, where nothing orders the two, and
    all that these need.

    Args:
      net: the Net in which edges are to stand.
      path: of the Net, ending in the attribute that holds it; empty for a whole function.
      held: inputs of a step net that somebody outside holds, see `held_below`.
    """
    held = held if path else net.inputs
    several = [op for op in net.ops if any(map(_adds_up, op.nets.values()))]
    adders = list(itertools.chain(several, *summation_trees(net)))
    if not adders:
        return frozenset()
    sums = _buffers(net, path)
    past = ssa(net)
    number = {op.name: index for index, op in enumerate(past.ops)}
    adding = _adding(adders, sums, number)
    handed_on = set(map(sums.root, _unseen(net, path)))
    of_any = functools.reduce(operator.or_, (adding.get(root, 0) for root in handed_on), 0)
    adding |= dict.fromkeys(handed_on, of_any)
    before = bits_of_all(past.before, range(len(past.ops)))
    after = bits_of_all(past.after, reversed(range(len(past.ops))))
    racing = 0
    for index, op in enumerate(past.ops):
        let_go = (blob for blob in op.inputs if buffer_of(net, blob) not in held)
        read = (adding.get(sums.root(blob), 0) for blob in let_go)
        unordered = functools.reduce(operator.or_, read, 0) & ~(before[index] | after[index])
        if unordered:
            racing |= unordered | 1 << index
    named = (op.name for index, op in enumerate(past.ops) if racing >> index & 1)
    return frozenset(all_needed_by(net, named))


def held_below(
    net: Net, held: Collection[str] | None = None
) -> Iterator[tuple[Path, frozenset[str]]]:
    """Of each step net below a Net, the inputs that somebody outside holds until it has run.

    Args:
      net: a Net.
      held: of its inputs those that are held; None: all, as by the caller of a whole function.
    """
    let_go = set() if held is None else set(net.inputs).difference(held)
    bodies = {loop.op.name: loop for loop in loops_of(net)}
    for op in net.ops:
        for label, inner in op.nets.items():
            inside = frozenset[str]()
            if op.name in bodies and label == "body":
                loop = bodies[op.name]
                given = {one: op.inputs[loop.invariants[one]] for one in held_throughout(loop)}
                inside = frozenset(
                    one for one, blob in given.items() if buffer_of(net, blob) not in let_go
                )
            yield Path((op.name, label)), inside
            for path, below in held_below(inner, inside):
                yield Path((op.name, label, *path)), below


def _buffers(net: Net, path: Sequence[str]) -> Sums:
    """What may stand in one buffer, parts of it and what goes through a barrier included."""
    sums = Sums(net, carried=path[-1:] == ("body",))
    for op in net.ops:
        pop = popped_at_once(net, op)
        if may_be_rows(net, op):
            for part in op.outputs:
                sums.join(op.inputs[SLICED[op.type]], part)
        if pop is not None:
            sums.join(op.inputs[1], pop.outputs[1])
    return sums


def _adding(adders: Iterable[Op], sums: Sums, number: Mapping[str, int]) -> dict[str, int]:
    """What stands in one buffer, by its root -> a bit for each op that may add it up."""
    found: dict[str, int] = {}
    for op in adders:
        for blob in op.inputs:
            root = sums.root(blob)
            found[root] = found.get(root, 0) | 1 << number[op.name]
    return found


def racing(loop: Loop) -> frozenset[str]:
    """Names of the additions in a loop's body that race with the other readers of an addend.

    A sum begins with the first addend that nobody else holds: one whose other readers happen to
    be done. What is pushed, constant or a variable always is held; what is the same in all
    iterations is where somebody outside holds it until the loop is over; what one branch pushes,
    and another does not, depends on the branch.
    """
    return loop.once(_racing)


def _racing(loop: Loop) -> frozenset[str]:
    body, held = loop.body, _held(loop)
    early = _let_go_early(loop) & sums_of(body).addends
    return frozenset(
        op.name
        for tree in summation_trees(body)
        for addends in [addends_of(body, tree)]
        if any(blob in early or _may_be_let_go(body, blob, held) for blob in addends)
        for op in tree
    ) | {op.name for op in body.ops if op.nets and not early.isdisjoint(op.inputs)}


def _let_go_early(loop: Loop) -> set[str]:
    """Invariants that nobody may hold any more while the last iterations still add them up.

    They go through the loop as fast as its counter, ahead of what the iterations compute.
    """
    net, steady = loop.net, set(loop.invariants.values())
    varying = [blob for index, blob in enumerate(loop.op.outputs) if index not in steady]
    behind = all_waiting_for(net, {op.name for one in varying for op in net.readers.get(one, ())})

    def is_held(blob: str) -> bool:
        source = net.producer.get(through_identities(net, blob))
        if source is None or source.type == READ or is_constant(net, source):
            return True
        shared = sums_of(net).sharing(blob)
        readers = (op for one in shared for op in net.readers.get(one, ()))
        return not set(net.outputs).isdisjoint(shared) or any(
            op.name in behind or op.type in PUTS for op in readers
        )

    return {blob for blob, at in loop.invariants.items() if not is_held(loop.op.inputs[at])}


def held_throughout(loop: Loop) -> set[str]:
    """Invariants that somebody holds until the last iteration is over."""
    return set(loop.invariants) - _let_go_early(loop)


def summed_later(loop: Loop) -> frozenset[str]:
    """Blobs of the body whose buffer a sum outside may take when the last iteration is over."""
    if sums_of(loop.net).addends.isdisjoint(loop.op.outputs):  # as it is with the loop's own sums
        return frozenset()
    others = tuple(op for op in loop.net.ops if op.name != loop.op.name)
    outside = Sums(loop.net.replace(ops=others, inputs=(*loop.net.inputs, *loop.op.outputs)))
    results = {
        result
        for result, handed in zip(loop.body.outputs, loop.op.outputs, strict=True)
        if handed in outside.addends
    }
    return frozenset(blob for one in results for blob in sums_of(loop.body).sharing(one))


@dataclasses.dataclass(frozen=True)
class BesideShapes:
    """Additions in a forward step net, an addend of which has no other readers but of its shape.

    Attributes:
      loop: the loop op's name.
      ops: the tree of additions; its last first.
    """

    loop: str
    ops: tuple[Op, ...]


def sums_beside_shapes(net: Net) -> Iterator[BesideShapes]:
    """The sums, in forward step nets, whose order may depend on when shapes are taken.

    The gradient asks for the shape of each partial sum of a tree of additions, so the graph
    optimizer leaves those where they are, beside the one AddN that it makes of the tree. Which of
    both begins first depends on how it lists ops (:mod:`rnnmem.grappler.listing`).

    Args:
      net: a whole Net, inlined and without dead ops.
    """
    for _, inner in net.walk():
        for loop in loops_of(inner):
            if loop.pushes:
                yield from _beside_shapes(loop)


def _beside_shapes(loop: Loop) -> Iterator[BesideShapes]:
    body, among, held = loop.body, racing(loop), _held(loop)
    for tree in summation_trees(body):
        adding = {op.name for op in tree}
        if adding.isdisjoint(among):
            continue
        for blob in addends_of(body, tree):
            others = {op.type for op in body.readers.get(blob, ()) if op.name not in adding}
            source = body.producer.get(blob)
            given = source is None or source.type in _HANDING_OUT
            if others and others <= ASKS_SHAPE and not given and _may_be_let_go(body, blob, held):
                yield BesideShapes(loop.op.name, tuple(tree))
                break


def _held(loop: Loop) -> set[str]:
    """The buffers that nobody lets go of.

    A list that nobody reads the last iteration may let go of at once.
    """
    net, loops = loop.net, {one.op.name: one for one in loops_of(loop.net)}

    def is_read(accumulator: str) -> bool:
        return accumulator in net.outputs or any(
            op.name not in loops or _takes_out_of(loops[op.name], accumulator)
            for op in net.readers.get(accumulator, ())
        )

    pushed = {
        push.inputs[1] for index, push in loop.pushes.items() if is_read(loop.op.outputs[index])
    }
    return {buffer_of(loop.body, blob) for blob in pushed | set(loop.invariants)}


def _takes_out_of(loop: Loop, accumulator: str) -> bool:
    """Whether the loop does more with a list than to count its blobs."""
    for index, blob in enumerate(loop.op.inputs):
        if blob == accumulator:
            pop = loop.pops.get(index)
            if pop is None or loop.body.fan_out(pop.outputs[1]):
                return True
    return False


def _may_be_let_go(body: Net, blob: str, held: set[str]) -> bool:
    """Whether other readers of an addend may be done with it in time, or not."""
    sums = sums_of(body)
    if blob in sums.unsteady:
        return True
    source = body.producer.get(through_identities(body, blob))
    if source is not None and source.type in ("Const", READ):
        return False
    others = body.fan_out(blob) > 1 and blob not in body.outputs
    return others and buffer_of(body, blob) not in held


def _adds_up(net: Net) -> bool:
    """Whether a sum of three values or more stands in the Net, at any depth."""
    return any(summation_trees(inner) for _, inner in net.walk())


def _unseen(net: Net, path: Sequence[str]) -> set[str]:
    """Blobs that lists, here or further in, hand on unseen or were handed."""
    found = set(net.inputs if path else ())
    passed = {push.name: pop.name for push in net.ops if (pop := popped_at_once(net, push))}
    for op in net.ops:
        if op.name in passed or op.name in passed.values():
            continue
        inside = any(inner.once(_has_lists) for inner in op.nets.values())
        if op.type in TAKES or inside:
            found.update(op.outputs)
        if _goes_into_a_list(net, op) or inside:
            found.update(op.inputs)
    # The variable holds what is read of it.
    return found.difference(*(op.outputs for op in net.ops if op.type == READ))


def _goes_into_a_list(net: Net, op: Op) -> bool:
    """Whether a list may hold what the op reads; an optional is a view of what it holds."""
    makes_lists = any(net.blobs[blob].dtype == "variant" for blob in op.outputs)
    return makes_lists and not op.nets and op.type not in SAME_BUFFER


def _has_lists(net: Net) -> bool:
    """Whether something goes into a list, or comes out of one, at any depth."""
    return any(
        op.type in TAKES
        or _goes_into_a_list(net, op)
        or any(inner.once(_has_lists) for inner in op.nets.values())
        for op in net.ops
    )
