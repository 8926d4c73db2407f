"""All good plans of a whole function, from the fastest to the one that keeps fewest bytes.

Each loop pair brings its own trades (the corners that minimum cuts find, cut into segments or not);
one of each makes a plan. Between two corners of a large loop lies a gap that only the exact choice
can fill:

    bytes ┤ ■                    ■  corners, at every price of time
          ┤    ·                 ·  exact choices, where a budget or a bound on time falls between
          ┤       ·  ■
          ┤              ■
          └──────────────── seconds
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rnnmem.analysis.branch_pairs import branch_pairs
from rnnmem.analysis.held_bytes import stored_bytes
from rnnmem.analysis.loops import LoopPair, own_loop_pairs
from rnnmem.analysis.machine import Machine
from rnnmem.analysis.times import Clock, step_seconds, trips_of
from rnnmem.analysis.trip_count import UNKNOWN_TRIPS
from rnnmem.analysis.variable_effects import Writers
from rnnmem.ir.graph import Net
from rnnmem.ir.op_table import LOOPS
from rnnmem.passes.checkpoint.select import with_segments, with_tails
from rnnmem.passes.decision import Offer, Site
from rnnmem.passes.encode.select import Codecs
from rnnmem.passes.registry import AROUND_LOOPS, Kind, Pass
from rnnmem.passes.rematerialise.across_branches import outside_of
from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.passes.rematerialise.min_cut import Step
from rnnmem.passes.rematerialise.select import NOT_FOR_LESS, REMATERIALISE, Outside, Planner
from rnnmem.planning.knapsack import choose_within, frontier
from rnnmem.planning.parallel_iterations import lost_one_by_one
from rnnmem.planning.plan import Plan

_STEPS = 16
"""Plans that a frontier has at most, about."""
_REFINED = 4
"""Loops that are refined exactly, the largest first."""

Refine = Callable[[LoopPair, int | None, float | None], LoopPlan | None]


@dataclasses.dataclass(frozen=True)
class Candidates:
    """What may be decided for a Net.

    Attributes:
      net: the whole step.
      pairs: its loop pairs, those between its branches last.
      choices: each pair's plans.
      opened: the same where no loop inside an iteration runs again as a whole.
      seconds: estimated time of the original.
      refine: ``(pair, bytes, seconds)`` -> the exact plan of a pair that keeps at most that many
        bytes per iteration, or spends at most that much more time per iteration than the original;
        None where there is none, or no exact choice can be made.
      offers: what loops that are rewritten bring along, by name of the pass.
      spared: of each pair, the estimated seconds that these take off.
      lost: of each pair, the part of the step time that it loses with one iteration at a time;
        None where that is not known to be little.
    """

    net: Net
    pairs: tuple[LoopPair, ...]
    choices: tuple[tuple[LoopPlan, ...], ...]
    opened: Callable[[], tuple[tuple[LoopPlan, ...], ...]]
    seconds: float
    refine: Refine
    offers: Mapping[str, Offer] = dataclasses.field(default_factory=dict)
    spared: tuple[float, ...] = ()
    lost: tuple[float | None, ...] = ()

    def plan(self, loops: Sequence[LoopPlan]) -> Plan:
        """The plan that these decisions make."""
        again = sum(loop.total(UNKNOWN_TRIPS)[1] for loop in loops)
        opened_at = [index for index, loop in enumerate(loops) if not loop.closed]
        opened = [one for index in opened_at if (one := self.pairs[index]) in self.outermost]
        again -= sum(self.spared[index] for index in opened_at)
        plan = Plan(
            loops=tuple(loops), slowdown=1.0 + again / self.seconds if self.seconds else 1.0
        )
        for name, offer in self.offers.items():
            plan = plan.having(**{name: offer.decide(opened, plan.of)})
        return plan

    @functools.cached_property
    def outermost(self) -> tuple[LoopPair, ...]:
        """The pairs whose forward loop stands in the Net itself, not in a branch of it."""
        return tuple(pair for pair in self.pairs if pair.forward.net is self.net)

    @property
    def must_recompute(self) -> bool:
        """Whether no plan of some loop is the original, because the user asked to recompute."""
        return any(all(plan.must_recompute for plan in own) for own in self.choices if own)

    def within(self, max_slowdown: float) -> Plan:
        """The plan that keeps fewest bytes at no more than this factor of step time."""
        allowed = (max_slowdown - 1.0) * self.seconds + sum(self.spared)
        return self.plan(self._refined(choose_within(self.choices, allowed), allowed))

    def without_schedules(self) -> Candidates:
        """The trades in which no iteration runs again more than once."""
        choices = (
            tuple(plan for plan in own if plan.segments is None or not plan.segments.slots) or own
            for own in self.choices
        )
        return dataclasses.replace(self, choices=tuple(choices))

    def with_tails(self) -> Candidates:
        """These trades, and those in which the last iterations of segments do not run again."""
        choices = (
            (*own, *itertools.chain(*(with_tails(plan, pair.forward) for plan in own)))
            for pair, own in zip(self.pairs, self.choices, strict=True)
        )
        return dataclasses.replace(self, choices=tuple(choices))

    def without_segments(self) -> Candidates:
        """The trades in which no iteration runs again."""
        choices = (
            tuple(plan for plan in own if plan.segments is None) or own for own in self.choices
        )
        return dataclasses.replace(self, choices=tuple(choices))

    def opening(self, plans: Iterable[Plan]) -> list[Candidates]:
        """The trades in which loops inside are rewritten, where they run again whole in a plan.

        That holds at once what they keep, which the bytes of a plan do not tell.
        """
        again = {
            self.pairs[index].forward.body.op_by_name[name].type
            for plan in plans
            for index, loop in enumerate(plan.loops)
            for name in loop.recomputed
        }
        if again.isdisjoint(LOOPS):
            return []
        return [dataclasses.replace(self, choices=self.opened())]

    def saving_like(self, loops: Sequence[LoopPlan]) -> Candidates:
        """The trades in which the iterations of each loop save what they do in these plans."""
        choices = (
            tuple(plan for plan in own if not plan.closed and plan.saved == loop.saved) or (loop,)
            for own, loop in zip(self.choices, loops, strict=True)
        )
        return dataclasses.replace(self, choices=tuple(choices))

    def frontier_plans(self) -> tuple[Plan, ...]:
        """Plans from the fastest to the smallest; none is beaten in both time and bytes.

        The frontier depends on nothing but the Net, so that a larger budget never picks a slower
        plan.
        """
        if not self.choices:
            return (self.plan(()),)
        choices = [
            self._filled(pair, own) for pair, own in zip(self.pairs, self.choices, strict=True)
        ]
        steps: dict[tuple[LoopPlan, ...], tuple[float, int]] = {}
        fastest = [min(own, key=lambda one: one.total()[::-1]) for own in choices]
        smallest = [min(own, key=lambda one: one.total()) for own in choices]
        least, most = _cost(fastest)[0], _cost(smallest)[0]
        for number in range(_STEPS):
            # More steps where time is short: there a second buys most.
            share = (number / (_STEPS - 1)) ** 2
            loops = choose_within(choices, least + share * (most - least) + 1e-12 * abs(most))
            steps[loops] = _cost(loops)
        ordered = sorted(steps, key=steps.__getitem__)
        kept: list[tuple[LoopPlan, ...]] = []
        for loops in ordered:
            if not kept or steps[loops][1] < steps[kept[-1]][1]:
                kept.append(loops)
        return tuple(self.plan(loops) for loops in kept)

    def _refined(self, loops: tuple[LoopPlan, ...], allowed: float) -> tuple[LoopPlan, ...]:
        """Spends what is left of the time on fewer bytes, in the largest loops first."""
        found = list(loops)
        largest = sorted(range(len(found)), key=lambda i: -found[i].total()[0])
        for index in largest[:_REFINED]:
            loop = found[index]
            left = allowed - _cost(found)[0]
            if not _is_plain(loop) or not 0 < left < float("inf"):
                continue
            runs = (UNKNOWN_TRIPS if loop.trips is None else loop.trips) * max(
                1, len(loop.gradients)
            )
            better = self.refine(self.pairs[index], None, loop.seconds + left / max(1, runs))
            if better is not None and better.total()[0] < loop.total()[0]:
                if better.total()[1] <= loop.total()[1] + left:
                    found[index] = better
        return tuple(found)

    def _filled(self, pair: LoopPair, own: tuple[LoopPlan, ...]) -> tuple[LoopPlan, ...]:
        """A pair's plans, with exact ones in the widest gaps between corners."""
        plain = sorted({one.bytes: one for one in own if _is_plain(one)}.items())
        whole = sum(max(one.total()[0] for one in some) for some in self.choices)
        more = []
        for (small, at_small), (large, _) in zip(plain, plain[1:], strict=False):
            trips = UNKNOWN_TRIPS if at_small.trips is None else at_small.trips
            parts = min(4, int((large - small) * trips / max(1, whole) * _STEPS))
            for part in range(1, parts):
                found = self.refine(pair, small + (large - small) * part // parts, None)
                if found is not None and not found.closed:
                    more.append(found)
        return tuple(dict.fromkeys((*own, *more)))


def plan_net(
    net: Net,
    machine: Machine,
    max_slowdown: float,
    *,
    segments: bool = True,
    techniques: frozenset[str] = REMATERIALISE,
) -> Plan:
    """The plan that frees most memory at no more than the given factor of step time.

    Args:
      net: the whole step, inlined.
      machine: what estimates of time assume.
      max_slowdown: the bound on the estimated factor of step time, at least 1.
      segments: whether loops may be cut into segments.
      techniques: whether blobs may be recomputed, and in which forms they may be saved.
    """
    return candidates_of(net, machine, segments=segments, techniques=techniques).within(
        max_slowdown
    )


def candidates_of(
    net: Net,
    machine: Machine,
    seconds: float | None = None,
    *,
    segments: bool = True,
    variables: frozenset[str] | None = None,
    techniques: frozenset[str] = REMATERIALISE,
    beside: Iterable[Pass] = AROUND_LOOPS,
    runs_once: frozenset[str] = frozenset(),
) -> Candidates:
    """All trades between bytes and time that the loop pairs of a Net offer.

    Args:
      net: the whole step, inlined.
      machine: what estimates of time assume.
      seconds: estimated time of the Net as it is; None: that of its ops.
      segments: whether loops may be cut into segments.
      variables: of a step net: its inputs that hold a variable each (`Place.variables`).
      techniques: whether blobs may be recomputed, and in which forms they may be saved.
      beside: passes that loops which are rewritten may bring along.
      runs_once: names of ops that do not run again, though they might.
    """
    beside_loops = own_loop_pairs(net)
    in_branches = branch_pairs(net)
    pairs = (*beside_loops, *(one.pair for one in in_branches))
    writers = Writers(net, variables)
    clock = Clock(machine)
    around = {one.pair.path: outside_of(one, writers) for one in in_branches}

    def outside(pair: LoopPair) -> Outside:
        return around.get(pair.path) or Outside(
            available=lambda blob: True,
            unchanged=lambda blob: writers.unchanged_by(pair.forward.op, blob),
        )

    def choices(opens: bool) -> tuple[tuple[LoopPlan, ...], ...]:
        planner = Planner(machine, 0.0, clock, techniques, opens, runs_once)
        return tuple(
            _choices(pair, planner, outside(pair), segments and pair.path not in around)
            for pair in pairs
        )

    exact = Planner(machine, 0.0, clock, techniques, runs_once=runs_once)
    refined: dict[tuple, LoopPlan | None] = {}

    def refine(pair: LoopPair, kept: int | None, seconds: float | None) -> LoopPlan | None:
        asked = pair.path, kept, seconds
        if asked not in refined:
            refined[asked] = exact.exact(pair, outside(pair), kept, seconds)
        return refined[asked]

    seconds = step_seconds(net, machine) if seconds is None else seconds
    runs = [trips_of(pair.forward) for pair in pairs]
    site = Site(net, beside_loops, clock, device=machine.device)
    offers = {one.name: one.offer(site) for one in beside if one.kind is Kind.BESIDE}
    spared = [offer.spared for offer in offers.values() if offer.spared]
    return Candidates(
        net=net,
        pairs=pairs,
        choices=choices(opens=False),
        opened=lambda: choices(opens=True),
        seconds=seconds,
        refine=refine,
        offers=offers,
        spared=tuple(
            trips * sum(some[index] for some in spared if index < len(some))
            for index, trips in enumerate(runs)
        ),
        lost=tuple(
            lost_one_by_one(pair, clock, trips, seconds)
            for pair, trips in zip(pairs, runs, strict=True)
        ),
    )


def _choices(
    pair: LoopPair, planner: Planner, outside: Outside, segments: bool
) -> tuple[LoopPlan, ...]:
    """Every trade between bytes and time of one pair of the outermost Net."""
    plans = frontier(lambda price: dataclasses.replace(planner, price=price).pair(pair, outside))
    if pair.closed or not segments:
        return plans
    step = planner.step_alone(pair, outside)
    opened = [_as_it_saves(plan, step) for plan in plans if plan.closed in ("", NOT_FOR_LESS)]
    return (*plans, *with_segments(pair, _on_device(opened, planner.codecs(pair)), step))


def _on_device(plans: Iterable[LoopPlan], codecs: Codecs) -> Iterator[LoopPlan]:
    """The plans with every list on the device: a segment's lists are short, and refilled there."""
    for plan in plans:
        kept = [(one, codecs.without_offload(one)) for one in plan.encodings]
        plain = {old.blob for old, new in kept if new is None}
        more = sum(stored_bytes(codecs.body.blobs[blob]) for blob in plain)
        more += sum(new.bytes - old.bytes for old, new in kept if new is not None)
        encodings = tuple(new for _, new in kept if new is not None)
        yield dataclasses.replace(plan, encodings=encodings, bytes=plan.bytes + more)


def _as_it_saves(plan: LoopPlan, step: Step) -> LoopPlan:
    """The plan, opened: what the original saves is saved."""
    if not plan.closed:
        return plan
    return dataclasses.replace(plan, closed="", saved=tuple(sorted(step.pushed)))


def _cost(loops: Sequence[LoopPlan]) -> tuple[float, int]:
    """``(seconds, bytes)`` of all."""
    totals = [loop.total() for loop in loops]
    return sum(one[1] for one in totals), sum(one[0] for one in totals)


def _is_plain(loop: LoopPlan) -> bool:
    """Whether the plan decides one saved set and nothing else."""
    return not loop.inner and loop.segments is None
