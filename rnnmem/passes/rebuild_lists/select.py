"""Which lists a gradient loop is given again instead of their being kept since the forward loop.

A sequence is turned to [time, batch, features] and cut into a list for the forward loop; where the
gradient needs its elements too, the list lives from one loop to the other beside the sequence it
was made from. If that is an argument of the function, or rows of a variable, it is there anyway:

    argument ─────────────► Transpose ─► TensorListFromTensor ─► both loops
    variable ─► Gather ─┘

Rows may be looked up again as long as nobody has written the variable by then. Where the variable
has fewer of them than the sequence, the gradient loop looks up those of its iteration, and no list
is made at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from rnnmem.analysis.branches import is_lookup
from rnnmem.analysis.lookups import are_worth_a_copy
from rnnmem.analysis.loops import Loop, LoopPair
from rnnmem.analysis.variable_effects import ANY, Writers
from rnnmem.ir.graph import VARIABLE_SHAPES, Net, Op, bytes_of
from rnnmem.ir.op_table import CUT, LOOKUP, MAY_RERUN, SAME_NUMBERS, types
from rnnmem.passes.decision import Offer, Site
from rnnmem.passes.rebuild_lists.decision import RebuiltList
from rnnmem.passes.schedule.gradient_start import LARGE

MOVES = (SAME_NUMBERS & MAY_RERUN) | types("reorders")
"""Op types that hand on the numbers they read, in another order at most."""
ASKED = types("list", "shape", "get", "length")
"""What can be asked of a list of rows without there being one."""


def offer(site: Site) -> Offer:
    """What loops that are rewritten may bring along, where its time is worth it."""
    found = {
        pair.path: rebuilt_lists(site.net, [pair], site.seconds, site.writers)
        for pair in site.pairs
    }

    def decide(opened: Iterable[LoopPair], of: Callable[[str], tuple]) -> tuple[RebuiltList, ...]:
        # Zeros like a list hold it until they are made; a list that begins empty does not.
        empty = {start.zeros for start in of("lazy_gradient_lists")}
        direct = {one.list for one in of("unstacked_lists")}
        return tuple(
            one if empty.issuperset(one.zeros) else dataclasses.replace(one, table=())
            for pair in opened
            for one in found[pair.path]
            if one.blob not in direct
        )

    return Offer(decide)


def rebuilt_lists(
    net: Net,
    pairs: Iterable[LoopPair],
    seconds: Callable[[Op, Net], float],
    writers: Writers | None = None,
) -> tuple[RebuiltList, ...]:
    """The lists that the gradient loops of the pairs could be given again.

    Args:
      net: the Net around the loops, with all shapes that are known.
      pairs: the loop pairs that are rewritten.
      seconds: estimated time of one run of an op of a Net.
      writers: what may write variables; None: no variable may be read again.
    """
    found = []
    for pair in pairs:
        forward = pair.forward
        gradients = tuple(gradient.loop.op.name for gradient in pair.gradients)
        loops = {forward.op.name, *gradients}
        for position in sorted(forward.invariants.values()):
            blob = forward.op.inputs[position]
            ops = _moving(net, blob)
            if ops and ops[0].type == LOOKUP and not _stays(ops[0], writers, gradients):
                continue
            zeros = _zeros_like(net, forward.op.outputs[position], gradients)
            others = {reader.name for reader in net.readers.get(blob, ())} - loops
            if not ops or others or zeros is None or _held_elsewhere(net, ops):
                continue
            size = net.blobs[net.producer[blob].inputs[0]].bytes or 0
            if size >= LARGE:
                taken = sum(seconds(op, net) for op in ops) * len(gradients)
                names = tuple(op.name for op in ops)
                table = _table(net, forward, position, ops, size)
                found.append(RebuiltList(blob, names, gradients, size, taken, zeros, table))
    return tuple(found)


def _table(net: Net, loop: Loop, position: int, ops: list[Op], size: int) -> tuple[int, ...]:
    """The shape of the variable whose rows are looked up one by one; empty where they are not.

    A variable that is written row by row is copied when it is read: it must be small.
    """
    lookup, argument = ops[0], loop.body.inputs[position]
    if not is_lookup(lookup) or len(ops) != 2:
        return ()
    if any(reader.type not in ASKED for reader in loop.body.readers.get(argument, ())):
        return ()
    table = net.attributes.get(VARIABLE_SHAPES, {}).get(lookup.inputs[0])
    held = bytes_of(net.blobs[lookup.outputs[0]].dtype, table)
    return table if held is not None and are_worth_a_copy(size, held) else ()


def _moving(net: Net, blob: str) -> list[Op]:
    """The ops that make a list of what is there anyway, in order; none where others do."""
    last = net.producer.get(blob)
    if last is None or last.type != CUT:
        return []
    ops = [last]
    while (source := net.producer.get(ops[-1].inputs[0])) is not None:
        if source.type not in MOVES and source.type != LOOKUP:
            return []
        ops.append(source)
    sides = (net.producer.get(side) for op in ops if op.type in MOVES for side in op.inputs[1:])
    if any(side is None or side.type != "Const" for side in sides):
        return []
    return ops[::-1] if ops[-1].inputs[0] in net.inputs else []


def _zeros_like(net: Net, carried: str, gradients: tuple[str, ...]) -> tuple[str, ...] | None:
    """The ops that make zeros for the gradient of what the forward loop carries; None: more read.

    They read nothing but the lengths and shapes, and would hold the list until they run.
    """
    readers = net.readers.get(carried, ())
    if len(readers) != net.fan_out(carried) or (readers and len(gradients) != 1):
        return None
    for reader in readers:
        given = {one.name for one in net.readers.get(reader.outputs[0], ())}
        if reader.type != "ZerosLike" or not given <= set(gradients):
            return None
    return tuple(reader.name for reader in readers)


def _held_elsewhere(net: Net, ops: list[Op]) -> bool:
    """Whether somebody beside the ops reads what they hand on, and so may hold it anyway."""
    chain = {op.name for op in ops}
    return any(
        net.fan_out(blob) > 1
        and any(one.name not in chain and one.type != "Shape" for one in net.readers[blob])
        for op in ops[:-1]
        for blob in op.outputs
    )


def _stays(lookup: Op, writers: Writers | None, gradients: Iterable[str]) -> bool:
    """Whether nobody writes the variable between the lookup and the gradient loops' start."""
    if writers is None or writers.variable_of(lookup.inputs[0]) == ANY:
        return False
    writing = set(writers.of(writers.variable_of(lookup.inputs[0])))
    before = writers.before(lookup.name)
    return all(writing <= before | writers.after(gradient) for gradient in gradients)
