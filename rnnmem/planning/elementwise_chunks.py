"""Whether chains of elementwise ops run by chunks of rows: where a simulation says that it pays."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator

from rnnmem.analysis.shapes import with_known_shapes
from rnnmem.ir.edges import Edge
from rnnmem.ir.graph import Net
from rnnmem.passes.elementwise_chunks.apply import by_chunks
from rnnmem.passes.elementwise_chunks.decision import ElementwiseChain
from rnnmem.passes.elementwise_chunks.select import chains_of
from rnnmem.passes.schedule.apply import with_edges
from rnnmem.passes.schedule.readers import readers_in_turn
from rnnmem.planning.plan import Plan
from rnnmem.planning.search import Search
from rnnmem.planning.step_time import slowdown_of
from rnnmem.planning.straight_line import LEAST_GAIN, Chosen
from rnnmem.simulate.timeline import counted_peak

TRIED = 3
"""Choices of chains that are simulated: all, then those that spare most in less time."""
MOST_LEFT_OUT = 8
"""Chains, with those that they share ops with, that are looked at for lowering no peak."""
MOST_OPS = 1000
"""Ops of a function beyond which that is not looked at: each look is a simulation."""
ALIKE = 0.01
"""Part of the predicted peak by which it may rise without a chain that then stays whole."""
FEWER = 0.5
"""Part of the time that chains take in which the next choice is to stay."""

Family = tuple[ElementwiseChain, ...]


def by_chunks_where_it_pays(net: Net, plans: Iterable[Chosen], max_slowdown: float) -> Chosen:
    """The plan of the least predicted peak, with elementwise chains by chunks where they lower it.

    Args:
      net: the function as it was.
      plans: plans for the rest of it, the one that is taken without chunks last.
      max_slowdown: the bound on the factor of step time.
    """
    tried = list(plans)
    best = tried[-1]
    if best[1].predicted_peak is None:
        return best
    for one in tried:
        best = _with_chains(net, one, best, max_slowdown) or best
    return best


def _gains(plan: Plan, best: Plan) -> bool:
    """Whether a plan gains enough over another, of which more is known to run."""
    if plan.predicted_peak is None or best.predicted_peak is None:
        return False
    least = LEAST_GAIN * (plan.original_peak or 0)
    if best.of("elementwise_chunks"):
        least = 0
    return plan.predicted_peak < best.predicted_peak - least


def _with_chains(net: Net, chosen: Chosen, best: Chosen, max_slowdown: float) -> Chosen | None:
    """The plan with all chains, or fewer where these take too long; None: that gains too little."""
    search, plan, rewritten = chosen
    base = net if rewritten is None else rewritten
    families = chains_of(base, search.setting.machine)
    for some in itertools.islice(_fewer(families), TRIED):
        made = _made(base, plan, search, some)
        if _peak(made) >= _peak(best) and not _gains(made[1], best[1]):
            return None
        made = _without_idle(base, plan, search, some, made)
        if made[1].slowdown <= max_slowdown and _gains(made[1], best[1]):
            return made
    return None


def _without_idle(
    base: Net, plan: Plan, search: Search, families: tuple[Family, ...], made: Chosen
) -> Chosen:
    """The same without chains that lower no peak, the slowest first."""
    most = MOST_LEFT_OUT if len(base.ops) <= MOST_OPS else 0
    for one in sorted(families, key=_seconds, reverse=True)[:most]:
        fewer = tuple(other for other in families if other is not one)
        without = _made(base, plan, search, fewer) if fewer else None
        if without is not None and _peak(without) <= (1 + ALIKE) * _peak(made):
            families, made = fewer, without
    return made


def _peak(chosen: Chosen) -> float:
    peak = chosen[1].predicted_peak
    return math.inf if peak is None else peak


def _fewer(families: tuple[Family, ...]) -> Iterator[tuple[Family, ...]]:
    """All of them, then those that spare most a second in half the time, and so on."""
    while families:
        yield families
        left = FEWER * sum(map(_seconds, families))
        kept = []
        for one in sorted(families, key=lambda one: -_spared(one) / max(_seconds(one), 1e-9)):
            if _seconds(one) <= left:
                left -= _seconds(one)
                kept.append(one)
        families = tuple(one for one in families if one in kept)


def _seconds(family: Family) -> float:
    return sum(one.seconds for one in family)


def _spared(family: Family) -> int:
    return sum(one.between * one.bytes for one in family)


def _made(base: Net, plan: Plan, search: Search, families: tuple[Family, ...]) -> Chosen:
    """What the plan becomes with these chains."""
    setting = search.setting
    place = {op.name: index for index, op in enumerate(base.ops)}
    chains = tuple(
        sorted(itertools.chain(*families), key=lambda one: place[base.producer[one.result].name])
    )
    rewritten = by_chunks(base, chains, setting.constant)
    edges: tuple[Edge, ...] = ()
    if "readers_in_turn" in setting.passes:
        edges = readers_in_turn(with_known_shapes(rewritten))
        rewritten = with_edges(rewritten, edges)
    known = slowdown_of(setting.known(rewritten), search.original.seconds, setting.machine)
    slower = plan.slowdown + sum(one.seconds for one in chains) / search.seconds
    plan = dataclasses.replace(
        plan,
        slowdown=slower if known is None else known,
        original_peak=search.original_peak if plan.original_peak is None else plan.original_peak,
        predicted_peak=counted_peak(rewritten),
    )
    return search, plan.having(elementwise_chunks=chains, readers_in_turn=edges), rewritten
