"""Plans of a machine whose costs are known: each is timed as it will run, then taken or not.

Decisions are made op by op, by what kernels take; what barriers, lists, branches and loop variables
take shows in the Net that a plan makes. So the time that decisions may take is changed until what
their Net takes is what is allowed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from rnnmem.ir.graph import Net
from rnnmem.planning.parallel_iterations import one_by_one, one_by_one_where_cheap, overlapped
from rnnmem.planning.pareto import Candidates
from rnnmem.planning.plan import Plan
from rnnmem.planning.step_time import slowdown_of
from rnnmem.planning.trials import TOLERANCE, TRIALS, Trial, next_allowed

if TYPE_CHECKING:
    from rnnmem.planning.search import Search

PARTS = (0.0, 0.3, 0.6)
"""Parts of the time allowed, or of what there is to be spent, under which plans are tried too: the
least peak may need less of it."""
KEPT_OPS = 100_000
"""Ops of the Nets that are kept until their plans are simulated; what is more is made again."""

_Way = Callable[[Candidates, float], Plan]
"""(trades, bound on the time of decisions) -> a plan."""


class Timed:
    """The plans of a search with their times, by the costs of its machine."""

    def __init__(self, search: Search):
        self.search = search
        self._slowdowns: dict[Plan, float] = {}
        most = max(1, KEPT_OPS // max(1, search.net.op_count))
        self._apply = functools.lru_cache(most)(search.apply)

    def plan(self, plan: Plan) -> tuple[Plan, Net]:
        """The plan with the estimated factor of its step time, and the Net that it makes."""
        if plan.changes_nothing:
            return plan, self.search.net
        decided = _decisions(plan)
        rewritten, setting = self._apply(decided), self.search.setting
        machine = setting.machine
        if decided not in self._slowdowns:
            found = slowdown_of(setting.known(rewritten), self.search.original.seconds, machine)
            self._slowdowns[decided] = plan.slowdown if found is None else found
        slowdown, by = self._slowdowns[decided], machine.calibrated
        return dataclasses.replace(plan, slowdown=slowdown, calibrated=by), rewritten

    def within(self, bound: float) -> list[Plan]:
        """Plans of several kinds that take just the time allowed, and some that take less.

        Args:
          bound: on the factor of step time.
        """
        candidates, lost = self.search.candidates, self.search.candidates.lost
        ways: list[_Way] = [lambda some, allowed: overlapped(some.within(allowed))]
        if any(lost):
            ways.append(lambda some, allowed: one_by_one_where_cheap(some.within(allowed), lost))
        ways.append(lambda some, allowed: one_by_one(some.within(allowed)))
        tried = [plan for way in ways for plan in self._along(candidates, way, bound)]
        for other in (*candidates.opening(tried), candidates.with_tails(), *self._flat(tried)):
            tried += self._along(other, ways[0], bound)
        most = min(bound, max(plan.slowdown for plan in candidates.frontier_plans()))
        for part in PARTS:
            less = self.search.with_losses(candidates.within(1.0 + part * (most - 1.0)))
            tried += overlapped(less), one_by_one(less)
        distinct = {_decisions(plan): plan for plan in tried}
        timed = [self.plan(plan)[0] for plan in distinct.values()]
        fast = [plan for plan in timed if plan.slowdown <= bound]
        if not fast and candidates.must_recompute:
            return [min(timed, key=lambda plan: plan.slowdown)]
        return sorted(fast, key=lambda plan: plan.slowdown)

    def _along(self, candidates: Candidates, way: _Way, bound: float) -> list[Plan]:
        """Plans made in one way, ever closer to the bound."""
        tried: list[Trial] = []
        allowed: float | None = bound
        while allowed is not None and len(tried) < TRIALS:
            plan = self.search.with_losses(way(candidates, allowed))
            tried.append(Trial(allowed, plan, self.plan(plan)[0].slowdown))
            allowed = next_allowed(tried, max(1.0, bound - TOLERANCE))
        return [one.plan for one in tried]

    def _flat(self, tried: list[Plan]) -> list[Candidates]:
        """Fewer trades, where some plan has a kind of segments whose peak may be no lower."""
        cut = [one.segments for plan in tried for one in plan.loops if one.segments is not None]
        found, candidates = list[Candidates](), self.search.candidates
        if any(one.slots for one in cut):
            found.append(candidates.without_schedules())
        if cut and self.search.is_open:
            found.append(candidates.without_segments())
        return found


def _decisions(plan: Plan) -> Plan:
    """What is decided, less what is only told."""
    return Plan(loops=plan.loops, decisions=plan.decisions, nested=plan.nested)
