"""Planning one traced function: what is asked of its Nets, once and again; they go once it runs."""

from __future__ import annotations

import dataclasses
import functools
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from rnnmem import log
from rnnmem.analysis.machine import Machine
from rnnmem.analysis.shape_rules import Fact
from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.analysis.sums import sums_of_nothing
from rnnmem.compile import as_asked, compile_function, compile_net
from rnnmem.compiled import Compiled, Memo, Target
from rnnmem.errors import BudgetError, OptionError, PlanError, RnnmemError, RnnmemWarning
from rnnmem.grappler.listing import Listing, reordered
from rnnmem.grappler.merged_gradients import waits_in_a_cycle
from rnnmem.grappler.summation_races import sums_beside_shapes
from rnnmem.ir.graph import Net, Op, Path
from rnnmem.ir.names import UNKNOWN
from rnnmem.otherwise import Otherwise
from rnnmem.passes.normalise.congruent_ops import merged_in
from rnnmem.passes.normalise.decision import CongruentOps
from rnnmem.planning.alternatives import alternatives
from rnnmem.planning.choice import budget_for, cannot_be_met, is_cut
from rnnmem.planning.intervals import SEEN, at_sizes, with_intervals
from rnnmem.planning.names import with_origins
from rnnmem.planning.options import Options, left_outside
from rnnmem.planning.plan import Plan, without_peaks
from rnnmem.tf import private
from rnnmem.tf.device import executor_threads
from rnnmem.tf.gc import paused
from rnnmem.tf.gradient import rewrite_gradient
from rnnmem.tf.inlined_calls import other_arithmetic_called, other_gradient_called, shapes_of_call
from rnnmem.tf.optimized import ops_left, other_arithmetic, other_gradient
from rnnmem.tf.trips import facts_of, observed_trips

_BESIDE_SHAPES = (
    "the sum at {} begins with one addend or another, as the shapes that its gradient asks for are "
    "taken before it or behind it, and TensorFlow would list those otherwise once the function is "
    "rewritten; of tensors whose dimensions are known (a batch size in the signature) no shape is "
    "asked"
)
_IN_A_CYCLE = (
    "the gradients of filter and bias at {} are computed as one op by oneDNN, and one would wait "
    "for the other"
)
_MOST_LEFT = 4
"""Ops that are tried to run once because their clones would be computed in another way."""
_NO_SEGMENTS = "no iteration is replayed in segments: {}"
_NO_GRADIENT = "TensorFlow makes no gradient of the function, so that none is rewritten: {}"
_OTHERWISE = (
    "TensorFlow's graph optimizer would compute {} in another way than in the original, and last "
    "bits would differ"
)
_CALLED = "where it is called inside a graph with arguments of shapes {}, the original runs: {}"


class Work:
    """Compiling one traced function, or its gradient once somebody asks for it.

    Nothing but reports reads the Nets once a function runs, and they are as large as its trace: the
    call lets go of them, and whoever asks for them then has them made again.
    """

    def __init__(
        self,
        concrete: Any,
        options: Options,
        where: str,
        machine: Machine | None = None,
        given: tuple[Fact, ...] = (),
    ):
        self.concrete = concrete
        self.given = given  # what is known of the inputs in the call that it is planned for
        self.where = where
        self.options = options
        self.machine = machine
        self.make_again: Callable[[Work], Any] | None = Work.compile
        self.keeps_nets = False
        self.remarks: tuple[str, ...] = ()
        self.plan = Plan()
        self.made: Compiled | None = None
        self.memo = Memo()
        self._called: dict[tuple[str, ...], bool] = {}  # shapes -> whether the original runs
        self.was_called = False
        self.is_for_call = False  # whether the sizes of a call chose the plan
        self.seen: Callable[[Net], KnownNet] | None = None  # a Net at the sizes of the first call
        self.otherwise = ""  # the op that was found to be computed in another way

    def compile(self, left: str = "") -> Compiled:
        """Compiles the whole function; to change nothing, where there is a reason for that."""
        return self._keep(compile_function(self._target(left)))

    def simpler(self, reason: str) -> Iterator[Work]:
        """The same work where less runs again, for that reason.

        First what was computed otherwise does not, or congruent ops are merged as TensorFlow merged
        them, or no segment is replayed; then nothing does outside of loops.
        """
        tried, remarks = self, self.remarks
        for _ in range(_MOST_LEFT):
            if once := tried._running_once():
                tried = self.asked(once)
            elif merges := tried._merged():
                tried = self.asked(dataclasses.replace(tried.options, merges=merges))
            elif tried.options.plan is None and is_cut(tried.plan):
                tried = self.asked(tried.options.without(("checkpoint",)))
                remarks = (_NO_SEGMENTS.format(reason),)
            else:
                break
            tried.remarks = remarks
            yield tried
        for options, left in self.options.simpler(self.plan):
            made = self.asked(options)
            made.remarks = (left_outside(left, reason),)
            yield made

    def asked(self, options: Options) -> Work:
        """The same function, of which something else is asked."""
        work = Work(self.concrete, options, self.where, self.machine, self.given)
        work.memo = self.memo
        return work

    def _merged(self) -> tuple[CongruentOps, ...]:
        """The ops that TensorFlow merged, where another order of a sum began to show it."""
        options = self.options
        if not self.otherwise or self.made is None or options.plan is not None or options.merges:
            return ()
        if "congruent_ops" not in options.passes:
            return ()
        return merged_in(self.made.net, ops_left(self.concrete))

    def _running_once(self) -> Options | None:
        """Options where fewer ops run again, for what was found to be computed in another way."""
        if not self.otherwise or self.made is None:
            return None
        once = self.options.runs_once
        found = Otherwise(self.otherwise, self.made, self.plan, lambda: ops_left(self.concrete))
        more = found.running_once(once)
        return dataclasses.replace(self.options, runs_once=once | more) if more else None

    def reordered(self, before: Any, after: Any) -> str:
        """Why a sum would add up in another order in a rewritten FuncGraph; empty: none does."""
        found = list(sums_beside_shapes(self.made.net)) if self.made is not None else []
        if not found or private.is_compiled(self.concrete):
            return ""
        first, second = private.optimized_nodes(before), private.optimized_nodes(after)
        sum_of: Op | None = found[0].ops[0]
        if first is not None and second is not None:
            sum_of = reordered(found, Listing(first), Listing(second))
        return "" if sum_of is None else _BESIDE_SHAPES.format(sum_of.source or sum_of.name)

    def differs(self, function: Any) -> str:
        """Why a rewritten function would not run, or have other last bits; empty: neither."""
        if (reason := self._in_a_cycle()) or self._may_differ():
            return reason
        return self._otherwise(other_arithmetic(self.concrete, function, self._of_nothing))

    def _in_a_cycle(self) -> str:
        """Why TensorFlow would refuse to run what was made; empty: it would not."""
        rewritten = None if self.made is None else self.made.rewritten
        waits = None if rewritten is None else waits_in_a_cycle(rewritten)
        return "" if waits is None else _IN_A_CYCLE.format(waits.source or waits.name)

    def differs_called(self, function: Any, shapes: Sequence[Any]) -> bool:
        """Whether last bits would be others where a caller knows these shapes of the arguments."""

        def compare() -> str | None:
            return other_arithmetic_called(self.concrete, function, shapes, self._of_nothing)

        return self._left_to_original(shapes, compare)

    def leave(self, given: Sequence[Any], pair: Any, made: Any) -> bool:
        """Whether TensorFlow's pair differentiates a call with the tensors, not the rewritten."""
        shapes = shapes_of_call(self.concrete, given)
        count = private.result_count(self.concrete)

        def compare() -> str | None:
            return other_gradient_called(self.concrete, count, pair, made, shapes)

        return self._left_to_original(shapes, compare)

    def _left_to_original(self, shapes: Sequence[Any], compare: Callable[[], str | None]) -> bool:
        if self._may_differ():
            return False
        key = tuple(map(str, shapes))
        if key not in self._called:
            reason = self._otherwise(compare())
            self._called[key] = bool(reason)
            if reason:
                self.remarks += (_CALLED.format(", ".join(key), reason),)
                self.plan = self.plan.noting(self.remarks[-1])
        return self._called[key]

    def _of_nothing(self) -> frozenset[str]:
        """Names of sums that add nothing up."""
        net = self.nets()[0] if self.made is None else self.made.net
        return frozenset() if net is None else sums_of_nothing(known_net(net))

    def accept(self, graphs: Any, pair: Any, made: Any) -> Any:
        """True where a rewritten pair may run instead of TensorFlow's; else what to try next.

        That is a pair of graphs in which what was computed otherwise does not run again; None where
        there is no such pair, and the plan says why.
        """
        verdict = self._verdict(graphs, pair, made)
        if not self.keeps_nets and (verdict is True or verdict is None):
            self.forget_nets()
        return verdict

    def _verdict(self, graphs: Any, pair: Any, made: Any) -> Any:
        if self._may_differ():
            return True
        count = private.result_count(self.concrete)
        reason = self._otherwise(other_gradient(self.concrete, count, pair, made))
        if not reason:
            return True
        forward, backward = graphs
        if len(self.options.runs_once) < _MOST_LEFT and (once := self._running_once()):
            self.options = once
            return self.gradient(forward, backward)
        try:
            with paused():
                leave = functools.partial(self._compile_gradient, left=reason)
                rewrite_gradient(forward, backward, count, leave)
        except Exception as error:
            self.give_up(error)
        return None

    def _may_differ(self) -> bool:
        """Whether the plan gives other bits anyway, or other ops that give the same."""
        plan = self.plan
        encoded = any(loop.encodings for loop in plan.every_loop() if not loop.closed)
        return encoded or plan.sums_by_chunks or private.is_compiled(self.concrete)

    def _otherwise(self, name: str | None) -> str:
        """What the plan says of an op, by the user's line if one is known; empty without an op."""
        self.otherwise = name or ""
        if name is None:
            return ""
        nets = () if self.made is None else self.made.net.walk()
        ops = [op for _, net in nets for op in net.ops if f"/{name}".endswith(f"/{op.name}")]
        line = str(max(ops, key=lambda op: len(op.name)).source) if ops else ""
        return _OTHERWISE.format(line or name)

    def _target(self, left: str, differentiated: bool = False) -> Target:
        target = Target(
            self.concrete,
            self.options,
            self.machine,
            differentiated,
            memo=self.memo,
            given=() if differentiated else self.given,
        )
        return target.leaving(left) if left else target

    def _keep(self, made: Compiled) -> Compiled:
        made = dataclasses.replace(made, plan=made.plan.noting(*self.remarks))
        self.made, self.plan = made, made.plan
        if made.search is not None:
            self.machine, sizes = made.search.setting.machine, made.search.setting.sizes
            self.is_for_call = sizes is not None
            self.seen = sizes.known if sizes is not None and SEEN in made.plan.notes else None
        return made

    def see(self, inputs: Callable[[], Sequence[Any]]) -> None:
        """Takes from the first call what the Nets do not tell: the plan has peaks at its sizes.

        Iterations that only a run tells of are counted where a budget is to be held.

        Args:
          inputs: gives the tensors of the call.

        Raises:
          BudgetError: at these sizes the plan is not predicted to stay within the budget.
        """
        if self.was_called:
            return
        self.was_called = True
        made, plan, budget = self.made, self.plan, self.options.budget
        planned = plan.loops or plan.losses or plan.outside_of_loops
        if made is None or not planned or plan.predicted_peak is not None:
            return
        if private.is_compiled(self.concrete):
            return
        given = inputs()
        facts = facts_of(made.net, given)
        trips: Mapping[Path, int] = {}
        if budget is not None:
            trips = observed_trips(known_net(made.net, facts), made.net, given)
        self.seen = functools.partial(known_net, inputs=facts, observed=trips, most=True)
        self.plan = at_sizes(plan, *self._as_seen(made.net, made.rewritten))
        known = self.plan.predicted_peak is not None
        if known and budget is not None and budget_for(self.plan) > budget:
            self.was_called, self.plan, refused = False, plan, self.plan
            raise cannot_be_met(budget, refused, "at the sizes of this call")

    def forget_nets(self) -> None:
        """Lets go of what only reports read."""
        self.made, self.memo = None, Memo()

    def nets(self) -> tuple[Net | None, Net | None]:
        """The function before and after, by the plan; None where nothing was planned or changed."""
        made = self.made
        if made is None and self.plan.changes_nothing:
            made = self._again(dataclasses.replace(self.options, plan=None, budget=None, allow=()))
        elif made is None:
            made = self._again(dataclasses.replace(self.options, plan=self.plan))
        return (None, None) if made is None else (made.net, made.rewritten)

    def _as_seen(self, *nets: Net | None) -> tuple[Any, ...]:
        """Nets with the sizes of the first call, where only that tells them."""
        if self.seen is None:
            return nets
        return tuple(net if net is None else self.seen(net) for net in nets)

    def told(self) -> Plan:
        """The plan with what is found once it is read: intervals of peaks, origins of names."""
        plan = self.plan
        is_named = plan.origins is not UNKNOWN or not (plan.decisions or any(plan.every_loop()))
        is_simulated = plan.predicted_peak is None or plan.predicted_interval is not None
        net, rewritten = (None, None) if is_named and is_simulated else self.nets()
        if net is not None:
            plan = with_origins(plan, net, private.names_in_use(self.concrete.graph))
            if not is_simulated:
                seen, after = self._as_seen(net, rewritten)
                plan = with_intervals(plan, seen, after, executor_threads())
            self.plan = plan
        return plan

    def frontier(self) -> tuple[Plan, ...]:
        """The plan among its alternatives; none where nothing was planned."""
        if not self.plan.loops:
            return ()
        made = self.made or self._again(self.options)
        search = None if made is None else made.search
        found = () if search is None else alternatives(search, self.plan)
        return tuple(map(without_peaks, found)) if private.is_compiled(self.concrete) else found

    def _again(self, options: Options) -> Compiled | None:
        """The same compiled again, on the same estimates of time; None where it failed."""
        again = Work(self.concrete, options, self.where, self.machine, self.given)
        if self.make_again is not None:
            with paused():
                self.make_again(again)
        return again.made

    def _compile_gradient(self, net: Net, left: str = "") -> Net | None:
        """Compiles the function and its gradient as one Net."""
        target = self._target(left, differentiated=True)
        return self._keep(compile_net(as_asked(net, target), target)).rewritten

    def gradient(self, forward: Any, backward: Any) -> tuple[Any, Any] | None:
        """TensorFlow's graphs of the function and its gradient, rewritten; None to leave them.

        Nets are kept for `accept`, which is asked about what is made of the graphs.
        """
        made = None
        count, began = private.result_count(self.concrete), time.perf_counter()
        compiled = private.is_compiled(self.concrete)

        def make_again(work: Work) -> None:
            def compile_only(net: Net) -> None:  # and nothing is made of it
                work._compile_gradient(net)

            rewrite_gradient(forward, backward, count, compile_only, compiled)

        try:
            with paused():
                made = rewrite_gradient(forward, backward, count, self._compile_gradient, compiled)
                if made is not None and (
                    reason := self._in_a_cycle() or self.reordered(forward, made[0])
                ):
                    leave = functools.partial(self._compile_gradient, left=reason)
                    made = rewrite_gradient(forward, backward, count, leave, compiled)
            self.make_again = make_again
            return made
        except Exception as error:
            self.give_up(error)
            return None
        finally:
            self.log_since(began)
            if made is None and not self.keeps_nets:
                self.forget_nets()

    def log_since(self, began: float) -> None:
        """Logs the plan, and the seconds since ``time.perf_counter`` said so."""
        log.planned(self.concrete.graph.name, self.where, self.plan, began)

    def plan_gradient(self, function: Any) -> Plan:
        """The plan, for which the gradient of what runs is built if nobody did yet."""
        self.keeps_nets = True
        try:
            if not (reason := self._has_no_gradient()):
                private.force_gradient(function)
            elif reason not in self.plan.notes:
                self.plan = self.plan.noting(reason)
        except Exception as error:
            self.give_up(error)
        finally:
            self.keeps_nets = False
        return self.plan

    def _has_no_gradient(self) -> str:
        """Why TensorFlow differentiates not even the original, in words; empty: it does."""
        try:
            private.force_gradient(self.concrete)
        except RnnmemError:  # of a decorated function that is called
            raise
        except Exception as error:  # e.g. a LookupError; whoever asks for the gradient gets it, too
            first, *_ = re.split(r"\n|\. ", str(error), maxsplit=1)
            return _NO_GRADIENT.format(f"{type(error).__name__}: {first}")
        return ""

    def give_up(self, error: Exception) -> None:
        """The original runs; one warning says why. A promise that cannot be kept is an error."""
        if self.options.verify or isinstance(error, (BudgetError, OptionError, PlanError)):
            raise error
        reason = f"{type(error).__name__}: {error}"
        self.plan, self.make_again = Plan(notes=(reason,)), None
        self.forget_nets()
        name = tf.compat.as_str(self.concrete.name)
        broken = "" if self.options.budget is None else "; the budget is not kept"
        text = f"rnnmem left {name}{self.where} as it was{broken}: {reason}; see docs/errors.md"
        warnings.warn(text, RnnmemWarning, stacklevel=2)
