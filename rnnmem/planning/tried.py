"""What loops that are rewritten may bring along where it is worth its time."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping

from rnnmem.analysis.variable_effects import Writers
from rnnmem.passes.decision import Offer, Site
from rnnmem.passes.registry import Kind
from rnnmem.planning.choice import tried_in
from rnnmem.planning.pareto import Candidates
from rnnmem.planning.plan import Plan
from rnnmem.planning.setting import Setting


class Tried:
    """What the passes of :attr:`Kind.TRIED` offer beside the candidates of a Net's loops."""

    def __init__(self, candidates: Candidates, setting: Setting, variables: frozenset[str] | None):
        self.candidates = candidates
        self.setting = setting
        self.variables = variables

    def beside(self, plan: Plan) -> list[Plan]:
        """The plan with all that is offered beside its loops, where anything is."""
        opened = {loop.path for loop in plan.loops if not loop.closed}
        pairs = [pair for pair in self.candidates.outermost if pair.path in opened]
        tried = plan
        for name, offer in self._offers.items():
            tried = tried.having(**{name: offer.decide(pairs, plan.of)})
        more = self._share(tried)
        return [] if tried == plan else [dataclasses.replace(tried, slowdown=plan.slowdown + more)]

    @functools.cached_property
    def most(self) -> float:
        """The part of the step time that all of it takes."""
        pairs = self.candidates.outermost
        offers = self._offers.items()
        return self._share(
            Plan().having(**{name: offer.decide(pairs, Plan().of) for name, offer in offers})
        )

    @functools.cached_property
    def _offers(self) -> Mapping[str, Offer]:
        net = self.candidates.net
        writers = Writers(net, self.variables) if self.setting.reads_again else None
        machine = self.setting.machine
        site = Site(net, self.candidates.outermost, machine.seconds, writers, machine.device)
        passes = (one for one in self.setting.around_loops if one.kind is Kind.TRIED)
        return {one.name: one.offer(site) for one in passes}

    def _share(self, plan: Plan) -> float:
        taken = sum(one.seconds for some in tried_in(plan) for one in some)
        return taken / (self.candidates.seconds or math.inf)
