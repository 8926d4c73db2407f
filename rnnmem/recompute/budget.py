"""Which plan to run: the least memory in the time allowed, or the least time in a budget."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

from rnnmem.errors import BudgetError
from rnnmem.net.cost import Machine
from rnnmem.net.nouns import Net
from rnnmem.net.shapes import KnownNet, filled, known_net
from rnnmem.net.timeline import counted_peak
from rnnmem.options import Options
from rnnmem.plan import Plan
from rnnmem.recompute.planner import trades_of
from rnnmem.recompute.trades import Trades
from rnnmem.sizes import format_bytes

HEADROOM = 0.1
"""Part of a predicted peak that a budget must leave free: chunks and the order of ops vary."""

NEGLIGIBLE = 64 * 1024
"""Bytes below which no peak is worth leaving a function as it was."""

_SCANNED = 20000
"""Ops of a Net up to which the rungs of a ladder are simulated in turn; beyond it, bisected."""

_FITS = "the original stays within the budget"
_NO_GAIN = "no plan in the time allowed has a smaller predicted peak"
_UNKNOWN = "the budget was not held against a prediction: a size is known only at run time"


def needed_budget(peak: int) -> int:
    """The smallest budget that a plan of this predicted peak may be run under."""
    return math.ceil(peak * (1 + HEADROOM))


class Decision:
    """The choice of a plan for one Net, and the alternatives to it.

    Args:
      net: the whole step, inlined.
      machine: what estimates of time assume.
      apply: applies a plan to the Net.
      segments: whether loops may be cut into segments.
    """

    def __init__(
        self,
        net: Net,
        machine: Machine,
        apply: Callable[[Plan], Net],
        *,
        segments: bool = True,
    ):
        self.net = net
        self.machine = machine
        self.apply = apply
        self.segments = segments
        self._simulated: dict[tuple, Plan] = {}
        self._latest: tuple[Plan, Net | None] | None = None

    @functools.cached_property
    def known(self) -> KnownNet:
        """The Net with all shapes that can be found out."""
        return known_net(self.net)

    @functools.cached_property
    def trades(self) -> Trades:
        """All trades of the Net's loops."""
        return trades_of(filled(self.known), self.machine, segments=self.segments)

    @functools.cached_property
    def ladder(self) -> tuple[Plan, ...]:
        """Plans from the fastest to the smallest, not held against a simulation yet."""
        return self.trades.ladder()

    @functools.cached_property
    def original_peak(self) -> int | None:
        """Predicted peak of the original above the resident state."""
        return counted_peak(self.known)

    def least_memory(self, max_slowdown: float) -> tuple[Plan, Net | None]:
        """The plan that keeps fewest bytes within a bound on time, and what applying it makes."""
        plan, rewritten = self.finished(self.trades.within(max_slowdown))
        peaks = plan.predicted_peak, plan.original_peak
        if None not in peaks and peaks[0] > max(peaks[1], NEGLIGIBLE):
            return self._as_it_was(_NO_GAIN), None
        return plan, rewritten

    def least_time(self, budget: int) -> tuple[Plan, Net | None]:
        """The fastest plan whose predicted peak fits in a budget, and what applying it makes.

        Raises:
          BudgetError: none does; names the smallest peak that can be had and its time.
        """
        if not self.trades.pairs:
            return self.unchanged(budget), None
        if self.original_peak is not None and needed_budget(self.original_peak) <= budget:
            return self._as_it_was(_FITS), None
        if self.original_peak is None:
            plan, rewritten = self.finished(self.ladder[-1])
            return dataclasses.replace(plan, notes=(*plan.notes, _UNKNOWN)), rewritten

        def fits(plan: Plan) -> bool:
            peak = self.simulated(plan).predicted_peak
            return peak is not None and needed_budget(peak) <= budget

        found = first_that_fits(self.ladder, fits, bisected=_count(self.net) > _SCANNED)
        if found is None:
            raise self._too_small(budget)
        return self.finished(found)

    def finished(self, plan: Plan) -> tuple[Plan, Net | None]:
        """The plan with the peaks that a simulation predicts, and the rewritten Net."""
        known = self.simulated(plan)
        if self._latest is None or self._latest[0] is not known:
            self._latest = known, None if known.changes_nothing else self.apply(known)
        return self._latest

    def simulated(self, plan: Plan) -> Plan:
        """The plan with the peaks that a simulation predicts."""
        if plan.loops not in self._simulated:
            original = self.original_peak if plan.loops else None
            rewritten, predicted = None, original
            if not plan.changes_nothing:
                rewritten = self.apply(plan)
                predicted = counted_peak(rewritten)
            plan = dataclasses.replace(plan, original_peak=original, predicted_peak=predicted)
            self._simulated[plan.loops] = plan
            self._latest = plan, rewritten
        return self._simulated[plan.loops]

    def frontier(self, chosen: Plan, count: int = 5) -> tuple[Plan, ...]:
        """About ``count`` plans from the original to the smallest, with the chosen one among them.

        Args:
          chosen: the plan that runs.
          count: how many plans.
        """
        if not chosen.loops:
            return ()
        rungs = [rung for rung in self.ladder if rung.loops != chosen.loops]
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
        raise BudgetError(
            f"budget={budget} ({format_bytes(budget)}) cannot be met: nothing can be recomputed, "
            f"and the function as it is needs {needed_budget(peak)} bytes "
            f"({format_bytes(needed_budget(peak))}) above the resident state, as predicted; "
            "give at least that much, or a smaller batch"
        )

    def _too_small(self, budget: int) -> BudgetError:
        plans = [self.simulated(plan) for plan in self.ladder]
        plans = [plan for plan in plans if plan.predicted_peak is not None]
        least = min(plans, key=lambda plan: (plan.predicted_peak, plan.slowdown))
        peak, slowdown = needed_budget(least.predicted_peak), least.slowdown
        if needed_budget(self.original_peak) < peak:
            peak, slowdown = needed_budget(self.original_peak), 1.0
        return BudgetError(
            f"budget={budget} ({format_bytes(budget)}) cannot be met: the smallest "
            f"peak above the resident state is predicted to be {peak} bytes "
            f"({format_bytes(peak)}), at about {slowdown:.2f}x the step time; "
            "give at least that much, or a smaller batch"
        )


def first_that_fits(
    rungs: Sequence[Plan], fits: Callable[[Plan], bool], bisected: bool
) -> Plan | None:
    """The fastest plan that fits, of plans ordered from the fastest to the smallest.

    Args:
      rungs: the plans.
      fits: whether one stays within the budget.
      bisected: whether to trust that peaks fall from rung to rung, and to try few.
    """
    if not bisected:
        return next(filter(fits, rungs), None)
    if not rungs or not fits(rungs[-1]):
        return None
    low, high = 0, len(rungs) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(rungs[middle]) else (middle + 1, high)
    return rungs[high]


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
    if "recompute" not in options.allow:
        if options.budget is not None:
            decision.unchanged(options.budget)
        return Plan(notes=("recomputation is not among the means allowed",)), None
    if options.budget is None:
        return decision.least_memory(options.max_slowdown)
    return decision.least_time(options.budget)
