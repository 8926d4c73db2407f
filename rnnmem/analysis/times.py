"""Estimated times of whole Nets: ops with all that they run inside, as often as they run it."""

from __future__ import annotations

from rnnmem.analysis.loops import Loop
from rnnmem.analysis.machine import Machine
from rnnmem.analysis.trip_count import UNKNOWN_TRIPS, trip_count
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.marks import TRIPS
from rnnmem.ir.op_table import LOOPS, PUSH


def step_seconds(net: Net, machine: Machine) -> float:
    """Estimated time of one run of the Net, its loops with all their iterations."""
    return sum([op_seconds(op, net, machine) for op in net.ops])


def op_seconds(op: Op, net: Net, machine: Machine) -> float:
    """Estimated time of one run of the op, with all that it runs inside."""
    if not op.nets:
        return machine.seconds(op, net)
    inner = [step_seconds(step_net, machine) for step_net in op.nets.values()]
    return trips_of(Loop(net, op)) * sum(inner) if op.type in LOOPS else max(inner)


def again_seconds(op: Op, net: Net, machine: Machine) -> float:
    """Estimated time of running an op again: pushes in it are those that no first run has then."""
    if not op.nets:
        return machine.seconds(op, net)
    inner = [
        sum(again_seconds(one, step_net, machine) for one in step_net.ops if one.type != PUSH)
        for step_net in op.nets.values()
    ]
    return trips_of(Loop(net, op)) * sum(inner) if op.type in LOOPS else max(inner)


class Clock:
    """:func:`again_seconds` of the ops of one function, each worked out once."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.known: dict[int, tuple[Op, float]] = {}  # with the op, so that its id stays its own

    def __call__(self, op: Op, net: Net) -> float:
        """Estimated time of one run of the op."""
        found = self.known.get(id(op))
        if found is None:
            found = self.known[id(op)] = op, again_seconds(op, net, self.machine)
        return found[1]


def trips_of(loop: Loop) -> int:
    """Iterations; a gradient loop runs as often as the loop whose counter it is given."""
    known = loop.op.attributes.get(TRIPS)
    if known is None:
        known = trip_count(loop)
    if known is not None:
        return known
    for blob in loop.op.inputs:
        source = loop.net.producer.get(blob)
        if source is not None and source.type in LOOPS and source is not loop.op:
            forward = trip_count(Loop(loop.net, source))
            if forward is not None:
                return forward
    return UNKNOWN_TRIPS
