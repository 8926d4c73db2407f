"""Loops and their gradient loops: variables, accumulators, invariants, and what pops what.

TensorFlow's gradient of a loop (``while_v2``; Yu et al. 2018, "Dynamic control flow in large-scale
machine learning") gives the forward loop one accumulator for each blob that the gradient reads:

    forward step net:    acc ─► PushBack(acc, blob) ─► acc         the loop's output i
    gradient step net:   acc ─► PopBack(acc) ─► acc, blob          the gradient loop's input j

A loop pair is found by these edges alone; no name is ever looked at.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from rnnmem.ir.graph import FindsOnce, Net, Op
from rnnmem.ir.op_table import EMPTY, LOOPS, POP, PUSH
from rnnmem.ir.order import through_identities


@dataclasses.dataclass(frozen=True)
class Loop(FindsOnce):
    """A loop op; variable ``i`` is ``op.inputs[i]`` before it and ``op.outputs[i]`` after it."""

    net: Net
    op: Op

    @property
    def body(self) -> Net:
        """The step net that runs once an iteration."""
        return self.op.nets["body"]

    @property
    def cond(self) -> Net:
        """The step net that says whether another iteration runs."""
        return self.op.nets["cond"]

    @functools.cached_property
    def invariants(self) -> Mapping[str, int]:
        """Blobs of the body that are the same in every iteration, and their variable."""
        return {
            blob: index
            for index, blob in enumerate(self.body.inputs)
            if through_identities(self.body, self.body.outputs[index]) == blob
        }

    @functools.cached_property
    def pushes(self) -> Mapping[int, Op]:
        """Variable -> its push, for every variable that is an accumulator and nothing else."""
        found, body = {}, self.body
        for index, blob in enumerate(body.inputs):
            push = body.producer.get(through_identities(body, body.outputs[index]))
            if push is None or push.type != PUSH or push.inputs[0] != blob:
                continue
            start = self.net.producer.get(through_identities(self.net, self.op.inputs[index]))
            alone = (
                body.fan_out(blob) == 1
                and body.fan_out(push.outputs[0]) == 1
                and not self.cond.fan_out(self.cond.inputs[index])
            )
            if alone and start is not None and start.type == EMPTY:
                found[index] = push
        return found

    @functools.cached_property
    def pops(self) -> Mapping[int, Op]:
        """Variable -> its pop, for every variable that only hands back an accumulator's blobs."""
        found, body = {}, self.body
        for index, blob in enumerate(body.inputs):
            pop = body.producer.get(through_identities(body, body.outputs[index]))
            if pop is None or pop.type != POP or pop.inputs[0] != blob:
                continue
            alone = (
                body.fan_out(blob) == 1
                and body.fan_out(pop.outputs[0]) == 1
                and not self.cond.readers.get(self.cond.inputs[index])
                and not self.net.fan_out(self.op.outputs[index])
            )
            if alone:
                found[index] = pop
        return found


def loops_of(net: Net) -> tuple[Loop, ...]:
    """The loops that stand directly in ``net``."""
    return tuple(Loop(net, op) for op in net.ops if op.type in LOOPS)


@dataclasses.dataclass(frozen=True)
class Link:
    """One blob that a forward loop hands to a gradient loop: pushed there, popped here."""

    accumulator: int  # variable of the forward loop
    popped_by: int  # variable of the gradient loop
    pushed: str  # blob of the forward step net
    popped: str  # blob of the gradient step net


@dataclasses.dataclass(frozen=True)
class GradientLoop:
    """A gradient loop with its links to the forward loop."""

    loop: Loop
    links: tuple[Link, ...]


@dataclasses.dataclass(frozen=True)
class LoopPair:
    """A forward loop and every loop that pops what it pushed.

    Attributes:
      path: loop op names from the outermost forward loop to this one; names the pair.
      forward: the forward loop.
      gradients: its gradient loops (two losses have two).
      closed: why the pair is left as it is; empty where it is understood.
    """

    path: tuple[str, ...]
    forward: Loop
    gradients: tuple[GradientLoop, ...]
    closed: str = ""

    @property
    def list_maker(self) -> Op:
        """What makes one of the accumulators: those that are added may get as long."""
        outer, first = self.forward.net, self.gradients[0].links[0].accumulator
        return outer.producer[through_identities(outer, self.forward.op.inputs[first])]


def loop_pairs(
    forward_net: Net, gradient_net: Net, stands_for: Mapping[str, str], path: tuple[str, ...] = ()
) -> tuple[LoopPair, ...]:
    """The loop pairs between two Nets that run the same step, outermost first.

    Args:
      forward_net: the Net with the forward loops.
      gradient_net: the Net with the gradient loops; at the top both are the same Net.
      stands_for: blob of ``gradient_net`` -> the forward blob whose value it holds; where a blob is
        absent it stands for itself if both Nets are one, else for nothing.
      path: the loops around the forward Net.
    """
    forward = {loop.op.name: loop for loop in loops_of(forward_net)}
    gradient = {loop.op.name: loop for loop in loops_of(gradient_net)}
    if not (forward and gradient):
        return ()
    same = forward_net is gradient_net
    links: dict[str, dict[str, list[Link]]] = {}
    for loop in gradient.values():
        for index, pop in loop.pops.items():
            blob = through_identities(gradient_net, loop.op.inputs[index])
            blob = stands_for.get(blob, blob if same else "")
            blob = through_identities(forward_net, blob)
            source = forward_net.producer.get(blob)
            if source is None or source.name not in forward:
                continue
            accumulator = source.outputs.index(blob)
            push = forward[source.name].pushes.get(accumulator)
            if push is not None:
                link = Link(accumulator, index, push.inputs[1], pop.outputs[1])
                links.setdefault(source.name, {}).setdefault(loop.op.name, []).append(link)
    popping = {name for found in links.values() for name in found}
    pairs = []
    for name, found in links.items():
        gradients = tuple(GradientLoop(gradient[one], tuple(some)) for one, some in found.items())
        closed = ""
        if same and (name in popping or any(one in links for one in found)):
            closed = "its gradient is differentiated again"
        pairs.append(LoopPair((*path, name), forward[name], gradients, closed))
    return tuple(pairs)


def own_loop_pairs(net: Net) -> tuple[LoopPair, ...]:
    """The loop pairs of a whole step; what is found out about their loops is kept with the Net."""
    return net.once(_own_loop_pairs)


def _own_loop_pairs(net: Net) -> tuple[LoopPair, ...]:
    return loop_pairs(net, net, {})


def inner_pairs(pair: LoopPair, gradient: GradientLoop) -> tuple[LoopPair, ...]:
    """The loop pairs between the step nets of a pair, one level deeper."""
    stands_for = {link.popped: link.pushed for link in gradient.links}
    return loop_pairs(pair.forward.body, gradient.loop.body, stands_for, pair.path)
