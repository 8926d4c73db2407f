"""Which plan to run: the least memory in the time allowed, or the least time in a budget."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

from rnnmem.analysis.machine import Machine
from rnnmem.analysis.shapes import KnownNet, filled, known_net
from rnnmem.analysis.variable_effects import Writers
from rnnmem.errors import BudgetError
from rnnmem.ir.graph import Net
from rnnmem.passes.checkpoint.select import longer_segments
from rnnmem.passes.rebuild_lists.select import made_again
from rnnmem.passes.rematerialise.select import NOT_ALLOWED, RECOMPUTE, trades_of
from rnnmem.planning.assumed_sizes import MOST_TRIED, Peaks, are_larger, are_told, assumed_peaks
from rnnmem.planning.options import Options
from rnnmem.planning.parallel_iterations import (
    ONE_BY_ONE,
    one_by_one,
    one_by_one_where_cheap,
    overlapped,
)
from rnnmem.planning.pareto import Trades
from rnnmem.planning.plan import ChunkedLoss, MadeAgain, Plan
from rnnmem.simulate.timeline import counted_peak
from rnnmem.sizes import format_bytes

HEADROOM = 0.1
"""Part of a predicted peak that a budget must leave free: chunks and the order of ops vary."""

CHUNK_ROOM = 16 * 1024
"""Bytes, or another such part of a small peak, to leave free beside: chunks left by what ran before
are taken whole."""

SCHEDULE_HEADROOM = 0.5
"""The same of a plan with a schedule over segments: states kept anew leave holes between chunks."""

NOT_WORTH_TIME = 0.01
"""Part of the original's peak that is not worth any time at all."""

STILL_CLOSE = 0.25
"""Part of the least peak that is worth time after all where plenty of it is allowed."""

PLENTY = 2.0
"""The bound on time from which memory is what is wanted."""

CLOSE = 0.02
"""Part of a peak that is not worth more time."""

NEGLIGIBLE = 64 * 1024
"""Bytes below which no peak is worth leaving a function as it was."""

_TURNED = 3
"""Plans of which it is looked at whether large buffers may take turns, where no budget is met."""

_BOUNDS = (1.0, 1.05, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0, math.inf)
"""Bounds on time whose plans a budget may take, beside the rungs of the ladder."""

_SCANNED = 20000
"""Ops of a Net up to which the rungs of a ladder are simulated in turn; beyond it, bisected."""

_FITS = "the original stays within the budget"
_NO_GAIN = "no plan in the time allowed has a smaller predicted peak"
_LARGER = "at sizes that only the run can tell, every plan may have a larger peak"
_UNKNOWN = "the budget was not held against a prediction: a size is known only at run time"


def needed_budget(peak: int) -> int:
    """The smallest budget that a plan of this predicted peak may be run under."""
    return _with_room(peak, HEADROOM)


def budget_for(plan: Plan) -> int:
    """The smallest budget that a plan, whose peak was predicted, may be run under."""
    if any(loop.segments is not None and loop.segments.slots for loop in plan.every_loop()):
        return _with_room(plan.predicted_peak, SCHEDULE_HEADROOM)
    return needed_budget(plan.predicted_peak)


def _with_room(peak: int, headroom: float) -> int:
    return math.ceil(peak * (1 + headroom) + min(CHUNK_ROOM, HEADROOM * peak))


class Decision:
    """The choice of a plan for one Net, and the alternatives to it.

    Args:
      net: the whole step, inlined.
      machine: what estimates of time assume.
      apply: applies a plan to the Net.
      segments: whether loops may be cut into segments.
      losses: what the Net runs by chunks of tokens already.
      beside: the decision for the Net as it was before that.
      variables: of a step net: its inputs that hold a variable each (`Place.variables`).
      means: whether blobs may be recomputed, and in which forms they may be saved.
      reads_again: whether the gradient may read variables; not where it is a function of its own,
        which runs who knows when.
      turned: what a plan becomes where large buffers of what it made take turns, however long that
        takes; None where none do. It is tried last, and not at all where it is None.
    """

    def __init__(
        self,
        net: Net,
        machine: Machine,
        apply: Callable[[Plan], Net],
        *,
        segments: bool = True,
        losses: tuple[ChunkedLoss, ...] = (),
        beside: Decision | None = None,
        variables: frozenset[str] | None = None,
        means: frozenset[str] = RECOMPUTE,
        reads_again: bool = False,
        turned: Callable[[Net, Plan], Plan | None] | None = None,
    ):
        self.net = net
        self.losses = losses
        self.beside = beside
        self.machine = machine
        self.apply = apply
        self.segments = segments
        self.variables = variables
        self.means = means
        self.reads_again = reads_again
        self.turned = turned
        self._simulated: dict[tuple, Plan] = {}
        self._latest: tuple[Plan, Net | None] | None = None

    @functools.cached_property
    def known(self) -> KnownNet:
        """The Net with all shapes that can be found out."""
        return known_net(self.net)

    @functools.cached_property
    def trades(self) -> Trades:
        """All trades of the Net's loops."""
        return trades_of(
            filled(self.known),
            self.machine,
            segments=self.segments,
            variables=self.variables,
            means=self.means,
        )

    @functools.cached_property
    def ladder(self) -> tuple[Plan, ...]:
        """Plans from the fastest to the slowest, not held against a simulation yet."""
        return tuple(sorted(itertools.chain(*self._ladders), key=lambda plan: plan.slowdown))

    @functools.cached_property
    def _ladders(self) -> tuple[tuple[Plan, ...], tuple[Plan, ...]]:
        """Plans from the fastest to the smallest: at two iterations at once, and at one."""
        rungs = tuple(map(self._with_losses, self.trades.ladder()))
        rungs = tuple(itertools.chain(*((plan, *self._given_anew(plan)) for plan in rungs)))
        opened = filter(lambda plan: not plan.changes_nothing, rungs)
        return tuple(map(overlapped, rungs)), tuple(map(one_by_one, opened))

    @functools.cached_property
    def slower(self) -> float:
        """What chunks of tokens add to the factor of step time."""
        if self.beside is None or not self.losses or not self.beside.trades.seconds:
            return 0.0
        return sum(one.seconds for one in self.losses) / self.beside.trades.seconds

    def _with_losses(self, plan: Plan) -> Plan:
        return dataclasses.replace(plan, losses=self.losses, slowdown=plan.slowdown + self.slower)

    @functools.cached_property
    def original_peak(self) -> int | None:
        """Predicted peak of the original above the resident state."""
        return counted_peak(self.known) if self.beside is None else self.beside.original_peak

    def least_memory(self, max_slowdown: float) -> tuple[Plan, Net | None]:
        """The plan that keeps fewest bytes within a bound on time, and what applying it makes."""
        left = max_slowdown - self.slower
        if left < 1.0:
            return self._as_it_was(_NO_GAIN), None
        spared = self._share(itertools.chain(*self._lists.values()))
        candidates = self._candidates(max(1.0, left - spared))
        chosen = worth_its_time(candidates, max_slowdown)
        anew = [one for one in self._given_anew(chosen) if one.slowdown <= max_slowdown]
        chosen = worth_its_time([chosen, *map(self.simulated, anew)], max_slowdown)
        if self.original_peak is None:
            chosen = self._no_larger(chosen, candidates, left)
        plan, rewritten = self.finished(self._with_longer_segments(chosen))
        if plan.changes_nothing:
            tried = not all(one.changes_nothing for one in candidates)
            why = _LARGER if self.original_peak is None else _NO_GAIN
            return (self._as_it_was(why) if tried else plan), None
        peaks = plan.predicted_peak, plan.original_peak
        if None not in peaks and peaks[0] > max(peaks[1], NEGLIGIBLE):
            return self._as_it_was(_NO_GAIN), None
        return plan, rewritten

    def _candidates(self, max_slowdown: float) -> list[Plan]:
        """Plans within a bound on time, simulated."""
        return list(map(self.simulated, self._plans_within(max_slowdown)))

    def _plans_within(self, max_slowdown: float) -> list[Plan]:
        """Plans within a bound on time: ever slower ones, and one with an iteration at a time."""
        bounds = {max_slowdown}
        if math.isfinite(max_slowdown) and _count(self.net) <= _SCANNED:
            bounds |= {1.0 + part * (max_slowdown - 1.0) for part in (0.0, 0.25, 0.5)}
        found = self._paced(self.trades, bounds, max_slowdown)
        cut = (loop.segments for plan in found for loop in plan.loops)
        if any(segments is not None and segments.slots for segments in cut):
            # Running iterations again and again is for a peak that it lowers.
            found += self._paced(self.trades.without_schedules(), {max_slowdown}, max_slowdown)
        if self.original_peak is None and any(map(_is_cut, found)):
            # Nothing foretells what a segment holds while it runs again.
            found += self._paced(self.trades.without_segments(), {max_slowdown}, max_slowdown)
        return found

    @functools.cached_property
    def reachable(self) -> tuple[Plan, ...]:
        """Every plan that a budget may take, from the fastest to the slowest; none simulated yet.

        They are the ladder's and those that bounds on time take; they depend on the Net alone, so
        that what fits in one budget is not missed under a larger one. Of a large Net, the ladder.
        """
        if _count(self.net) > _SCANNED:
            return self.ladder
        lists = self._share(itertools.chain(*self._lists.values()))
        found = list(self.ladder)
        for bound in _BOUNDS:
            if bound - self.slower >= 1.0:
                plans = self._plans_within(max(1.0, bound - self.slower - lists))
                found += itertools.chain(*((plan, *self._given_anew(plan)) for plan in plans))
        for plan in list(found):
            found += (dataclasses.replace(plan, loops=one) for one in longer_segments(plan.loops))
        distinct = {(plan.loops, plan.made_again): plan for plan in reversed(found)}
        return tuple(sorted(reversed(distinct.values()), key=lambda plan: plan.slowdown))

    def _no_larger(self, chosen: Plan, others: Iterable[Plan], max_slowdown: float) -> Plan:
        """The first plan that is no larger than the original whatever the sizes that are assumed.

        Args:
          chosen: the plan to try first.
          others: those to try next, the one that keeps least first.
          max_slowdown: the bound on time of these.
        """
        cut = [plan for plan in others if _is_cut(plan)]
        whole = [plan for plan in others if not _is_cut(plan)]
        tried = dict.fromkeys([chosen, *sorted(cut, key=_kept)[:2], *sorted(whole, key=_kept)])
        for plan in list(tried)[:MOST_TRIED]:
            if not self._is_larger(plan):
                if plan is chosen or _is_cut(plan) or plan.changes_nothing or not cut:
                    return plan
                alike = itertools.filterfalse(self._is_larger, self._cut_like(plan, max_slowdown))
                return next(alike, plan)
        return self.simulated(self._as_it_was(_LARGER))

    def _cut_like(self, plan: Plan, max_slowdown: float) -> list[Plan]:
        """The plan with segments in the loops where an iteration saves the same."""
        trades = self.trades.saving_like(plan.loops)
        found = map(self.simulated, self._paced(trades, {max_slowdown}, max_slowdown))
        return sorted(filter(_is_cut, found), key=_kept)

    def _is_larger(self, plan: Plan) -> bool:
        """Whether a plan, whose peak only the run can tell, may be above the original's.

        Where not even assumed sizes tell, one that runs iterations again may; one that saves less
        in each iteration holds more in one of them at most.
        """
        _, rewritten = self.finished(plan)
        if rewritten is None:
            return False
        before, after = self._assumed, assumed_peaks(rewritten)
        return are_larger(after, before) if are_told(before, after) else _is_cut(plan)

    @functools.cached_property
    def _assumed(self) -> Peaks:
        """Predicted peaks of the original at the sizes that are assumed."""
        return assumed_peaks(self.net) if self.beside is None else self.beside._assumed

    def _paced(self, trades: Trades, bounds: set[float], most: float) -> list[Plan]:
        """Plans within each bound, and with one iteration at a time, here or there, in the last."""
        found = [overlapped(self._with_losses(trades.within(bound))) for bound in sorted(bounds)]
        lost = sum(filter(None, trades.lost))
        if lost and most - lost >= 1.0:
            plan = self._with_losses(trades.within(most - lost))
            found.append(one_by_one_where_cheap(plan, trades.lost))
        if most - ONE_BY_ONE >= 1.0:
            found.append(one_by_one(self._with_losses(trades.within(most - ONE_BY_ONE))))
        return found

    def _with_longer_segments(self, plan: Plan) -> Plan:
        """The plan, or one with longer segments whose predicted peak is smaller."""
        if _count(self.net) > _SCANNED:
            return plan
        stretched = (
            self.simulated(dataclasses.replace(plan, loops=loops))
            for loops in longer_segments(plan.loops)
        )
        known = [one for one in (plan, *stretched) if one.predicted_peak is not None]
        return min(known, key=lambda one: one.predicted_peak, default=plan)

    def _given_anew(self, plan: Plan) -> list[Plan]:
        """The plan with lists made again for gradient loops, where there are such."""
        opened = {loop.path for loop in plan.loops if not loop.closed}
        lists = tuple(one for path, some in self._lists.items() if path in opened for one in some)
        if not lists:
            return []
        # Zeros like a list hold it until they are made; a list that begins empty does not.
        empty = {start.zeros for start in plan.empty_starts}
        lists = tuple(
            one if empty.issuperset(one.zeros) else dataclasses.replace(one, table=())
            for one in lists
        )
        return [
            dataclasses.replace(plan, made_again=lists, slowdown=plan.slowdown + self._share(lists))
        ]

    @functools.cached_property
    def _lists(self) -> dict[tuple[str, ...], tuple[MadeAgain, ...]]:
        """Path of a loop pair -> the lists that its gradient loops can be given anew."""
        writers = Writers(self.trades.net, self.variables) if self.reads_again else None
        return {
            pair.path: made_again(self.trades.net, [pair], self.machine, writers)
            for pair in self.trades.pairs
        }

    def _share(self, lists: Iterable[MadeAgain]) -> float:
        """The part of the step time that making the lists takes."""
        return sum(one.seconds for one in lists) / (self.trades.seconds or math.inf)

    def least_time(self, budget: int) -> tuple[Plan, Net | None]:
        """The fastest plan whose predicted peak fits in a budget, and what applying it makes.

        Raises:
          BudgetError: none does; names the smallest peak that can be had and its time.
        """
        if not self.trades.pairs and not self.losses:
            return self.unchanged(budget), None
        if self.original_peak is not None and needed_budget(self.original_peak) <= budget:
            return self._as_it_was(_FITS), None
        if self.original_peak is None:
            smallest = list(reversed(self.ladder))[:MOST_TRIED]
            held = itertools.filterfalse(self._is_larger, map(self.simulated, smallest))
            plan, rewritten = self.finished(next(held, None) or self._as_it_was(_LARGER))
            return dataclasses.replace(plan, notes=(*plan.notes, _UNKNOWN)), rewritten

        def fits(plan: Plan) -> bool:
            known = self.simulated(plan)
            return known.predicted_peak is not None and budget_for(known) <= budget

        found = None
        if _count(self.net) > _SCANNED:
            found = next(filter(None, (bisected(rungs, fits) for rungs in self._ladders)), None)
        found = found or next(filter(fits, self.reachable), None)
        if found is None:
            ordered = (plan for plan, turned in self._taking_turns if budget_for(turned) <= budget)
            found = min(ordered, key=lambda plan: plan.slowdown, default=None)
        if found is None:
            raise self._too_small(budget)
        return self.finished(found)

    @functools.cached_property
    def _taking_turns(self) -> list[tuple[Plan, Plan]]:
        """Plans of the least peaks, and what they become where large buffers take turns."""
        if self.turned is None:
            return []
        plans = [self._as_it_was("")]
        if self.trades.pairs or self.losses:
            plans += map(self.simulated, self.reachable)
        known = [plan for plan in plans if plan.predicted_peak is not None]
        found = []
        for plan in sorted(known, key=lambda plan: plan.predicted_peak)[:_TURNED]:
            turned = self.turned(self.net if plan.changes_nothing else self.apply(plan), plan)
            if turned is not None:
                found.append((plan, turned))
        return found

    def finished(self, plan: Plan) -> tuple[Plan, Net | None]:
        """The plan with the peaks that a simulation predicts, and the rewritten Net."""
        known = self.simulated(plan)
        if self._latest is None or self._latest[0] is not known:
            self._latest = known, None if known.changes_nothing else self.apply(known)
        return self._latest

    def simulated(self, plan: Plan) -> Plan:
        """The plan with the peaks that a simulation predicts."""
        decided = plan.loops, plan.made_again
        if decided not in self._simulated:
            original = self.original_peak if plan.loops or self.losses else None
            rewritten, predicted = None, original
            if not plan.changes_nothing:
                rewritten = self.apply(plan)
                predicted = counted_peak(rewritten)
            plan = dataclasses.replace(plan, original_peak=original, predicted_peak=predicted)
            self._simulated[decided] = plan
            self._latest = plan, rewritten
        return self._simulated[decided]

    def frontier(self, chosen: Plan, count: int = 5) -> tuple[Plan, ...]:
        """About ``count`` plans from the original to the smallest, with the chosen one among them.

        Args:
          chosen: the plan that runs.
          count: how many plans.
        """
        if not chosen.loops:
            return ()
        fast, small = self._ladders
        rungs = [rung for rung in (*fast, *small[-1:]) if rung.loops != chosen.loops]
        wanted = min(len(rungs), count - 1 if chosen.changes_nothing else count - 2)
        places = {round(i * (len(rungs) - 1) / max(1, wanted - 1)) for i in range(wanted)}
        found = [self.simulated(rungs[place]) for place in sorted(places)]
        if not chosen.changes_nothing:
            found.append(chosen)
        found = sorted(found, key=lambda plan: (plan.slowdown, -(plan.predicted_peak or 0)))
        return (self._as_it_was(""), *found)

    def _as_it_was(self, note: str) -> Plan:
        """The plan that changes nothing."""
        closed = tuple(
            dataclasses.replace(own[0], closed=own[0].closed or note or "left", fates=())
            for own in self.trades.choices
        )
        return Plan(
            loops=closed,
            notes=(note,) if note else (),
            original_peak=self.original_peak,
            predicted_peak=self.original_peak,
        )

    def unchanged(self, budget: int) -> Plan:
        """The plan that changes nothing, where nothing can or may be changed.

        Raises:
          BudgetError: the original's predicted peak does not fit in the budget.
        """
        peak = self.original_peak
        if peak is None or needed_budget(peak) <= budget:
            return self._as_it_was(_UNKNOWN if peak is None else _FITS)
        return self._fitting(budget, self._as_it_was(""), "nothing can be recomputed")

    def as_it_is(self, budget: int | None) -> Plan:
        """The plan that does nothing more to a Net to which something was done already.

        Raises:
          BudgetError: its predicted peak does not fit in the budget.
        """
        predicted = counted_peak(self.known)
        notes = (_UNKNOWN,) if budget is not None and predicted is None else ()
        plan = Plan(notes=notes, original_peak=self.original_peak, predicted_peak=predicted)
        if budget is None or predicted is None or needed_budget(predicted) <= budget:
            return plan
        return self._fitting(budget, plan, "nothing more can be recomputed")

    def _fitting(self, budget: int, plan: Plan, remark: str) -> Plan:
        """A plan that fits in the budget once large buffers take turns.

        Raises:
          BudgetError: it does not.
        """
        turned = self.turned and self.turned(self.net, plan)
        if turned is None or budget_for(turned) > budget:
            raise _cannot_be_met(budget, turned or plan, remark)
        return plan

    def losses_alone(self, options: Options) -> tuple[Plan, Net | None]:
        """Chunks of tokens and nothing else.

        Raises:
          BudgetError: that is not predicted to stay within the budget.
        """
        loops = tuple(
            dataclasses.replace(own[0], closed=own[0].closed or NOT_ALLOWED, fates=())
            for own in self.trades.choices
        )
        if 1.0 + self.slower > options.max_slowdown and options.budget is None:
            return self._as_it_was(_NO_GAIN), None
        plan, rewritten = self.finished(
            Plan(
                loops=loops,
                losses=self.losses,
                notes=(NOT_ALLOWED,) if loops else (),
                slowdown=1.0 + self.slower,
            )
        )
        peak = plan.predicted_peak
        if options.budget is not None and peak is not None and needed_budget(peak) > options.budget:
            raise _cannot_be_met(options.budget, plan)
        return plan, rewritten

    def _too_small(self, budget: int) -> BudgetError:
        """The refusal of a budget; names the least that any plan needs."""
        plans = map(self.simulated, self.reachable)
        known = [plan for plan in plans if plan.predicted_peak is not None]
        known += [self._as_it_was(""), *(turned for _, turned in self._taking_turns)]
        least = min(known, key=lambda plan: (budget_for(plan), plan.slowdown))
        return _cannot_be_met(budget, least)


def _cannot_be_met(budget: int, least: Plan, remark: str = "") -> BudgetError:
    """The refusal of a budget.

    Args:
      budget: what was asked for.
      least: the plan that needs least.
      remark: what else there is to say of it; empty: how slow it is.
    """
    smallest, peak = budget_for(least), least.predicted_peak
    remark = remark or f"at about {least.slowdown:.2f}x the step time"
    error = BudgetError(
        f"budget={budget} ({format_bytes(budget)}) cannot be met: the smallest peak above the "
        f"resident state is predicted to be {smallest} bytes ({format_bytes(smallest)}), {remark} "
        f"({format_bytes(peak)} by simulation, and what chance may add); give at least that much, "
        "or a smaller batch"
    )
    error.smallest = smallest
    return error


def least_of(refusals: Sequence[BudgetError]) -> BudgetError:
    """Of several refusals of one budget the one that names the smallest peak."""
    return min(refusals, key=lambda error: math.inf if error.smallest is None else error.smallest)


def bisected(rungs: Sequence[Plan], fits: Callable[[Plan], bool]) -> Plan | None:
    """The fastest plan that fits, where few are tried: peaks are trusted to fall from rung to rung.

    Args:
      rungs: plans from the fastest to the smallest.
      fits: whether one stays within the budget.
    """
    if not rungs or not fits(rungs[-1]):
        return None
    low, high = 0, len(rungs) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(rungs[middle]) else (middle + 1, high)
    return rungs[high]


def worth_its_time(plans: Sequence[Plan], max_slowdown: float) -> Plan:
    """The fastest of the plans with about the least peak; unknown, the one that keeps least.

    Args:
      plans: all within the bound.
      max_slowdown: the bound on time; the more is allowed, the closer to the least peak it must be.
    """
    known = [plan for plan in plans if None not in (plan.predicted_peak, plan.original_peak)]
    if not known:
        return min(plans, key=_kept)
    least = min(known, key=lambda plan: plan.predicted_peak)
    if least.changes_nothing:
        return least
    free = NOT_WORTH_TIME * least.original_peak
    if max_slowdown >= PLENTY:
        free = min(free, STILL_CLOSE * least.predicted_peak)

    def is_close(plan: Plan) -> bool:
        spared = free if plan.slowdown <= 1.0 else CLOSE * least.predicted_peak
        return plan.predicted_peak <= least.predicted_peak + spared

    close = [plan for plan in known if is_close(plan) and not plan.changes_nothing]
    return min(close, key=lambda plan: (plan.slowdown, plan.predicted_peak))


def _kept(plan: Plan) -> tuple[int, float]:
    """Bytes that the loops of a plan keep, where unknown sizes are guessed; and its time."""
    return sum(loop.total()[0] for loop in plan.loops), plan.slowdown


def _is_cut(plan: Plan) -> bool:
    """Whether a loop of the plan has segments."""
    return any(loop.segments is not None and not loop.closed for loop in plan.loops)


def _count(net: Net) -> int:
    return sum(len(inner.ops) for _, inner in net.walk())


def decide(decision: Decision, options: Options) -> tuple[Plan, Net | None]:
    """The plan that the options ask for, with its predicted peaks, and what applying it makes.

    Args:
      decision: the Net and what may be decided for it.
      options: what the user asks for.

    Returns:
      The plan, and the rewritten Net; None where the plan changes nothing.

    Raises:
      BudgetError: no plan is predicted to stay within the budget; names the smallest peak.
    """
    if not options.loop_means:
        if decision.losses:
            return decision.losses_alone(options)
        if options.budget is None:
            return Plan(notes=(NOT_ALLOWED,)), None
        peak = decision.unchanged(options.budget).predicted_peak
        return Plan(notes=(NOT_ALLOWED,), original_peak=peak, predicted_peak=peak), None
    if options.budget is None:
        return decision.least_memory(options.max_slowdown)
    return decision.least_time(options.budget)
