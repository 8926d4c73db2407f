"""Which plan to run: the least memory in the time allowed, or the least time in a budget."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable

from rnnmem.analysis.shapes import KnownNet, filled, known_net
from rnnmem.analysis.training_regions import NestedStep
from rnnmem.ir.graph import Net
from rnnmem.passes.checkpoint.select import longer_segments
from rnnmem.passes.chunked_loss.decision import ChunkedLoss, by_pass
from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.passes.straight_line.select import Choices
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.assumed_sizes import MOST_TRIED, Peaks, are_larger, assumed_peaks, higher_peaks
from rnnmem.planning.choice import (
    bisected,
    budget_for,
    cannot_be_met,
    is_cut,
    is_smaller,
    kept,
    least_held,
    needed_budget,
    not_worth_any,
    rises,
    tried_in,
    worth_its_time,
)
from rnnmem.planning.parallel_iterations import one_by_one, overlapped, within
from rnnmem.planning.pareto import Candidates, candidates_of
from rnnmem.planning.plan import Plan
from rnnmem.planning.scheduling_edges import with_edges_where_they_pay
from rnnmem.planning.setting import Setting
from rnnmem.planning.step_time import run_seconds, slowdown_of
from rnnmem.planning.timed import Timed
from rnnmem.planning.tried import Tried
from rnnmem.simulate.timeline import counted_peak, worst_peak

_TURNED = 3
"""Plans of which it is looked at whether large buffers may take turns, where no budget is met."""

_BOUNDS = (1.0, 1.05, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0, math.inf)
"""Bounds on time whose plans a budget may take, beside those of the frontier."""

_SCANNED = 20000
"""Ops of a Net up to which all candidates are simulated and timed; beyond it, bisected."""

_FITS = "the original stays within the budget"
NO_GAIN = "no plan in the time allowed has a smaller predicted peak"
_LARGER = "at sizes known only at run time, every plan may have a larger peak"
_UNKNOWN = "the budget was not held against a prediction: a size is known only at run time"


class Search:
    """The choice of a plan for one Net, and the alternatives to it.

    Args:
      net: the whole step, inlined.
      setting: what plans for it depend on.
      losses: what the Net runs by chunks of tokens already.
      beside: the search for the Net as it was before that.
      nested_step: where the Net is a step net; None for an outermost one.
    """

    def __init__(
        self,
        net: Net,
        setting: Setting,
        *,
        losses: tuple[ChunkedLoss, ...] = (),
        beside: Search | None = None,
        nested_step: NestedStep | None = None,
    ):
        self.net = net
        self.setting = setting
        self.losses = losses
        self.beside = beside
        self.nested_step = nested_step
        self.variables = None if nested_step is None else nested_step.variables
        self.regions: tuple[Net, Choices] | None = None  # looked at last
        self._simulated: dict[tuple, Plan] = {}
        self._higher: dict[tuple, Plan] = {}  # of which a limit was all that was asked
        self._latest: tuple[Plan, Net | None] | None = None
        self._smallest: tuple[Plan, Net | None] | None = None  # what is chosen most often

    def apply(self, plan: Plan) -> Net:
        """The Net that a plan makes."""
        setting, step = self.setting, self.nested_step
        keeps = setting.keeps_alive
        return apply_plan(self.net, plan, setting.constant, keeps_alive=keeps, nested_step=step)

    @functools.cached_property
    def known(self) -> KnownNet:
        """The Net with all shapes that can be found out."""
        return known_net(self.net)

    @property
    def as_run(self) -> KnownNet:
        """The same, with the shapes in a call where there is one."""
        return self.setting.known(self.net)

    @functools.cached_property
    def filled(self) -> Net:
        """The Net with these shapes, here and in all step nets."""
        return filled(self.known)

    @functools.cached_property
    def seconds(self) -> float:
        """Estimated time of the Net as it is."""
        return run_seconds(self.as_run, self.setting.machine)

    @functools.cached_property
    def _as_declared(self) -> float:
        """The same at the sizes that are declared, by which trades are estimated."""
        return run_seconds(self.known, self.setting.machine)

    @property
    def original(self) -> Search:
        """The search for the Net as it was at first."""
        return self if self.beside is None else self.beside.original

    @functools.cached_property
    def _timed(self) -> Timed | None:
        """Plans with their times, where costs are known and the Net is small enough to try many."""
        known = self.setting.machine.costs is not None and self.net.op_count <= _SCANNED
        return Timed(self) if known else None

    def _made(self, plan: Plan) -> tuple[Plan, Net]:
        """The plan with its time, as well as that is known, and the Net that it makes."""
        return (plan, self.apply(plan)) if self._timed is None else self._timed.plan(plan)

    @functools.cached_property
    def candidates(self) -> Candidates:
        """All trades of the Net's loops."""
        return candidates_of(
            self.filled,
            self.setting.machine,
            self._as_declared,
            segments=self.setting.segments,
            variables=self.variables,
            techniques=self.setting.in_loops,
            beside=self.setting.around_loops,
            runs_once=self.setting.runs_once,
        )

    @functools.cached_property
    def frontier_plans(self) -> tuple[Plan, ...]:
        """Plans from the fastest to the slowest, not held against a simulation yet."""
        return tuple(sorted(itertools.chain(*self.frontiers), key=lambda plan: plan.slowdown))

    @functools.cached_property
    def frontiers(self) -> tuple[tuple[Plan, ...], tuple[Plan, ...]]:
        """Plans from the fastest to the smallest: at two iterations at once, and at one."""
        steps = tuple(map(self.with_losses, self.candidates.frontier_plans()))
        steps = tuple(itertools.chain(*((plan, *self._tried.beside(plan)) for plan in steps)))
        opened = filter(lambda plan: not plan.changes_nothing, steps)
        return tuple(map(overlapped, steps)), tuple(map(one_by_one, opened))

    @functools.cached_property
    def slower(self) -> float:
        """What chunks of tokens add to the factor of step time."""
        if self.beside is None or not self.losses or not self.beside.seconds:
            return 0.0
        return sum(one.seconds for one in self.losses) / self.beside._as_declared

    def with_losses(self, plan: Plan) -> Plan:
        """The plan with what runs by chunks of tokens already."""
        slower = dataclasses.replace(plan, slowdown=plan.slowdown + self.slower)
        return slower.having(**by_pass(self.losses))

    @functools.cached_property
    def original_peak(self) -> int | None:
        """Predicted peak of the original above the resident state."""
        return counted_peak(self.as_run) if self.beside is None else self.beside.original_peak

    @property
    def is_open(self) -> bool:
        """Whether each call has sizes of its own."""
        return self.original_peak is None or self.setting.sizes is not None

    def least_memory(self, max_slowdown: float) -> tuple[Plan, Net | None]:
        """The plan that keeps fewest bytes within a bound on time, and what applying it makes."""
        left = max_slowdown - self.slower
        if left < 1.0:
            return self.as_it_was(NO_GAIN), None
        plans = self._candidates(max(1.0, left - self._tried.most))
        chosen = worth_its_time(plans, max_slowdown)
        tried = map(self.simulated, self._tried.beside(chosen))
        tried = [one for one in tried if one.slowdown <= max_slowdown]
        held = [] if tried and not self.setting.keeps_alive else [chosen]  # XLA has lists whole
        chosen = worth_its_time([*held, *tried], max_slowdown)
        if self.is_open:
            chosen = self._no_larger(chosen, plans, left)
        plan, rewritten = self.finished(self._with_longer_segments(chosen))
        if plan.changes_nothing:
            tried = not all(one.changes_nothing for one in plans)
            why = _LARGER if self.original_peak is None else NO_GAIN
            return (self.as_it_was(why) if tried else plan), None
        joins = bool(self.losses) and not self.setting.keeps_alive  # XLA joins chunks uncopied
        if rises(plan) and not plan.must_recompute and not joins:
            return self.as_it_was(NO_GAIN), None
        return plan, rewritten

    def _candidates(self, max_slowdown: float) -> list[Plan]:
        """Plans within a bound on time, simulated as far as `worth_its_time` looks."""
        found = []
        limit = math.inf
        for plan in reversed(self._plans_within(max_slowdown)):  # the one that keeps least is late
            found.append(self.simulated(plan, limit))
            limit = min(limit, not_worth_any(found[-1], max_slowdown))
        return found[::-1]

    def _plans_within(self, max_slowdown: float) -> list[Plan]:
        """Plans within a bound on time: ever slower ones, and one with an iteration at a time."""
        if self._timed is not None:
            return self._timed.within(max_slowdown) or [self.as_it_was(NO_GAIN)]
        bounds = {max_slowdown}
        if math.isfinite(max_slowdown) and self.net.op_count <= _SCANNED:
            bounds |= {1.0 + part * (max_slowdown - 1.0) for part in (0.0, 0.25, 0.5)}
        found = within(self.candidates, bounds, max_slowdown, self.with_losses)

        def also(candidates: Candidates) -> None:
            found.extend(within(candidates, {max_slowdown}, max_slowdown, self.with_losses))

        for opening in self.candidates.opening(found):
            also(opening)
        if self.original_peak is not None:
            # What one iteration at a time takes is too uncertain to be added to a tail's time.
            tails = self.candidates.with_tails().within(max_slowdown)
            found.append(overlapped(self.with_losses(tails)))
        cut = (loop.segments for plan in found for loop in plan.loops)
        if any(segments is not None and segments.slots for segments in cut):
            # Running iterations again and again is for a peak that it lowers.
            also(self.candidates.without_schedules())
        if self.is_open and any(map(is_cut, found)):
            # Nothing predicts what a segment holds while it runs again, in every call.
            also(self.candidates.without_segments())
        return found

    @functools.cached_property
    def reachable(self) -> tuple[Plan, ...]:
        """Every plan that a budget may take, from the fastest to the slowest; none simulated yet.

        They are the frontier's and those that bounds on time take; they depend on the Net alone, so
        that what fits in one budget is not missed under a larger one. Of a large Net, the frontier.
        """
        if self.net.op_count > _SCANNED:
            return self.frontier_plans
        found = list(self.frontier_plans)
        for bound in _BOUNDS:
            if bound - self.slower >= 1.0:
                plans = self._plans_within(max(1.0, bound - self.slower - self._tried.most))
                found += itertools.chain(*((plan, *self._tried.beside(plan)) for plan in plans))
        for plan in list(found):
            found += (dataclasses.replace(plan, loops=one) for one in longer_segments(plan.loops))
        distinct = {(plan.loops, tried_in(plan)): plan for plan in reversed(found)}
        return tuple(sorted(reversed(distinct.values()), key=lambda plan: plan.slowdown))

    def _no_larger(self, chosen: Plan, others: Iterable[Plan], max_slowdown: float) -> Plan:
        """The first plan that is no larger than the original whatever the sizes that are assumed.

        Args:
          chosen: the plan to try first.
          others: those to try next, the one that keeps least first.
          max_slowdown: the bound on time of these.
        """
        cut = [plan for plan in others if is_cut(plan)]
        whole = [plan for plan in others if not is_cut(plan)]
        tried = dict.fromkeys([chosen, *sorted(cut, key=kept)[:2], *sorted(whole, key=kept)])
        for plan in list(tried)[:MOST_TRIED]:
            if not self._is_larger(plan):
                if plan is chosen or is_cut(plan) or plan.changes_nothing or not cut:
                    return plan
                alike = itertools.filterfalse(self._is_larger, self._cut_like(plan, max_slowdown))
                return next(alike, plan)
        return self.simulated(chosen if chosen.must_recompute else self.as_it_was(_LARGER))

    def _cut_like(self, plan: Plan, max_slowdown: float) -> list[Plan]:
        """The plan with segments in the loops where an iteration saves the same, within the bound.

        As it runs, it may take longer than was estimated where it was found.
        """
        candidates = self.candidates.saving_like(plan.loops)
        found = within(candidates, {max_slowdown}, max_slowdown, self.with_losses)
        most = max_slowdown + self.slower
        cut = (one for one in map(self.simulated, found) if is_cut(one) and one.slowdown <= most)
        return sorted(cut, key=kept)

    def _is_larger(self, plan: Plan) -> bool:
        """Whether a plan, whose peak only the run can tell, may be above the original's.

        Where not even assumed sizes tell, one that runs iterations again may; one that saves less
        in each iteration holds more in one of them at most.
        """
        _, rewritten = self.finished(plan)
        if rewritten is None:
            return False
        after, in_call = assumed_peaks(rewritten), self.original_peak or 0
        larger = are_larger(after, self._assumed, bool(self.losses), in_call)
        return is_cut(plan) if larger is None else larger

    @property
    def _assumed(self) -> Peaks:
        """Predicted peaks at assumed sizes of what runs where no loop is rewritten."""
        if self.beside is None:
            return assumed_peaks(self.net)
        before = self.beside._assumed
        return before if self.losses else higher_peaks(assumed_peaks(self.net), before)

    def _with_longer_segments(self, plan: Plan) -> Plan:
        """The plan, or one with longer segments whose predicted peak is smaller."""
        if self.net.op_count > _SCANNED:
            return plan
        for loops in longer_segments(plan.loops):
            least = math.inf if plan.predicted_peak is None else plan.predicted_peak
            longer = self.simulated(dataclasses.replace(plan, loops=loops), least)
            lower = longer.predicted_peak is not None and longer.predicted_peak < least
            if lower and not (self.is_open and self._is_larger(longer)):
                plan = longer
        return plan

    @functools.cached_property
    def _tried(self) -> Tried:
        """What loops that are rewritten may bring along where it is worth its time."""
        return Tried(self.candidates, self.setting, self.variables)

    def least_time(self, budget: int) -> tuple[Plan, Net | None]:
        """The fastest plan whose predicted peak fits in a budget, and what applying it makes.

        Raises:
          BudgetError: none does; names the smallest peak that can be had and its time.
        """
        if not self.candidates.pairs and not self.losses:
            return self.unchanged(budget), None
        must = self.candidates.must_recompute
        if not must and self.original_peak is not None and budget_for(self._original) <= budget:
            return self.as_it_was(_FITS), None
        if self.original_peak is None:
            smallest = list(reversed(self.frontier_plans))[:MOST_TRIED]
            held = itertools.filterfalse(self._is_larger, map(self.simulated, smallest))
            least = smallest[0] if must else self.as_it_was(_LARGER)
            plan, rewritten = self.finished(next(held, least))
            return dataclasses.replace(plan, notes=(*plan.notes, _UNKNOWN)), rewritten

        def fits(plan: Plan) -> bool:
            known = self.simulated(plan)
            fit = known.predicted_peak is not None and budget_for(known) <= budget
            return fit and budget_for(self._at_worst(known)) <= budget

        found = None
        if self.net.op_count > _SCANNED:
            found = next(filter(None, (bisected(steps, fits) for steps in self.frontiers)), None)
        found = found or next(filter(fits, self.reachable), None)
        if found is None:
            ordered = [one for one, turns in self._serialised if budget_for(turns) <= budget]
            found = min(ordered, key=lambda plan: plan.slowdown, default=None)
        if found is None:
            ends = [self._original, *(turns for _, turns in self._serialised)]
            plans = map(self.simulated, self.reachable)
            raise cannot_be_met(budget, least_held(plans, ends, self._at_worst))
        return self.finished(found)

    @functools.cached_property
    def _original(self) -> Plan:
        """The plan that changes nothing, with its peak where an op is held up."""
        known = self.original.as_run
        return dataclasses.replace(self.as_it_was(""), worst_peak=worst_peak(known))

    def _at_worst(self, plan: Plan) -> Plan:
        """The simulated plan with its peak where an op is held up; looked at only for a budget."""
        known, rewritten = self.finished(plan)
        if known.worst_peak is None:
            known = dataclasses.replace(known, worst_peak=self._worst(rewritten))
            self._simulated[known.loops, tried_in(known)] = known
            self._latest = known, rewritten
        return known

    def _worst(self, rewritten: Net | None) -> int | None:
        return worst_peak(self.setting.known(rewritten or self.net))

    @functools.cached_property
    def _serialised(self) -> list[tuple[Plan, Plan]]:
        """Plans of the least peaks, and what they become where large buffers take turns."""
        if not self.setting.scheduling_edges:
            return []
        plans = [self.as_it_was("")]
        if self.candidates.pairs or self.losses:
            plans += map(self.simulated, self.reachable)
        known = [plan for plan in plans if plan.predicted_peak is not None]
        found = []
        for plan in sorted(known, key=lambda plan: plan.predicted_peak)[:_TURNED]:
            net = self.net if plan.changes_nothing else self.apply(plan)
            serialised = self._in_turns(net, plan)
            if serialised is not None:
                found.append((plan, serialised))
        return found

    def _in_turns(self, net: Net, plan: Plan) -> Plan | None:
        """What a plan becomes where large buffers take turns, however long; None where none do."""
        found, ordered = with_edges_where_they_pay(net, plan, self.setting, math.inf)
        if ordered is None:
            return None
        known = self.setting.known(ordered)
        return dataclasses.replace(
            found, predicted_peak=counted_peak(known), worst_peak=worst_peak(known)
        )

    def finished(self, plan: Plan) -> tuple[Plan, Net | None]:
        """The plan with the peaks that a simulation predicts, and the rewritten Net."""
        known = self.simulated(plan)
        for one in (self._latest, self._smallest):
            if one is not None and one[0] is known:
                return one
        self._latest = known, None if known.changes_nothing else self.apply(known)
        return self._latest

    def simulated(self, plan: Plan, limit: float = math.inf) -> Plan:
        """The plan with the peaks that a simulation predicts; from a limit on, no higher one."""
        decided = plan.loops, tried_in(plan)
        higher = self._higher.get(decided)
        if higher is not None and higher.predicted_peak >= limit:
            return higher
        if decided not in self._simulated:
            planned = plan.loops or self.losses or plan.outside_of_loops
            original = self.original_peak if planned else None
            rewritten, predicted = None, original
            if not plan.changes_nothing:
                plan, rewritten = self._made(plan)
                predicted = counted_peak(self.setting.known(rewritten), limit=limit)
            plan = dataclasses.replace(plan, original_peak=original, predicted_peak=predicted)
            if predicted is not None and predicted >= limit:
                self._higher[decided] = plan
                return plan
            self._simulated[decided] = plan
            self._latest = plan, rewritten
            if self._smallest is None or is_smaller(plan, self._smallest[0]):
                self._smallest = self._latest
        return self._simulated[decided]

    def as_it_was(self, note: str) -> Plan:
        """The plan that changes nothing."""
        peaks = {"original_peak": self.original_peak, "predicted_peak": self.original_peak}
        return Plan(loops=self.closed(note or "left"), notes=(note,) if note else (), **peaks)

    def closed(self, reason: str) -> tuple[LoopPlan, ...]:
        """The decisions to leave every loop as it is."""
        return tuple(
            dataclasses.replace(own[0], closed=own[0].closed or reason, residuals=())
            for own in self.candidates.choices
        )

    def unchanged(self, budget: int) -> Plan:
        """The plan that changes nothing, where nothing can or may be changed.

        Raises:
          BudgetError: the original's predicted peak does not fit in the budget.
        """
        peak = self.original_peak
        if peak is None or budget_for(self._original) <= budget:
            return self.as_it_was(_UNKNOWN if peak is None else _FITS)
        return self._fitting(budget, self._original, "nothing can be recomputed")

    def as_it_is(self, budget: int | None) -> Plan:
        """The plan that does nothing more to a Net to which something was done already.

        Raises:
          BudgetError: its predicted peak does not fit in the budget.
        """
        predicted = counted_peak(self.as_run)
        notes = (_UNKNOWN,) if budget is not None and predicted is None else ()
        plan = Plan(notes=notes, original_peak=self.original_peak, predicted_peak=predicted)
        if budget is None or predicted is None or needed_budget(predicted) <= budget:
            return plan
        return self._fitting(budget, plan, "nothing more can be recomputed")

    def with_own_peak(self, plan: Plan) -> Plan:
        """The plan that does nothing more, with peak and step time of the Net as it is by now."""
        found = slowdown_of(self.as_run, self.original.seconds, self.setting.machine)
        return dataclasses.replace(
            plan,
            original_peak=self.original_peak,
            predicted_peak=counted_peak(self.as_run),
            slowdown=plan.slowdown if found is None else found,
        )

    def _fitting(self, budget: int, plan: Plan, remark: str) -> Plan:
        """A plan that fits in the budget once large buffers take turns.

        Raises:
          BudgetError: it does not.
        """
        serialised = self._in_turns(self.net, plan) if self.setting.scheduling_edges else None
        if serialised is None or budget_for(serialised) > budget:
            raise cannot_be_met(budget, serialised or plan, remark)
        return plan
