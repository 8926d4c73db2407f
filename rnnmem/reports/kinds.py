"""What each blob is to a reader of the report: saved, recomputed, a weight gradient, a result.

No name of the user's is looked at. Recomputed is what runs again in a gradient: clones, which have
a prefix of ours, and loops over the iterations of a segment. A weight gradient has the shape of a
variable, and comes from a loop that sums it or from a product or sum:

    loop variable i ─► AddV2(i, partial) ─► output i      both are weight gradients
    MatMul ─► AddN ─► Mul ─► output, or an op that writes a variable
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping

from rnnmem.analysis.loops import Loop, loop_pairs
from rnnmem.ir.graph import Net, Op, Shape
from rnnmem.ir.marks import ADVANCES, AGAIN, CHUNKS
from rnnmem.ir.marks import SEGMENTS as SEGMENTS
from rnnmem.ir.names import GRADIENT_SCOPES
from rnnmem.ir.op_table import ADDS, LOOPS, PUSH, TABLE, Work, types
from rnnmem.ir.order import through_identities, topological
from rnnmem.passes.checkpoint.decision import Segments
from rnnmem.passes.rematerialise.clone import AGAIN as CLONED
from rnnmem.passes.rematerialise.decision import RECOMPUTED as RECOMPUTED_DECISION
from rnnmem.passes.straight_line.apply import CLONE as OUTSIDE
from rnnmem.planning.outcomes import REPLAYED, Outcome, of_states, outcomes, replay
from rnnmem.planning.plan import Plan
from rnnmem.reports.data import GRADIENT, OUTPUT, RECOMPUTED, SAVED, TEMPORARY
from rnnmem.simulate.buffers import Origin

_IN_PLACE, _FILLS = types("in_place"), types("fills")
STATE = "state"
"""What saved arguments of step nets are called."""
COUNTS = "iteration counter"
"""What is called so that a loop in segments counts its iterations by."""
_OURS = "rnnmem/"

Place = tuple[str, ...]
"""Names of the loops around a step net, outermost first."""


def places(net: Net, loops: Place = ()) -> Iterator[tuple[Place, Net]]:
    """Every Net with the loops around it; the Nets of branches stand in the place of their op."""
    yield loops, net
    for op in net.ops:
        for key, inner in op.nets.items():
            if key != "cond":
                yield from places(inner, (*loops, op.name) if op.type in LOOPS else loops)


@dataclasses.dataclass
class Kinds:
    """Sorts what is alive in one variant of a function.

    Attributes:
      net: the variant, its shapes filled in.
      original: the function as it was; the variant itself where that is it.
      plan: what became of the original's blobs.
      variables: ``(dtype, shape)`` of the variables that are trained.
    """

    net: Net
    original: Net
    plan: Plan
    variables: frozenset[tuple[str, Shape]]

    def kind(self, origin: Origin) -> str:
        """One of `KINDS`."""
        if origin.saved_in:
            return SAVED
        if (origin.loops, origin.blob) in self.gradients:
            return GRADIENT
        if origin.is_result:
            return OUTPUT
        if self.runs_again(origin.loops, origin.op):
            return RECOMPUTED
        return SAVED if self._is_kept_outside(origin) else TEMPORARY

    def runs_again(self, loops: Place, op: str) -> bool:
        """Whether an op of the variant computes once more what the original computes once."""
        if op in self._known.get(loops, ()):
            return False
        if any(place in self._replaying for place in _prefixes(loops)):
            return True
        if any(map(self._is_clone, (op, *loops))):
            return True
        return op in self._rebuilt_lists or (loops, op) in self._in_later_chunks

    def replayed(self, loops: Place) -> Outcome | None:
        """What becomes of what a loop runs again for a segment, or on the way to one."""
        place = self._replay_around(loops)
        return None if place is None else self.replay_of(place[:-1])

    def replay_of(self, gradient: Place) -> Outcome:
        """What becomes of what an iteration saved, where a gradient loop runs segments again."""
        cut = self._segments.get(gradient)
        return Outcome(REPLAYED, "runs again with its segment" if cut is None else replay(cut))

    def segments_of(self, loops: Place) -> Segments | None:
        """The segments that a loop runs again, or goes on to."""
        place = self._replay_around(loops)
        return None if place is None else self._segments.get(place[:-1])

    def _replay_around(self, loops: Place) -> Place | None:
        return next((one for one in _prefixes(loops) if one in self._replaying), None)

    def loop_at(self, loops: Place) -> Op | None:
        """The innermost of the loops."""
        return self._loops.get(loops)

    def op(self, origin: Origin) -> Op | None:
        """The op that made a buffer, or that wrote what is saved of it in place."""
        if origin.saved_in in self._writers.get(origin.place, ()):
            return self._writers[origin.place][origin.saved_in]
        return self._ops.get(origin.loops, {}).get(origin.op)

    def type_of(self, origin: Origin) -> str:
        """What wrote a buffer: the type of the op, or ``state``, as `explain` calls it."""
        if self._counts(origin):
            return COUNTS
        if origin.saved_in in self._states:
            return STATE
        op = self.op(origin)
        return op.type if op else ""

    def line(self, origin: Origin) -> str:
        """The user's line of what wrote a buffer; of an op that rnnmem added, the loop's around it.

        Where it is unknown, the op's name.
        """
        op = self.op(origin)
        line = str(op.source if op else origin.source)
        if line or not is_ours(op.name if op else origin.op):
            return line or origin.op
        around = (origin.place[:depth] for depth in range(len(origin.place), 0, -1))
        return next(filter(None, (self.sources.get(one, "") for one in around)), "")

    def _counts(self, origin: Origin) -> bool:
        """Whether it is what a loop in segments counts by, which its checkpoints hold too."""
        known = self._blobs.get(origin.place, ())
        return bool(origin.saved_in) and origin.place in self._cut and origin.saved_in not in known

    def outcome(self, origin: Origin) -> Outcome | None:
        """What becomes of a blob, where it was decided on."""
        replayed = self.replayed(origin.place)
        if replayed is not None:
            return replayed
        if self._counts(origin):
            return of_states(self._cut[origin.place])
        if origin.op in self._run_again_outside and self._is_kept_outside(origin):
            return Outcome(RECOMPUTED_DECISION, "runs again near the gradient that reads it")
        return self._outcomes.get(origin.place, {}).get(origin.saved_in or origin.blob)

    def _is_kept_outside(self, origin: Origin) -> bool:
        """Whether a buffer is of the forward part, outside of loops, and the gradient reads it."""
        return not origin.loops and origin.blob in self._kept_outside

    @functools.cached_property
    def _kept_outside(self) -> frozenset[str]:
        """Blobs outside of loops that the gradient reads, or whose buffers hold such a one.

        x ─► MatMul ─► BiasAdd ─► Tanh ─► gradient        BiasAdd and Tanh take MatMul's buffer
        """
        found: set[str] = set()
        for op in reversed(topological(self.net.ops)):
            if self._is_of_gradient(op.name) or op.type in _FILLS:  # zeros that it begins with
                continue
            for blob in op.outputs:
                readers = self.net.readers.get(blob, ())
                taking = readers[0] if len(readers) == 1 and _may_take(readers[0]) else None
                handed_on = taking is not None and not found.isdisjoint(taking.outputs)
                if handed_on or any(self._is_of_gradient(one.name) for one in readers):
                    found.add(blob)
        return frozenset(found)

    def _is_of_gradient(self, name: str) -> bool:
        return name.startswith(GRADIENT_SCOPES) or self._is_clone(name)

    @functools.cached_property
    def _run_again_outside(self) -> frozenset[str]:
        regions = self.plan.at_every_depth("straight_line")
        return frozenset(name for region in regions for name in region.ops)

    @functools.cached_property
    def _replaying(self) -> frozenset[Place]:
        """Loops that run the iterations of a segment again, or those on the way to it."""
        return frozenset(
            loops
            for loops, op in self._loops.items()
            if op.attributes.get(SEGMENTS) in (AGAIN, ADVANCES)
        )

    def _is_clone(self, name: str) -> bool:
        return any(name.startswith(one) or f"/{one}" in name for one in (CLONED, OUTSIDE))

    @functools.cached_property
    def _rebuilt_lists(self) -> frozenset[str]:
        """Ops that make for a gradient loop what is not kept for it."""
        plans = [self.plan, *(one.plan for one in self.plan.nested)]
        starts = tuple(
            f"{g}/rnnmem/" for p in plans for one in p.rebuilt_lists for g in one.gradients
        )
        found = (op.name for _, net in places(self.net) for op in net.ops)
        return frozenset(name for name in found if starts and name.startswith(starts))

    @functools.cached_property
    def _in_later_chunks(self) -> frozenset[tuple[Place, str]]:
        """Ops that a loop over chunks of rows runs once more than an earlier one."""
        found: set[tuple[Place, str]] = set()
        seen: set[str] = set()
        for loops, net in places(self.net):
            for loop in (op for op in net.ops if CHUNKS in op.attributes):
                names = {op.name for op in loop.nets["body"].ops}
                found.update(((*loops, loop.name), name) for name in names & seen)
                seen |= names
        return frozenset(found)

    @functools.cached_property
    def _segments(self) -> Mapping[Place, Segments]:
        """Gradient loops of which a segment runs again -> the segments."""
        return {
            (*loop.path[:-1], name): loop.segments
            for loop in self.plan.every_loop()
            if loop.segments is not None and not loop.closed
            for name in loop.gradients
        }

    @functools.cached_property
    def _cut(self) -> Mapping[Place, Segments]:
        """Forward loops that keep checkpoints -> their segments."""
        loops = (loop for loop in self.plan.every_loop() if not loop.closed)
        return {loop.path: loop.segments for loop in loops if loop.segments is not None}

    @functools.cached_property
    def sources(self) -> Mapping[Place, str]:
        """Loops -> the user's line of the innermost one."""
        return {loops: str(op.source) for loops, op in self._loops.items()}

    @functools.cached_property
    def _loops(self) -> Mapping[Place, Op]:
        return {
            (*loops, op.name): op
            for loops, net in places(self.net)
            for op in net.ops
            if op.type in LOOPS
        }

    def is_of_gradient(self, origin: Origin) -> bool:
        """Whether a buffer comes of the gradient, outside of loops or in a gradient loop."""
        if origin.loops:
            return not self.gradient_loops.isdisjoint(origin.loops)
        return origin.op.startswith(GRADIENT_SCOPES)

    @functools.cached_property
    def gradient_loops(self) -> frozenset[str]:
        """Names of the loops that are gradients of others; those inside of them may be left out."""
        pairs = (pair for _, net in places(self.net) for pair in loop_pairs(net, net, {}, ()))
        planned = (name for loop in self.plan.every_loop() for name in loop.gradients)
        return frozenset([*planned, *(one.loop.op.name for two in pairs for one in two.gradients)])

    @functools.cached_property
    def gradients(self) -> frozenset[tuple[Place, str]]:
        """Blobs that are gradients of weights, or partial sums of one."""
        found = set(_flowing_out(self.net, self.variables))
        for loops, net in places(self.net):
            for loop in (Loop(net, op) for op in net.ops if op.type in LOOPS):
                inside = (*loops, loop.op.name)
                found.update((inside, blob) for blob in _summed(loop, self.variables))
        return frozenset(found)

    @functools.cached_property
    def _known(self) -> Mapping[Place, frozenset[str]]:
        found: dict[Place, set[str]] = {}
        for loops, net in places(self.original):
            found.setdefault(loops, set()).update(op.name for op in net.ops)
        return {loops: frozenset(names) for loops, names in found.items()}

    @functools.cached_property
    def _blobs(self) -> Mapping[Place, frozenset[str]]:
        """Loops -> the blobs that their step nets had before."""
        found: dict[Place, frozenset[str]] = {}
        for loops, net in places(self.original):
            found[loops] = found.get(loops, frozenset()) | net.blobs.keys()
        return found

    @functools.cached_property
    def _ops(self) -> Mapping[Place, Mapping[str, Op]]:
        found: dict[Place, dict[str, Op]] = {}
        for loops, net in places(self.net):
            found.setdefault(loops, {}).update(net.op_by_name)
        return found

    @functools.cached_property
    def _states(self) -> frozenset[str]:
        """What step nets are given."""
        return frozenset(blob for loops, net in places(self.net) if loops for blob in net.inputs)

    @functools.cached_property
    def _writers(self) -> Mapping[Place, Mapping[str, Op]]:
        """Loops -> the blobs that their step nets push -> the ops that write those.

        A state is written by the iteration before.
        """
        found: dict[Place, dict[str, Op]] = {}
        for loops, net in places(self.net):
            following = dict(zip(net.inputs, net.outputs, strict=False)) if loops else {}
            for op in (op for op in net.ops if op.type == PUSH):
                blob = op.inputs[1]
                written = through_identities(net, following.get(blob, blob))
                if written in net.producer:
                    found.setdefault(loops, {})[blob] = net.producer[written]
        return found

    @functools.cached_property
    def _outcomes(self) -> Mapping[Place, Mapping[str, Outcome]]:
        return outcomes(self.plan)


def is_ours(name: str) -> bool:
    """Whether rnnmem added the op of that name."""
    return name.startswith(_OURS) or f"/{_OURS}" in name


def _may_take(op: Op) -> bool:
    """Whether the result of an op may be in the buffer of what it reads."""
    facts = TABLE.get(op.type)
    known = facts is not None and (facts.view or facts.work is Work.POINTWISE)
    return known or op.type in _IN_PLACE


def _prefixes(loops: Place) -> Iterator[Place]:
    return (loops[:depth] for depth in range(1, len(loops) + 1))


def _is_weight_like(net: Net, blob: str, variables: frozenset[tuple[str, Shape]]) -> bool:
    known = net.blobs.get(blob)
    return known is not None and (known.dtype, known.shape) in variables


def _summed(loop: Loop, variables: frozenset[tuple[str, Shape]]) -> Iterator[str]:
    """Blobs of a body that are added up over the iterations and have a variable's shape."""
    body = loop.body
    for given, result in zip(body.inputs, body.outputs, strict=False):
        blob = through_identities(body, result)
        op = body.producer.get(blob)
        if op is None or op.type not in ADDS or not _is_weight_like(body, blob, variables):
            continue
        addends = [through_identities(body, one) for one in op.inputs]
        if given in addends:
            yield from (blob, *addends)


def _flowing_out(net: Net, variables: frozenset[tuple[str, Shape]]) -> Iterator[tuple[Place, str]]:
    """Blobs outside loops that flow, in a variable's shape, to a result or an op with effects."""
    wanted = [(blob, True) for blob in net.outputs]
    wanted += [(blob, False) for op in net.ops if op.stateful for blob in op.inputs]
    seen: set[str] = set()
    while wanted:
        blob, returned = wanted.pop()
        op = net.producer.get(blob)
        if blob in seen or op is None or not _is_weight_like(net, blob, variables):
            continue
        seen.add(blob)
        facts = TABLE.get(op.type)
        passes = facts is not None and (facts.view or facts.work in (Work.POINTWISE, Work.NONE))
        if not passes and not op.stateful or op.type in ADDS or returned:
            yield (), blob
        if passes or op.type in ADDS:
            wanted += [(one, returned) for one in op.inputs]
