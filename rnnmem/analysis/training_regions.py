"""Places: step nets below a Net in which something stands together with its gradient.

A training loop with the tape inside is such a step net, and so is a branch that trains:

    while (step net: forward loop ─► gradient loop ─► update of the variables)
    while (step net: layers ─► their gradient ─► update of the variables)

What happens in one run of such a step net is a whole step, so it is planned, rewritten and verified
like one. Pairs inside the step nets of another pair are no places: they belong to that pair.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import partial

from rnnmem.analysis.loops import Loop, own_loop_pairs
from rnnmem.analysis.tape import takes_gradient
from rnnmem.analysis.variable_effects import ANY, Writers
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net, Op, Path
from rnnmem.ir.marks import IN_PLACE
from rnnmem.ir.op_table import BRANCHES, LOOPS
from rnnmem.ir.order import all_needed_by, reached


@dataclasses.dataclass(frozen=True)
class NestedStep:
    """A step net that holds a gradient, and what it is of.

    Attributes:
      path: the way to it.
      net: the step net.
      has_loops: whether loops stand in it together with their gradient loops.
      bytes: of all blobs of the function around it whose size is known.
      results: places of the numbers that it computes and that something outside needs.
      variables: its inputs that hold the handle of one variable each, of which no two are the same,
        and which nothing outside writes while the step net runs.
    """

    path: Path
    net: Net
    has_loops: bool
    bytes: int
    results: frozenset[int]
    variables: frozenset[str]


def nested_steps(net: Net) -> tuple[NestedStep, ...]:
    """Every place below the Net, outer ones first."""
    return net.once(_nested_steps)


def _nested_steps(net: Net) -> tuple[NestedStep, ...]:
    variables = {blob: blob for blob in net.inputs if net.blobs[blob].dtype == "resource"}
    size = sum(blob.bytes or 0 for _, inner in net.walk() for blob in inner.blobs.values())
    return tuple(_below(net, variables, Path(), size))


def _below(net: Net, variables: Mapping[str, str], path: Path, size: int) -> Iterator[NestedStep]:
    """Places below a Net whose inputs hold handles of those variables, by input."""
    holding = [
        (op, label, inner)
        for op in net.ops
        if op.nets and op.type in (*LOOPS, *BRANCHES)
        for label, inner in op.nets.items()
        if label != "cond" and _holds_steps(inner)
    ]
    paired = _paired(net) if holding else set()
    writers = Writers(net, frozenset(variables))
    for op, label, inner in holding:
        if op.name not in paired:
            inside = _inside(writers, op, inner, variables)
            here = path.child(op.name, label)
            has_loops = any(not pair.closed for pair in own_loop_pairs(inner))
            if has_loops or takes_gradient(inner):
                results = frozenset(_results(net, op, inner))
                yield NestedStep(here, inner, has_loops, size, results, frozenset(inside))
            yield from _below(inner, inside, here, size)


def _results(net: Net, op: Op, inner: Net) -> Iterator[int]:
    """Places of numbers that a step net computes and that the Net, or the loop's cond, needs."""
    cond = op.nets.get("cond")
    for place, (blob, outside) in enumerate(zip(inner.outputs, op.outputs, strict=True)):
        decides = cond is not None and cond.fan_out(cond.inputs[place])
        if blob in inner.producer and inner.blobs[blob].dtype in BYTES_PER_ELEMENT:
            if decides or net.fan_out(outside):
                yield place


def _holds_steps(net: Net) -> bool:
    """Whether something stands together with its gradient in the Net or below it."""
    return any(
        takes_gradient(inner)
        or (any(op.type in LOOPS for op in inner.ops) and own_loop_pairs(inner))
        for _, inner in net.walk()
    )


def _paired(net: Net) -> set[str]:
    """Names of the loops that are half of a pair."""
    return {
        name
        for pair in own_loop_pairs(net)
        for name in (pair.path[-1], *(one.loop.op.name for one in pair.gradients))
    }


def _inside(writers: Writers, op: Op, inner: Net, variables: Mapping[str, str]) -> dict[str, str]:
    """Input of the step net -> the variable that it holds, for each that one run sees alone."""
    handles = [blob for blob in inner.inputs if inner.blobs[blob].dtype == "resource"]
    given = dict(zip(inner.inputs, op.inputs[op.type in BRANCHES :], strict=True))
    if op.type in LOOPS:
        loop_invariant = Loop(writers.net, op).invariants
        given = {blob: given[blob] for blob in loop_invariant}
    found = {}
    for blob in handles:
        held = writers.variable_of(given[blob]) if blob in given else ANY
        if held == ANY:
            return {}  # it may be any of the others
        found[blob] = variables[held]
    if len(set(found.values())) < len(found):
        return {}
    own = Writers(inner, frozenset(found))
    return {
        blob: variable
        for blob, variable in found.items()
        if writers.in_turn(op, given[blob]) and _ends_before_next(op, inner, own.of(blob))
    }


def _ends_before_next(op: Op, inner: Net, names: tuple[str, ...]) -> bool:
    """Whether no iteration begins before these ops of the one before have run."""
    if op.type not in LOOPS or not names:
        return True
    cond = op.nets["cond"]
    asked = set(reached(cond.outputs[:1], partial(_sources, cond)))
    for nested_step, blob in enumerate(cond.inputs):
        producer = inner.producer.get(inner.outputs[nested_step])
        if (
            blob in asked
            and producer is not None
            and set(names) <= all_needed_by(inner, [producer.name])
        ):
            return True
    return False


def _sources(net: Net, blob: str) -> tuple[str, ...]:
    """What a blob is computed from."""
    return net.producer[blob].inputs if blob in net.producer else ()


def step_net(net: Net, path: tuple[str, ...]) -> Net:
    """The step net at the end of a path.

    Raises:
      KeyError: there is none.
    """
    return Path(path).at(net)


def with_step_net(net: Net, path: tuple[str, ...], new: Net, *, marked: bool = True) -> Net:
    """The Net with another step net of the same signature at the end of a path.

    Args:
      net: the Net.
      path: names of ops and of the attributes that hold their step nets.
      new: the step net.
      marked: whether the op that runs it says that it is to be verified by itself.
    """
    return Path(path).put(net, new, **({IN_PLACE: b"1"} if marked else {}))
