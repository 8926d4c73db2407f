"""Whether residuals outside of loops run again: where a simulation says that it pays.

Loops and the code outside of them share the time that is allowed, and are chosen under one peak.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping

from rnnmem.analysis.shapes import known_net, with_known_shapes
from rnnmem.analysis.times import Clock
from rnnmem.ir.graph import Blob, Net
from rnnmem.passes.straight_line.apply import with_regions
from rnnmem.passes.straight_line.select import Candidate, Choices
from rnnmem.passes.straight_line.starts import begun_earlier, begun_in_turn, can_run
from rnnmem.planning.assumed_sizes import TRIPS, are_larger, assumed_peaks
from rnnmem.planning.choice import NEGLIGIBLE
from rnnmem.planning.plan import Plan
from rnnmem.planning.search import Search
from rnnmem.planning.step_time import slowdown_of
from rnnmem.simulate.timeline import counted_peak, simulate

TRIED = 5
"""Choices that are simulated, and the best of them once more, begun earlier."""
MANY = 512
"""Stands for an unknown dimension where it is looked at what may be gained."""
LITTLE = 0.25
"""Part of the time allowed that loops may take without a look at what else it is good for."""
PROMISING = 0.15
"""Part of the predicted peak that must be spared outside of loops to take their time."""
LEAST_GAIN = 0.1
"""Part of the original's peak that must be gained: which of two ready ops runs first may cost as
much."""
MORE = 0.03
"""Part of the peak that must be gained beside what loops gain already."""
ALIKE = 0.05
"""Part of the estimated peak, or of the time, by which choices must differ to be both simulated."""
CLOSE = 0.03
"""Part of the least peak by which a faster choice may be above it."""


SHARES = (0.5, 0.0)
"""Parts of the time allowed that loops are left with where more may be had outside of them."""

_Made = tuple[tuple[int, ...], Candidate, Net]
"""The predicted peaks with a choice of regions, the choice, its Net."""

Chosen = tuple[Search, Plan, Net | None]
"""A search, the plan that it chose, and the rewritten Net; None: unchanged."""


def loops_and_regions(
    net: Net, chosen: Chosen, max_slowdown: float, within: Callable[[float], Chosen | None]
) -> Chosen:
    """The plan for loops, with regions outside of them, for which loops may leave time.

    Args:
      net: the function as it was.
      chosen: the plan for its loops.
      max_slowdown: the bound on the factor of step time.
      within: the same choice where loops have another bound; None where there is none.
    """
    best = with_regions_where_they_pay(net, chosen, max_slowdown)
    search, plan, rewritten = chosen
    if best[1].predicted_peak is None:
        return best
    spared = spared_outside(rewritten, plan, search, max_slowdown)
    for part in SHARES if spared else ():
        loops = within(1 + part * (max_slowdown - 1))
        if loops is not None and _peak(loops) - spared < _peak(best):
            best = min(best, with_regions_where_they_pay(net, loops, max_slowdown), key=_peak)
    return best


def _peak(chosen: Chosen) -> float:
    peak = chosen[1].predicted_peak
    return math.inf if peak is None else peak


def with_regions_where_they_pay(net: Net, chosen: Chosen, max_slowdown: float) -> Chosen:
    """The plan for loops, with regions outside of them in the time that these leave."""
    search, plan, rewritten = chosen
    base = net if rewritten is None else rewritten
    found = regions_where_they_pay(base, plan, search, max_slowdown)
    return chosen if found is None else (search, *found)


def regions_where_they_pay(
    net: Net, plan: Plan, search: Search, max_slowdown: float
) -> tuple[Plan, Net] | None:
    """Adds regions that run again where they lower the predicted peak in the time that is left.

    Args:
      net: the function, rewritten by ``plan`` if that changes anything.
      plan: the decisions so far.
      search: what chose them.
      max_slowdown: the bound on the factor of step time.

    Returns:
      The plan with the regions, and the Net with them; None where nothing is gained.
    """
    step = search.seconds
    most = (max_slowdown - plan.slowdown) * step
    known, sizes = with_known_shapes(net), known_net(net, None, MANY)
    apart = _apart(_candidates(known, search, most, sizes.net.blobs))
    found = [begun_in_turn(known, one) for one in apart[:TRIED]]
    if not found:
        return None
    before = _peaks(net) if plan.predicted_peak is None else (plan.predicted_peak,)
    if not before:
        return None
    asked = any(one.asked for one in found)
    limit = math.inf if asked else _limit(before[-1], plan.original_peak)
    tried = _tried(found, before, limit, net, search)
    if search.setting.machine.costs is not None:
        tried = [
            one for one in tried if one[1].asked or _slowdown(plan, one, search) <= max_slowdown
        ]
    if not tried:
        return None
    _, best, _ = min(tried, key=lambda one: (one[0][-1], one[1].seconds))
    earlier = begun_earlier(known, best)
    tried += _tried([earlier] if earlier != best else [], before, limit, net, search)
    least = min(peaks[-1] for peaks, _, _ in tried)
    close = [one for one in tried if one[0][-1] <= (1 + CLOSE) * least]
    peaks, chosen, rewritten = min(close, key=lambda one: (one[1].seconds, one[0]))
    if len(before) == 1:
        original = before[0] if plan.original_peak is None else plan.original_peak
        plan = dataclasses.replace(plan, original_peak=original, predicted_peak=peaks[0])
    slower = _slowdown(plan, (peaks, chosen, rewritten), search)
    plan = dataclasses.replace(plan, slowdown=slower)
    return plan.having(straight_line=chosen.regions), rewritten


def _slowdown(plan: Plan, made: _Made, search: Search) -> float:
    """The factor of step time with the regions; as it runs, where costs were measured."""
    _, chosen, rewritten = made
    known = slowdown_of(rewritten, search.original_seconds, search.setting.machine)
    return plan.slowdown + chosen.seconds / search.seconds if known is None else known


def _candidates(
    known: Net, search: Search, most: float, sizes: Mapping[str, Blob] | None = None
) -> tuple[Candidate, ...]:
    """Choices of regions for a Net whose shapes are known, that take so many seconds at most."""
    clock, rest = Clock(search.setting.machine), (search.nested_step, search.setting.runs_once)
    if sizes is not None and sizes != known.blobs:
        return Choices(known, clock, sizes, *rest).within(most)
    if search.regions is None or search.regions.net is not known:
        search.regions = Choices(known, clock, None, *rest)
    return search.regions.within(most)


def _apart(found: Iterable[Candidate]) -> list[Candidate]:
    """Of choices that are alike, by estimate, the first."""
    kept: list[Candidate] = []
    for one in found:
        if not any(_is_like(one, other) for other in kept):
            kept.append(one)
    return kept


def _is_like(one: Candidate, other: Candidate) -> bool:
    near = abs(one.peak - other.peak) <= ALIKE * other.peak
    return near and abs(one.seconds - other.seconds) <= ALIKE * other.seconds


def _limit(peak: int, original: int | None) -> float:
    """The predicted peak from which on a choice gains too little over what loops leave."""
    least = (1 - LEAST_GAIN) * (peak if original is None else original)
    return min(least, (1 - MORE) * peak) - NEGLIGIBLE


def _tried(
    found: Iterable[Candidate],
    before: tuple[int, ...],
    limit: float,
    net: Net,
    search: Search,
) -> list[_Made]:
    """Of some choices those below a limit: the predicted peaks, the choice, its Net."""
    tried = []
    for one in found:
        hopeless = len(before) == 1 and _at_peak(net, one) * before[0] < before[0] - limit
        if hopeless or not can_run(net, one):
            continue
        rewritten = with_regions(net, one.regions, search.setting.constant, search.nested_step)
        peaks = _peaks(rewritten, limit)
        larger = limit < math.inf and are_larger(peaks, before)
        if peaks and peaks[-1] < limit and not larger:
            tried.append((peaks, one, rewritten))
    return tried


def spared_outside(net: Net | None, plan: Plan, search: Search, max_slowdown: float) -> int:
    """Bytes, estimated, that could be spared outside of loops in the time that these took.

    0 where they took little, or so little could be spared that they may keep it.

    Args:
      net: the function, rewritten by ``plan``; None: nothing was.
      plan: the decisions for its loops.
      search: what chose them.
      max_slowdown: the bound on the factor of step time.
    """
    taken = plan.slowdown - 1.0
    if net is None or plan.predicted_peak is None or math.isinf(max_slowdown):
        return 0
    if taken <= LITTLE * (max_slowdown - 1.0):
        return 0
    most = (max_slowdown - 1.0) * search.seconds
    found = _candidates(with_known_shapes(net), search, most)
    spared = (min(one.spared, int(_at_peak(net, one) * plan.predicted_peak)) for one in found)
    largest = max(spared, default=0)
    return largest if largest > PROMISING * plan.predicted_peak else 0


def _at_peak(net: Net, candidate: Candidate) -> float:
    """The part of the peak that is taken by what regions make, so that it may be spared there."""
    alive = net.once(simulate)
    if not alive.peak_bytes:
        return 1.0
    held = {one.label: one.bytes for one in alive.live_at_peak if not one.loops}
    ops = {name for region in candidate.regions for name in region.ops}
    made = (blob for name in ops for blob in net.op_by_name[name].outputs)
    return sum(held.get(blob, 0) for blob in made) / alive.peak_bytes


def _peaks(net: Net, limit: float = math.inf) -> tuple[int, ...]:
    """The predicted peak of a Net; where a size is unknown, those at sizes that are assumed.

    Empty where not even these tell. From the limit on, nobody asks how high it is.
    """
    peak = counted_peak(net, limit=limit)
    if peak is not None:
        return (peak,)
    many = known_net(net, None, MANY, unknown_trips=TRIPS[-1])
    found = [one for one in (*assumed_peaks(net), counted_peak(many)) if one is not None]
    return tuple(found) if len(found) > len(TRIPS) else ()
