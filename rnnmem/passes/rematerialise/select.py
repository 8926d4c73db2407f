"""Chooses each loop pair's saved set, at a price of time or within a bound on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from rnnmem.analysis.lookups import may_take_its_table, reads_in_step
from rnnmem.analysis.loop_invariant_casts import is_hoisted
from rnnmem.analysis.loops import Loop, LoopPair, inner_pairs
from rnnmem.analysis.machine import Machine
from rnnmem.analysis.times import Clock
from rnnmem.analysis.trip_count import trip_count
from rnnmem.grappler.fusion import is_merged
from rnnmem.grappler.leads import rivals
from rnnmem.grappler.lowering import sums_what_is_given
from rnnmem.grappler.summation_order import summation_trees, sums_of
from rnnmem.grappler.summation_races import racing, summed_later
from rnnmem.ir.devices import ACCELERATOR
from rnnmem.ir.graph import Net
from rnnmem.ir.handed_on import buffer_of
from rnnmem.ir.joint import is_joint
from rnnmem.ir.lines import function_of
from rnnmem.ir.op_table import LOOPS, READ, facts
from rnnmem.ir.order import order_shows, through_identities
from rnnmem.ir.requests import KEEP, RECOMPUTE
from rnnmem.passes.encode.decision import SAVED
from rnnmem.passes.encode.select import Codecs, signs_in
from rnnmem.passes.induction_variables.select import follows
from rnnmem.passes.rematerialise.decision import LoopPlan, Request
from rnnmem.passes.rematerialise.milp import fastest_within, smallest_within
from rnnmem.passes.rematerialise.min_cut import (
    SavedSet,
    Step,
    choose_saved_set,
    kept_as_it_is,
    may_be_saved,
)
from rnnmem.passes.rematerialise.reasons import residual_decisions
from rnnmem.passes.rematerialise.requests import asked, granting, ops_kept

NOT_FOR_LESS = "nothing that is saved could be had for less"
"""Why a pair is closed whose saved blobs are all worth saving."""
NOT_ALLOWED = "rematerialise is not among the passes allowed"
"""Why blobs are saved where they may only be saved in another form."""
RACES = "two sums of its gradient add up one value, and last bits depend on which begins first"
"""Why a pair is closed whose gradient loop has such sums."""


REMATERIALISE = frozenset({"rematerialise"})
"""How a plan saves memory where nothing else is named."""


@dataclasses.dataclass(frozen=True)
class Outside:
    """What a pair's decisions depend on of the Nets around it.

    Attributes:
      available: which blobs around the forward loop the gradient can be given.
      unchanged: which handles there are of variables that nothing writes while the outermost
        forward loop runs.
      kept: blobs around the forward loop that it must go on giving, whoever saves them.
    """

    available: Callable[[str], bool]
    unchanged: Callable[[str], bool]
    kept: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Planner:
    """Decides on loop pairs at one price of time, in bytes per second.

    With ``opens`` pairs inside that are worth rewriting are rewritten, even where one that runs
    again as a whole would keep less: that holds more at once.
    """

    machine: Machine
    price: float
    clock: Clock
    techniques: frozenset[str] = REMATERIALISE
    opens: bool = False
    runs_once: frozenset[str] = frozenset()  # names of ops that do not run again
    steps: dict[tuple[str, ...], Step] = dataclasses.field(default_factory=dict)  # at any price

    def codecs(self, pair: LoopPair) -> Codecs:
        """The forms in which the pair's accumulators may keep blobs."""
        return Codecs(pair, self.machine, self.techniques - REMATERIALISE)

    def pair(self, pair: LoopPair, outside: Outside) -> LoopPlan:
        """The decisions for one pair."""
        named = _named(pair)
        if left := _why_left(pair):
            return dataclasses.replace(named, closed=left)
        if named.trips is not None and named.trips <= 1:
            return dataclasses.replace(named, closed="it runs at most one iteration")
        whole = self._with_inner(named, pair, (), outside)
        inner = self._inner(pair, outside)
        if not inner:
            return whole
        opened = self._with_inner(named, pair, inner, outside)
        return opened if self.opens else min(whole, opened, key=self._cost)

    def exact(
        self, pair: LoopPair, outside: Outside, kept: int | None, seconds: float | None
    ) -> LoopPlan | None:
        """The pair's fastest plan within bytes, or smallest within time, its inner pairs closed.

        Args:
          pair: the pair.
          outside: what is around it.
          kept: bytes per iteration; None: bound by ``seconds``.
          seconds: bound on :attr:`LoopPlan.seconds`.
        """
        if _why_left(pair) or not self.techniques >= REMATERIALISE:
            return None
        step = self.step_alone(pair, outside)
        if kept is not None:
            chosen = fastest_within(step, kept)
        else:
            chosen = smallest_within(step, seconds + _seconds_as_it_was(step))
        return None if chosen is None else self._decided(_named(pair), pair, step, chosen, ())

    def step_alone(self, pair: LoopPair, outside: Outside) -> Step:
        """The pair's step where the pairs inside it stay closed."""
        if pair.path not in self.steps:
            self.steps[pair.path] = self.step(pair, (), outside)
        return self.steps[pair.path]

    def _cost(self, plan: LoopPlan) -> tuple[bool, int, float]:
        kept, rematerialised = plan.total()
        refused = sum(bool(one.refused) for loop in plan.flat() for one in loop.requests)
        return bool(plan.closed), refused, kept + self.price * rematerialised

    def _with_inner(
        self, named: LoopPlan, pair: LoopPair, inner: tuple[_Inner, ...], outside: Outside
    ) -> LoopPlan:
        """The decisions for a pair, given those for the pairs inside it that are opened."""
        step = self.step(pair, inner, outside) if inner else self.step_alone(pair, outside)
        choose = choose_saved_set if self.techniques >= REMATERIALISE else kept_as_it_is
        chosen = choose(step, self.price)
        if chosen is None:
            return dataclasses.replace(named, closed="a blob can be neither saved nor recomputed")
        return self._decided(named, pair, step, chosen, inner)

    def _decided(
        self,
        named: LoopPlan,
        pair: LoopPair,
        step: Step,
        chosen: SavedSet,
        inner: tuple[_Inner, ...],
    ) -> LoopPlan:
        """The plan that a choice of the saved set makes."""
        dropped_lists = {blob for one in inner for blob in one.dropped_lists}
        residuals = residual_decisions(step, chosen, dropped_lists)
        if not self.techniques >= REMATERIALISE:
            residuals = tuple(
                dataclasses.replace(decision, reason=NOT_ALLOWED)
                if decision.decision == SAVED
                else decision
                for decision in residuals
            )
        live_in = {step.signs.get(blob, blob) for blob in step.live_in}
        kept = live_in | step.dead <= chosen.saved
        unchanged = kept and not chosen.recomputed and not chosen.encodings
        named = dataclasses.replace(named, requests=_requests(step, chosen))
        if not inner and unchanged:
            return dataclasses.replace(
                named, closed=NOT_FOR_LESS, residuals=residuals, bytes=_bytes_as_it_was(step)
            )
        return dataclasses.replace(
            named,
            saved=tuple(sorted(chosen.saved)),
            recomputed=chosen.recomputed,
            hoisted=tuple(sorted(chosen.hoisted)),
            live_ins=_outer_live_ins(pair, chosen, step),
            bytes=chosen.bytes,
            seconds=chosen.seconds - _seconds_as_it_was(step),
            residuals=residuals,
            inner=tuple(one.plan for one in inner),
            encodings=chosen.encodings,
        )

    def _counted(self, pair: LoopPair) -> frozenset[str]:
        """Ops of whole numbers that the gradient loop has by itself: it has no use for others."""
        if self.machine.device != ACCELERATOR:
            return frozenset()
        body, pushed = pair.forward.body, {link.pushed for g in pair.gradients for link in g.links}
        counted = {blob for blob in pushed if follows(pair.forward, blob)}
        return frozenset(body.producer[blob].name for blob in counted if blob in body.producer)

    def _inner(self, pair: LoopPair, outside: Outside) -> tuple[_Inner, ...]:
        """The pairs inside the pair that are worth opening, each with its decisions."""
        if len(pair.gradients) != 1:
            return ()
        known = Outside(
            available=_Available(pair, outside.available),
            unchanged=_unchanged_inside(pair.forward, outside.unchanged),
            kept=_read_elsewhere(pair, outside.kept),
        )
        found = (
            _Inner(inner, self.pair(inner, known)) for inner in inner_pairs(pair, pair.gradients[0])
        )
        return tuple(one for one in found if not one.plan.closed)

    def step(self, pair: LoopPair, inner: tuple[_Inner, ...], outside: Outside) -> Step:
        """What the choice of the pair's saved set depends on."""
        pushed = {link.pushed for gradient in pair.gradients for link in gradient.links}
        read = _read_in_gradients(pair)
        live_in = set(read)
        for one in inner:
            live_in -= one.dropped_lists
            live_in |= set(one.plan.live_ins)
        codecs = self.codecs(pair)
        read_inside = frozenset(blob for one in inner for blob in one.plan.live_ins)
        hoisted = invariants = frozenset()
        recomputes = self.techniques >= REMATERIALISE
        opened = [one.plan.path[-1] for one in inner]
        again = asked(pair.forward.body, RECOMPUTE, opened)
        if recomputes:
            hoisted = _loop_invariant_reads(pair.forward, outside.unchanged)
            invariants = _free_invariants(pair.forward, outside.available)
        body, signs = signs_in(
            pair, (live_in & pushed) - read_inside - hoisted - invariants - again, codecs
        )
        later = summed_later(pair.forward)
        step = Step(
            body=body,
            invariants=invariants,
            live_in=frozenset(live_in - set(signs.values()) | set(signs)),
            pushed=frozenset(pushed),
            seconds=self.clock,
            seconds_to_keep=self.machine.seconds_to_keep,
            free=_read_elsewhere(pair, outside.kept) | _held_for_sums(pair, later),
            addends=sums_of(pair.forward.body).addends | later,
            never=frozenset(opened)
            | _sums_of_arguments(pair.forward)
            | racing(pair.forward)
            | _merged_as_called(pair, pushed - read)
            | self._counted(pair)
            | (ops_kept(pair.forward.body, opened) | self.runs_once if recomputes else frozenset()),
            otherwise=self.runs_once,
            hoisted=hoisted,
            hoists=frozenset(
                op.name for op in pair.forward.body.ops if is_hoisted(pair.forward, op, hoisted)
            ),
            reading=_reading(pair.forward, outside.unchanged),
            codecs=lambda blob: codecs.of_sign(signs[blob]) if blob in signs else codecs.of(blob),
            signs=signs,
            read_inside=read_inside,
            counted=frozenset(blob for one in inner for blob in one.lists),
            dead=frozenset(pushed - read),
            kept=asked(pair.forward.body, KEEP, opened),
        )
        return granting(step, again) if recomputes else step


def _requests(step: Step, chosen: SavedSet) -> tuple[Request, ...]:
    """What the user asked of the blobs that the original saves, or this choice does."""
    made = {
        **dict.fromkeys(step.kept & chosen.saved, Request("", KEEP)),
        **dict.fromkeys(step.recomputed & step.pushed, Request("", RECOMPUTE)),
        **{
            blob: Request("", RECOMPUTE, reason)
            for blob, reason in step.refused.items()
            if blob in chosen.saved
        },
    }
    return tuple(dataclasses.replace(made[blob], blob=blob) for blob in sorted(made))


def _read_in_gradients(pair: LoopPair) -> set[str]:
    """Blobs that a gradient loop of the pair reads."""
    return {
        link.pushed
        for gradient in pair.gradients
        for link in gradient.links
        if gradient.loop.body.fan_out(link.popped)
    }


def _named(pair: LoopPair) -> LoopPlan:
    """A plan that says which pair it is for, and decides nothing."""
    return LoopPlan(
        path=pair.path,
        gradients=tuple(gradient.loop.op.name for gradient in pair.gradients),
        trips=trip_count(pair.forward),
        source=str(pair.forward.op.source),
        function=function_of(pair.forward.op.source),
    )


@dataclasses.dataclass(frozen=True)
class _Inner:
    """A loop pair inside another, and what is decided for it."""

    pair: LoopPair
    plan: LoopPlan

    @property
    def dropped_lists(self) -> set[str]:
        """Accumulators that the inner loop will no longer hand to the outer step net."""
        return {
            self.pair.forward.op.outputs[link.accumulator]
            for gradient in self.pair.gradients
            for link in gradient.links
            if link.pushed not in self.plan.saved
        }

    @property
    def lists(self) -> set[str]:
        """Accumulators that the inner loop hands out: what they hold is counted with that loop."""
        handed = self.pair.forward.op.outputs
        return {handed[one.accumulator] for back in self.pair.gradients for one in back.links}


def _bytes_as_it_was(step: Step) -> int:
    """Bytes that the original keeps per iteration."""
    return sum(step.bytes_kept(blob) for blob in step.pushed - step.free)


def _seconds_as_it_was(step: Step) -> float:
    """Estimated time per iteration that the original spends on keeping.

    A cast of a whole weight writes more than caches hold, kept or not: what it costs is its own.
    """
    made = (step.body.producer.get(blob) for blob in step.pushed - step.free)
    hoists = {op.outputs[0] for op in made if op is not None and op.name in step.hoists}
    return step.seconds_to_keep(_bytes_as_it_was(step) - sum(map(step.bytes_kept, hoists)))


def _free_invariants(forward: Loop, available) -> frozenset[str]:
    return frozenset(
        blob
        for blob, index in forward.invariants.items()
        if forward.body.blobs[blob].dtype != "resource" and available(forward.op.inputs[index])
    )


def _unchanged_inside(forward: Loop, unchanged: Callable[[str], bool]) -> Callable[[str], bool]:
    """The same of the loop's step net as ``unchanged`` is of the Net around the loop."""

    def inside(blob: str) -> bool:
        index = forward.invariants.get(through_identities(forward.body, blob))
        return index is not None and unchanged(forward.op.inputs[index])

    return inside


def _loop_invariant_reads(forward: Loop, unchanged: Callable[[str], bool]) -> frozenset[str]:
    """Blobs of the step net that read a variable which is the same in every iteration."""
    inside = _unchanged_inside(forward, unchanged)
    return frozenset(
        op.outputs[0] for op in forward.body.ops if op.type == READ and inside(op.inputs[0])
    )


def _reading(forward: Loop, unchanged: Callable[[str], bool]) -> dict[str, frozenset[str]]:
    """Ops of the step net that run again given nothing but such variables -> their handles."""
    inside = _unchanged_inside(forward, unchanged)
    reads = {
        op.name: reads_in_step(forward, op)
        for op in forward.body.ops
        if op.nets or may_take_its_table(forward, op)
    }
    return {
        name: frozenset(some) for name, some in reads.items() if some and all(map(inside, some))
    }


class _Available:
    """Whether the gradient step net of a pair can be given a blob of the forward step net."""

    def __init__(self, pair: LoopPair, outside: Callable[[str], bool]):
        pushed = {link.pushed for gradient in pair.gradients for link in gradient.links}
        self.step = Step(
            body=pair.forward.body,
            invariants=_free_invariants(pair.forward, outside),
            live_in=frozenset(),
            pushed=frozenset(pushed),
            seconds=lambda op, net: 0.0,
            addends=sums_of(pair.forward.body).addends,
        )
        self.known: dict[str, bool] = {}

    def __call__(self, blob: str) -> bool:
        if blob not in self.known:
            self.known[blob] = False
            self.known[blob] = self._find(blob)
        return self.known[blob]

    def _find(self, blob: str) -> bool:
        if blob in self.step.invariants or may_be_saved(self.step, blob):
            return True
        producer = self.step.body.producer.get(blob)
        if producer is None or facts(producer) is None or producer.type in LOOPS:
            return False
        return all(self(one) for one in producer.inputs)


def _read_elsewhere(pair: LoopPair, kept: frozenset[str]) -> frozenset[str]:
    """Blobs whose accumulator is read by more than the pair's gradient loops: they stay saved.

    Args:
      pair: the pair.
      kept: blobs around its forward loop that are read elsewhere.
    """
    net, op = pair.forward.net, pair.forward.op
    links = [(one.loop, link) for one in pair.gradients for link in one.links]
    given = [through_identities(loop.net, loop.op.inputs[link.popped_by]) for loop, link in links]
    found = set()
    nested = len(pair.path) > 1
    for (loop, link), blob in zip(links, given, strict=True):
        handed, popping = op.outputs[link.accumulator], given.count(blob)
        alone = _slots(loop.net, blob) == popping
        alone &= _slots(net, handed) == (1 if nested else popping)
        if not alone or handed in kept:
            found.add(link.pushed)
    return frozenset(found)


def _held_for_sums(pair: LoopPair, later: frozenset[str]) -> frozenset[str]:
    """Blobs that stay saved because a sum may not add them up in place at another time.

    That is so where iterations run together, and where only the accumulator of the iteration before
    holds what is a state now, or holds the last state when the loop is over.

    Args:
      pair: the pair.
      later: what a sum behind the forward loop may add up in place.
    """
    forward = pair.forward
    pushed = {push.inputs[1] for push in forward.pushes.values()}
    sums = sums_of(forward.body)
    found, held = later & pushed, {buffer_of(forward.body, blob) for blob in pushed}
    if order_shows(forward.body) or racing(forward):
        found |= sums.addends & pushed
    for argument, result in zip(forward.body.inputs, forward.body.outputs, strict=True):
        if argument in sums.addends and argument not in held:
            found |= {blob for blob in pushed if sums.share(result, blob)}
    return frozenset(found)


def _sums_of_arguments(forward: Loop) -> frozenset[str]:
    """Sums of three addends or more, one of them an argument of the step net.

    TensorFlow's graph optimizer sorts addends by name. What stands for an op's result in the
    gradient step net is named after the op, and keeps its place; an argument's name is not known,
    nor what a branch or a loop calls its inputs there.
    """
    body = forward.body
    sums = frozenset(
        op.name
        for tree in summation_trees(body)
        if any(through_identities(body, blob) in body.inputs for op in tree for blob in op.inputs)
        for op in tree
    )
    return sums | {op.name for op in body.ops if sums_what_is_given(op)}


def _merged_as_called(pair: LoopPair, dead: set[str]) -> frozenset[str]:
    """Ops that TensorFlow merges with their one reader where a caller has both halves inlined.

    It prunes the list there that the gradient is handed in vain. Where the halves run one after the
    other the list is a second reader, and a clone can be like one of the two.
    """
    if not is_joint(pair.forward.net):
        return frozenset()
    body = pair.forward.body
    made = [
        body.producer[blob] for blob in dead if blob in body.producer and body.fan_out(blob) == 2
    ]
    return frozenset(op.name for op in made if is_merged(op))


def _why_left(pair: LoopPair) -> str:
    """Why the pair is left as it is; empty where it may be rewritten."""
    return pair.closed or (RACES if any(rivals(one.loop) for one in pair.gradients) else "")


def _slots(net: Net, blob: str) -> int:
    """How many slots read the blob, itself or through Identity."""
    count = net.outputs.count(blob)
    for op in net.readers.get(blob, ()):
        count += _slots(net, op.outputs[0]) if op.type == "Identity" else 1
    return count


def _outer_live_ins(pair: LoopPair, chosen: SavedSet, step: Step) -> tuple[str, ...]:
    """Blobs around the loop that recomputation reads as invariants."""
    body = pair.forward.body
    read = {blob for name in chosen.recomputed for blob in body.op_by_name[name].inputs}
    read |= step.live_in
    indices = sorted(pair.forward.invariants[blob] for blob in read & step.invariants)
    return tuple(pair.forward.op.inputs[index] for index in indices)
