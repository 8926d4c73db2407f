"""Every plan of a small training step: all that selection may decide, not what it would choose.

A plan of the pair of loops is one choice of each:

    saved set   which ops of the forward step net run again, of all that may run twice; the rest of
                what the gradient reads, or those ops read, is saved
    encoding    of each saved blob, in which of its exact forms: as it is, as bits, on the host
    iterations  each saves, at most 1 or 10 of them under way; or segments: of 1 to 3 iterations,
                growing ones, and of 1 under schedules that keep 1 or 2 states, offline and online
    edges       none, or one scheduling edge between two ops of the gradient step net
    beside      nothing, or all that passes offer beside loops that are rewritten: scheduling edges,
                lists of gradients that begin without elements, lists that loops read otherwise
    optimizer   whether one that fuses by neighbourhood runs afterwards, as Grappler does

What rounds (bfloat16) is no part of it: it changes results, and says so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from unittest import mock

from rnnmem.analysis.machine import GPU
from rnnmem.analysis.replay import replay_of
from rnnmem.analysis.times import Clock
from rnnmem.ir.edges import Edge
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net
from rnnmem.ir.order import all_needed_by, reached
from rnnmem.passes.checkpoint import select as segmenting
from rnnmem.passes.encode import select as encoding
from rnnmem.passes.encode.decision import BITS, OFFLOAD, Encoding
from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.passes.rematerialise.min_cut import SavedSet, Step, collect, is_constant, may_be_saved
from rnnmem.passes.rematerialise.select import REMATERIALISE, Outside, Planner
from rnnmem.planning import pareto
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.plan import Plan
from rnnmem.planning.setting import Setting
from rnnmem.planning.tried import Tried
from tests.drawing import below, encoded

TECHNIQUES = REMATERIALISE | {BITS, OFFLOAD}
TRIPS = 3
"""The most iterations that are run, and the number that offline schedules are for."""
FULL, TWO_FORMS, SAVED_SETS, EDGES = "full", "two forms", "saved sets", "edges"
PRODUCTS = {
    FULL: "every saved set x every encoding x every way to iterate x everything beside",
    TWO_FORMS: "every saved set x every encoding, and every saved set, unencoded and with all that"
    " may be in bits, x every way to iterate (everything beside but for 7 of the 8 segments)",
    SAVED_SETS: "every saved set x each iteration for itself, and segments of two",
    EDGES: "every saved set, unencoded x every edge by which an op of the gradient step net, or its"
    " first input, may wait for another op",
}
PARALLEL = (1, 10)
CUTS = tuple(
    dict(length=length, growth=growth, slots=slots, count=count, online=online)
    for length, growth, slots, count, online in (
        (1, 0, 0, 0, False), (2, 0, 0, 0, False), (3, 0, 0, 0, False), (1, 1, 0, 0, False),
        (1, 0, 1, TRIPS, False), (1, 0, 2, TRIPS, False),
        (1, 0, 1, TRIPS, True), (1, 0, 2, TRIPS, True),
    )
)  # fmt: skip
"""Segments, by the fields that a plan chooses; the others follow from the saved set."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """One plan of a training step.

    Attributes:
      plan: the decisions.
      keeps_alive: whether a graph optimizer that fuses runs afterwards.
      trips: the trip count that it is for; None: any.
    """

    plan: Plan
    keeps_alive: bool = True
    trips: int | None = None


class Selection:
    """What may be decided for a training step of one loop pair."""

    def __init__(self, net: Net):
        self.net = net
        with worth_it():
            self.candidates = pareto.candidates_of(net, GPU, segments=False, techniques=TECHNIQUES)
            (self.pair,) = self.candidates.pairs or (None,)
            if self.pair is None:
                return  # the gradient reads nothing of the iterations
            assert not self.pair.closed, self.pair.closed
            self._tried = Tried(self.candidates, Setting(GPU, encoded), None)
            outside = Outside(available=lambda blob: True, unchanged=lambda blob: False)
            self.planner = Planner(GPU, 0.0, Clock(GPU), TECHNIQUES)
            self.step = self.planner.step_alone(self.pair, outside)

    def choices(self, product: str) -> Iterator[Choice]:
        """Every plan of a product; none where the gradient reads nothing that an iteration made.

        Args:
          product: one of `PRODUCTS`.
        """
        if self.pair is None:
            return
        with worth_it():  # which is asked of each blob when it is first looked at
            saved_sets = list(self.saved_sets())
        for forms in saved_sets:
            plain, packed = forms[0], forms[-1]
            if product == EDGES:
                if (
                    not plain.encodings
                ):  # the ops of a codec are small, and stay as they are written
                    yield from self._ordered(plain)
                continue
            if product == SAVED_SETS:
                yield Choice(Plan(loops=(plain,)))
                yield from self._cut(plain, CUTS[1], beside=False)
                continue
            yield Choice(Plan(loops=(plain,)), keeps_alive=False)
            for loop in forms:
                if product == FULL or loop in (plain, packed):
                    yield from self._plain(loop)
                    for cut in CUTS:
                        yield from self._cut(loop, cut, product == FULL or cut is CUTS[1])
                else:
                    yield Choice(Plan(loops=(loop,)))

    def _ordered(self, loop: LoopPlan) -> Iterator[Choice]:
        """Plans with one scheduling edge in the gradient step net that closes no circle."""
        plan = Plan(loops=(loop,))
        body = below(apply_plan(self.net, plan, encoded), "gradient", "body")
        for op, after in itertools.permutations(body.ops, 2):
            if op.name in all_needed_by(body, [after.name]):
                continue
            numbers = op.inputs and body.blobs[op.inputs[0]].dtype in BYTES_PER_ELEMENT
            for slot in (None, 0) if numbers else (None,):
                edge = Edge(op.name, slot, after.name, ("gradient", "body"))
                yield Choice(plan.having(scheduling_edges=(edge,)))

    def _plain(self, loop: LoopPlan) -> Iterator[Choice]:
        """Plans in which each iteration keeps what it saves."""
        for iterations in PARALLEL:
            yield from self._beside(dataclasses.replace(loop, parallel_iterations=iterations), None)

    def saved_sets(self) -> Iterator[list[LoopPlan]]:
        """Every choice of the ops that run again that leaves nothing which cannot be saved.

        Each is given in every form that its blobs may be kept in: as they are first, last with each
        in the smallest form on the device.
        """
        step, found = self.step, set()
        for again in _subsets(self._may_run_again()):
            kept: list[str] = []
            chosen = collect(step, again, functools.partial(_noting, step, kept))
            key = chosen.saved, chosen.recomputed, *kept
            if key in found or not self._may_be(chosen):
                continue
            found.add(key)
            # What is on the host first: the last of a product is then the smallest on the device.
            ways = [sorted(step.ways_to_keep(blob), key=_on_device) for blob in kept]
            forms = [
                self._loop(collect(step, again, dict(zip(kept, some, strict=True)).__getitem__))
                for some in itertools.product(*ways)
            ]
            yield sorted(forms, key=lambda loop: bool(loop.encodings))

    def _may_run_again(self) -> list[str]:
        """Names of the ops that the gradient could run again for what it reads."""
        step = self.step

        def needs(blob: str) -> Iterable[str]:
            op = step.body.producer.get(blob)
            return () if op is None else op.inputs

        found = set(reached(step.live_in, needs))
        return [
            op.name
            for op in step.body.ops
            if not found.isdisjoint(op.outputs) and step.may_run_twice(op) and not is_constant(op)
        ]

    def _may_be(self, chosen: SavedSet) -> bool:
        """Whether all is there that the choice needs: what selection's cut holds it to."""
        step, again = self.step, set(chosen.recomputed)
        makers = (
            (step.body.producer.get(blob), step.body.op_by_name[name])
            for name in again
            for blob in step.body.op_by_name[name].inputs
        )
        together = all(maker.name in again for maker, op in makers if step.folds_into(maker, op))
        # What is saved whatever is chosen costs nothing more: the cut computes none of it again.
        made = {blob for name in again for blob in step.body.op_by_name[name].outputs}
        return (
            together
            and made.isdisjoint(step.free)
            and all(may_be_saved(step, blob) for blob in chosen.saved)
        )

    def _loop(self, chosen: SavedSet) -> LoopPlan:
        named = LoopPlan(self.pair.path, tuple(one.loop.op.name for one in self.pair.gradients))
        loop = self.planner._decided(named, self.pair, self.step, chosen, ())
        return pareto._as_it_saves(loop, self.step)

    def _beside(self, loop: LoopPlan, trips: int | None) -> Iterator[Choice]:
        """The plan of a loop, bare and with all that comes beside it."""
        bare = Plan(loops=(loop,))
        yield Choice(bare, trips=trips)
        offered = self.candidates.plan((loop,))
        offered = next(iter(self._tried.beside(offered)), offered)
        if offered.decisions != bare.decisions:
            yield Choice(offered, trips=trips)

    def _cut(self, loop: LoopPlan, cut: dict[str, Any], beside: bool = True) -> Iterator[Choice]:
        """Plans in which the loop is cut into segments, where it may be."""
        if any(OFFLOAD in one.techniques for one in loop.encodings):
            return  # a segment's lists are short, and selection leaves them on the device
        with worth_it():
            best = segmenting._best(self.pair, loop, self.step)
            if best is None:
                return
            replay = replay_of(self.pair.forward, best.wanted, self.step.hoisted, self.step.never)
            if cut["slots"] and segmenting._would_be_held(self.pair, replay, but=()):
                return
        segments = dataclasses.replace(best, **cut)
        trips = TRIPS if cut["slots"] and not cut["online"] else None
        loop = dataclasses.replace(loop, segments=segments)
        yield from (
            self._beside(loop, trips) if beside else (Choice(Plan(loops=(loop,)), True, trips),)
        )


@contextlib.contextmanager
def worth_it() -> Iterator[None]:
    """Whatever may be done is offered, however few bytes it is worth on so small a step."""
    with (
        mock.patch.object(segmenting, "LEAST_GAIN", -(2**40)),
        mock.patch.object(encoding, "stored_bytes", lambda kind: 2**40),
    ):
        yield


def _on_device(one: Encoding) -> tuple[bool, int]:
    return OFFLOAD not in one.techniques, len(one.techniques)


def _noting(step: Step, kept: list[str], blob: str) -> Encoding:
    kept.append(blob)
    return step.ways_to_keep(blob)[0]


def _subsets(of: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return itertools.chain.from_iterable(
        itertools.combinations(of, size) for size in range(len(of) + 1)
    )
