"""Estimated time of a whole step as TensorFlow's executor runs it, with all that is not a kernel.

The Net is taken as it runs: folded constants and congruent ops are gone, loops hand on their
variables one by one, every op of a branch that is not taken is passed by, and iterations of a
segment run again as often as its schedule says. So what a rewrite adds is counted where it stands:
barriers, lists, branches, keep-alive uses.
"""

from __future__ import annotations

from rnnmem.analysis.costs import Costs
from rnnmem.analysis.machine import CPU, Machine
from rnnmem.analysis.segment_lengths import segment_count
from rnnmem.analysis.shapes import KnownNet, filled
from rnnmem.analysis.times import step_seconds
from rnnmem.analysis.trip_count import UNKNOWN_TRIPS
from rnnmem.ir.graph import Op
from rnnmem.ir.marks import (
    ADVANCES,
    AGAIN,
    END,
    GROWTH,
    KEEPS,
    KEPT,
    LENGTH,
    REFILLS,
    SAVES_TAIL,
    SEGMENTS,
)
from rnnmem.ir.op_table import UNWRAP, WRAP
from rnnmem.passes.checkpoint.schedule import evaluations
from rnnmem.planning.overlap import factor_one_by_one
from rnnmem.simulate.program import compile_net, is_cheap
from rnnmem.simulate.steps import Kind, Program, Step

_HANDS_ON = (Kind.VIEW, Kind.PARTS)
_OPTIONALS = (WRAP, UNWRAP)
"""Views that have a cost of their own."""
FEW = 0.2
"""Part of the iterations on the way to a segment whose state is kept, about."""


def run_seconds(net: KnownNet, machine: Machine) -> float:
    """Estimated time of one run of a Net, with all that its loops run inside.

    Args:
      net: with the shapes that can be found out.
      machine: whose costs are counted; where none were measured, the kernels alone are.
    """
    if machine.costs is None:
        return step_seconds(filled(net), machine)
    # The program by which the peak is predicted as well; its own times are not asked.
    return _Walk(machine, machine.costs).program(compile_net(net, CPU), 1)


def slowdown_of(rewritten: KnownNet, original: float, machine: Machine) -> float | None:
    """The factor of step time of a rewritten Net; None where no costs were measured.

    Args:
      rewritten: by a plan, with its shapes.
      original: seconds of the Net as it was.
      machine: whose costs are counted.
    """
    if machine.costs is None or not original:
        return None
    return run_seconds(rewritten, machine) / original


class _Walk:
    """Adds up what the steps of programs take, by the costs of one machine."""

    def __init__(self, machine: Machine, costs: Costs):
        self.machine = machine
        self.costs = costs

    def program(self, program: Program, around: int) -> float:
        """Seconds of one run; ``around``: iterations of the loop that it is the body of."""
        return sum([self.step(program, step, around) for step in program.steps])

    def step(self, program: Program, step: Step, around: int) -> float:
        """Seconds of one run of a step of a program."""
        if step.kind is Kind.LOOP:
            trips = step.trips
            if trips is None:
                again = step.op.attributes.get(SEGMENTS) == AGAIN
                trips = around if again else UNKNOWN_TRIPS
            return self.loop(step, trips)
        if step.inner:
            return self.branch(step, around)
        if step.kind in _HANDS_ON and step.op.type not in _OPTIONALS:
            return self.costs.op  # a transposition that moves nothing among them
        return 0.0 if step.op.nets else self.machine.seconds(step.op, program.net)

    def loop(self, step: Step, trips: int) -> float:
        """Seconds of all iterations of a loop."""
        costs, (body,) = self.costs, step.inner
        handed = costs.iteration + step.variables * costs.variable
        taken = [self.step(body, one, trips) for one in body.steps]
        threads = self.machine.threads
        if step.window > 1 or threads == 1:
            return trips * (handed + sum(taken))
        # Each iteration finds the other threads asleep, and wakes them.
        cheap = [
            not step.inner and is_cheap(step, one, self.machine)
            for step, one in zip(body.steps, taken, strict=True)
        ]
        waits = factor_one_by_one(body, taken, cheap, threads)
        return trips * (handed + waits * sum(taken) + costs.woken)

    def branch(self, step: Step, around: int) -> float:
        """Seconds of one run of a branch op, or of a call."""
        passed = self.costs.value * (len(step.op.inputs) + len(step.op.outputs))
        inside = around
        if step.segments == REFILLS:  # as long as a segment
            inside = max(1, around // max(1, _count(step.op, around)))
        inner = [self.program(one, inside) for one in step.inner]
        ops = [_ops(one) for one in step.inner]
        if not step.segments:
            parts = [float(taken == max(inner)) for taken in inner]
            parts = [part / sum(parts) for part in parts]
        else:
            names = list(step.op.nets)
            part = _part_taken(step, around)
            parts = [part if name == "then_branch" else 1.0 - part for name in names]
            inner[names.index("then_branch")] += self._ways(step, around)
        dead = [self.costs.dead * (sum(ops) - own) for own in ops]
        return passed + sum(
            part * (taken + others) for part, taken, others in zip(parts, inner, dead, strict=True)
        )

    def _ways(self, step: Step, around: int) -> float:
        """Seconds, on average over the segments, of going on to the one that runs again."""
        found = [
            one
            for program in step.inner
            for one in program.steps
            if one.op.attributes.get(SEGMENTS) == ADVANCES
        ]
        slots = step.op.attributes.get(KEPT)
        if not found or not slots:
            return 0.0
        count, length = _count(step.op, around), step.op.attributes[LENGTH]
        advanced = (evaluations(count, slots + 1) + 1 - count) / max(1, count) - 1.0
        trips = max(0.0, advanced) * length
        return trips * self.loop(found[0], 1)


def _part_taken(step: Step, around: int) -> float:
    """Part of the iterations in which a branch that segments added does something."""
    op = step.op
    if step.segments == SAVES_TAIL:
        return 1.0 - (op.attributes.get(END) or around) / max(1, around)
    count = _count(op, around)
    if step.segments == KEEPS and around <= 1:
        return FEW  # on the way
    if step.segments == KEEPS and op.attributes.get(KEPT):
        count = min(count, op.attributes[KEPT])
    return min(1.0, count / max(1, around))


def _count(op: Op, around: int) -> int:
    """Segments of the loop of so many iterations that the branch is in."""
    end = op.attributes.get(END) or around
    return segment_count(end, op.attributes[LENGTH], op.attributes[GROWTH])


def _ops(program: Program) -> int:
    """Ops of a program, with all that they run inside."""
    return sum(1 + sum(map(_ops, step.inner)) for step in program.steps)
