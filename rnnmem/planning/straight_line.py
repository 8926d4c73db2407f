"""Whether residuals outside of loops run again: where a simulation says that it pays.

Loops and the code outside of them share the time that is allowed, and are chosen under one peak.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable

from rnnmem.analysis.shapes import MANY, filled, known_net, with_known_shapes
from rnnmem.analysis.times import Clock
from rnnmem.ir.graph import Net, Op
from rnnmem.passes.straight_line.apply import with_regions
from rnnmem.passes.straight_line.select import Candidate, Choices
from rnnmem.passes.straight_line.starts import begun_earlier, begun_in_turn, can_run
from rnnmem.planning.assumed_sizes import TRIPS, are_larger, assumed_peaks, may_be_larger
from rnnmem.planning.choice import NEGLIGIBLE
from rnnmem.planning.plan import Plan
from rnnmem.planning.search import Search
from rnnmem.planning.step_time import slowdown_of
from rnnmem.simulate.timeline import counted_peak, simulate

TRIED = 5
"""Choices that are simulated, and the best of them once more, begun earlier."""
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
LESS = 0.95
"""Part of the time left that choices may take which are looked at as others took too long."""
MOST_LOOKS = 4
"""Looks at choices that take less time: two, and more while none is within the bound."""
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
    found = _candidates(net, search, (max_slowdown - plan.slowdown) * search.seconds)
    if not found:
        return None
    before = _peaks(net, search) if plan.predicted_peak is None else (plan.predicted_peak,)
    tried = _in_time(net, plan, search, max_slowdown, before, found) if before else []
    if not tried:
        return None
    _, best, _ = min(tried, key=lambda one: (one[0][-1], one[1].seconds))
    earlier, asked = begun_earlier(with_known_shapes(net), best), best.asked > 0
    limit = _limit(before[-1], plan.original_peak, asked)
    tried += _tried([earlier] if earlier != best else [], before, limit, net, search)
    least = min(peaks[-1] for peaks, _, _ in tried)
    close = [one for one in tried if one[0][-1] <= (1 + CLOSE) * least]
    fastest = min(close, key=lambda one: (one[1].seconds, one[0]))
    made: _Made | None = fastest
    if search.setting.sizes is not None and not asked:
        made = _no_larger(net, [fastest, *sorted(tried, key=lambda one: one[0])], before[-1])
    if made is None:
        return None
    peaks, chosen, rewritten = made
    regions = chosen.regions
    if len(before) == 1:
        original = before[0] if plan.original_peak is None else plan.original_peak
        plan = dataclasses.replace(plan, original_peak=original, predicted_peak=peaks[0])
    else:  # they were chosen at sizes that are assumed, of which nothing is said
        regions = tuple(dataclasses.replace(one, bytes=None) for one in regions)
    slower = _slowdown(plan, made, search)
    by = search.setting.machine.calibrated
    plan = dataclasses.replace(plan, slowdown=slower, calibrated=by)
    return plan.having(straight_line=regions), rewritten


def _in_time(
    net: Net,
    plan: Plan,
    search: Search,
    max_slowdown: float,
    before: tuple[int, ...],
    found: tuple[Candidate, ...],
) -> list[_Made]:
    """Of the choices found those below the limit that are within the bound on time as they run.

    Kernels alone tell which are found; where the best of these take longer with what stands around
    them, others are looked at once more that take as much less.
    """
    kept: list[_Made] = []
    for look in range(MOST_LOOKS):
        orderly = [begun_in_turn(with_known_shapes(net), one) for one in _apart(found)[:TRIED]]
        limit = _limit(before[-1], plan.original_peak, any(one.asked for one in found))
        tried = _tried(orderly, before, limit, net, search)
        if search.setting.machine.costs is None:
            return tried
        taken = [(_slowdown(plan, one, search), one) for one in tried]
        fit = [one for slower, one in taken if one[1].asked or slower <= max_slowdown]
        least = min((one[0][-1] for one in fit), default=math.inf)
        better = [(one, slower) for slower, one in taken if one[0][-1] < (1 - ALIKE) * least]
        kept += fit
        if not better or look and kept:
            break
        (_, best, _), slower = min(better, key=lambda one: one[0][0][-1])
        part = LESS * (max_slowdown - plan.slowdown) / (slower - plan.slowdown)
        found = _candidates(net, search, part * best.seconds)
    return kept


def _no_larger(net: Net, tried: list[_Made], in_call: int) -> _Made | None:
    """The first choice that is no larger at other sizes than those of the call; None: all are."""
    before = assumed_peaks(net)
    return next((one for one in tried if not may_be_larger(one[2], before, in_call)), None)


def _slowdown(plan: Plan, made: _Made, search: Search) -> float:
    """The factor of step time with the regions; as it runs, where costs were measured."""
    (_, chosen, rewritten), setting = made, search.setting
    known = slowdown_of(setting.known(rewritten), search.original.seconds, setting.machine)
    return plan.slowdown + chosen.seconds / search.seconds if known is None else known


def _candidates(net: Net, search: Search, most: float) -> tuple[Candidate, ...]:
    """Choices of regions that take so many seconds at most."""
    if search.regions is None or search.regions[0] is not net:
        search.regions = net, _choices(net, search)
    return search.regions[1].within(most)


def _choices(net: Net, search: Search) -> Choices:
    """Choices of regions, at the sizes of a call, or at assumed ones where the Net tells none."""
    setting, known = search.setting, with_known_shapes(net)
    clock, rest = Clock(setting.machine), (search.nested_step, setting.runs_once)
    if setting.sizes is not None:
        sized = filled(setting.sizes.known(net))

        def seconds(op: Op, _: Net) -> float:
            return clock(sized.op_by_name[op.name], sized)

        return Choices(known, seconds, sized.blobs, *rest)
    assumed = known_net(net, None, MANY).net.blobs
    return Choices(known, clock, None if assumed == known.blobs else assumed, *rest)


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


def _limit(peak: int, original: int | None, asked: bool) -> float:
    """The predicted peak from which on a choice gains too little over what loops leave.

    What the user asked for need not gain.
    """
    if asked:
        return math.inf
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
        hopeless = len(before) == 1 and _at_peak(net, one, search) * before[0] < before[0] - limit
        if hopeless or not can_run(net, one):
            continue
        rewritten = with_regions(net, one.regions, search.setting.constant, search.nested_step)
        peaks = _peaks(rewritten, search, limit)
        if not peaks or peaks[-1] >= limit:
            continue
        if limit == math.inf or not are_larger(peaks, before):
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
    found, peak = _candidates(net, search, most), plan.predicted_peak
    spared = (min(one.spared, int(_at_peak(net, one, search) * peak)) for one in found)
    largest = max(spared, default=0)
    return largest if largest > PROMISING * peak else 0


def _at_peak(net: Net, candidate: Candidate, search: Search) -> float:
    """The part of the peak that is taken by what regions make, so that it may be spared there."""
    alive = search.setting.known(net).once(simulate)
    if not alive.peak_bytes:
        return 1.0
    held = {one.label: one.bytes for one in alive.live_at_peak if not one.loops}
    ops = {name for region in candidate.regions for name in region.ops}
    made = (blob for name in ops for blob in net.op_by_name[name].outputs)
    return sum(held.get(blob, 0) for blob in made) / alive.peak_bytes


def _peaks(net: Net, search: Search, limit: float = math.inf) -> tuple[int, ...]:
    """The predicted peak of a Net; where a size is unknown, those at sizes that are assumed.

    Empty where not even these tell. From the limit on, nobody asks how high it is, nor for others.
    """
    peak = counted_peak(search.setting.known(net), limit=limit)
    if peak is not None:
        return (peak,)
    many = known_net(net, None, MANY, unknown_trips=TRIPS[-1])
    last = counted_peak(many, limit=limit)
    if last is None or last >= limit:
        return () if last is None else (last,)
    found = [one for one in (*assumed_peaks(net), last) if one is not None]
    return tuple(found) if len(found) > len(TRIPS) else ()
