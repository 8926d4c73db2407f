"""Lowering of checkpoints: takes segments out of a Net, having proven that this changes no value.

A gradient loop with segments pops, in the iteration with ``j`` iterations left, what a branch put
into a list when it last replayed the forward iterations ``start ... end - 1``. The rename map on
the gradient loop claims which variables are ``j``, ``start``, the lists of states and those of
residuals. Nothing of it is believed; proven here, on the ops themselves, is:

    the forward loop pushes i and some of its variables x whenever i == next, next begins as 0
    the branch runs whenever j == start; both begin as the forward loop's i, which counts from 0
    the branch pops start and x, and runs j - start iterations of a step from x, pushing each v
    then one v is popped, and j falls by one

So what is popped with ``j`` left is what the step gives for iteration ``j - 1``, if the step takes
x(t) to x(t + 1) as the forward loop does. That last condition, and that v is the right value, are
left to value numbering: the Net handed out pops every x(t) itself and runs the step's ops on it
there (`rnnmem.verify.lowering.replay`).

Where not every segment's states are kept, the branch advances from what it popped first:

    start and x are popped; a loop counts i up from start and takes a step from x in each iteration
    in iterations of its choice it pushes i and x on the same lists
    the branch goes on with the last i and x in place of start and x

Whatever that choice is, the lists hold pairs of an i and the x(i) of the forward loop, if this step
takes x(t) to x(t + 1) too, which is claimed in the same way.

Where the last iterations do not run again, the lists of residuals do not begin empty:

    the forward loop pushes v whenever i >= end, and start begins as end
    the forward loop's v is the step's, which is claimed, too

So with j > end left one of these is popped, and with j = end none is left.

Where the lists are slots, states are put at places instead of being pushed, and read instead of
being popped:

    all lists begin empty; i and x are put at one place of all lists, of 0 ... length
    start and x are read at one place of all lists

So no list has a hole, all are as long, and whatever the places are, one holds an i and its x(i).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.marks import ADVANCES, AGAIN, REFILLS, SEGMENTS
from rnnmem.ir.op_table import EMPTY, LOOPS, POP, PUSH, is_pure
from rnnmem.ir.residuals import CHECKPOINTED, COUNTER, REPLAYED, START, residuals_of
from rnnmem.verify.errors import refused
from rnnmem.verify.lowering.keeping import PUT, Keeping, keeping_of
from rnnmem.verify.lowering.patterns import (
    HANDS_ON,
    Variable,
    behind,
    extends_lifetime,
    is_read,
    made_by,
    number,
    steps_by_one,
    variables,
)
from rnnmem.verify.lowering.replay import Cut, Step, flattened

_CANNOT_FAIL = ("AddV2", "Const", "Equal", "Identity", PUSH)
_READ, _LENGTH = "TensorListGetItem", "TensorListLength"
T = TypeVar("T")
_KEEPING = (
    *(*_CANNOT_FAIL, "FloorDiv", "GatherV2", "Maximum", "Minimum", "Mul", "Sub"),
    *("ArgMin", "ConcatV2", "Less", "SelectV2", "TensorListStack", PUT, _LENGTH),
)


def lower_checkpoints(net: Net) -> Net:
    """A Net of the same values whose loops have no segments; the Net itself where it has none.

    Raises:
      CheckError: a loop has a part of what segments need, and not all of it.
    """
    for op in net.ops:
        if op.type in LOOPS:
            for inner in op.nets["body"].ops:
                if inner.attributes.get(SEGMENTS) == REFILLS:
                    proof = _Proof(net, net.op_by_name[op.name], inner)
                    net = flattened(net, proof.cut(), proof.demand)
    return net


@dataclasses.dataclass(frozen=True)
class _Changed:
    """A variable of the gradient loop that the branch changes; otherwise it stays as it is.

    Attributes:
      variable: the variable.
      result: what the branch gives for it.
      handed: what ``then`` hands out for that.
    """

    variable: Variable
    result: str
    handed: str


@dataclasses.dataclass(frozen=True)
class _Taken:
    """The forward argument whose value is taken off a list; that value, and the list afterwards."""

    source: str
    value: str
    rest: str


class _Proof:
    """That one gradient loop has segments."""

    def __init__(self, net: Net, gradient: Op, refill: Op):
        self.outer = net
        self.gradient = gradient
        self.refill = refill
        self.body = gradient.nets["body"]
        self.variables = {one.argument: one for one in variables(gradient)}
        self.kept: list[Keeping] = []  # how the forward loop keeps each state
        self.end: int | None = None  # the iteration from which on nothing runs again
        self._reads: list[Op] = []  # of slots

    def demand(self, holds: object, sentence: str) -> None:
        """Refuses the Net where something does not hold."""
        if not holds:
            raise refused("segment-not-understood", sentence, self.body, (self.refill.name,))

    def there(self, found: T | None, sentence: str) -> T:
        """What was found; refuses the Net where there is nothing."""
        self.demand(found is not None, sentence)
        return cast(T, found)

    def cut(self) -> Cut:
        """What is proven to be a pair of loops with segments."""
        labels = ("then_branch", "else_branch")
        self.demand(self.refill.type == "StatelessIf", "what replays a segment is no branch")
        self.then, self.otherwise = (self.refill.nets[label] for label in labels)
        self.demand(_harmless(self.then) and _harmless(self.otherwise), "a branch has side effects")
        self._read_claims()
        self.changed = self._changed_variables()
        counters = [self._claimed(role)[0] for role in (COUNTER, START)]
        left, start = (self._variable(one.popped) for one in counters)
        self._verify_counters(left, start)
        self.forward = self._forward_loop(left)
        named = {one.blob for one in counters} == {self.index.argument}
        self.demand(named, "the counters are said to count something else")
        replay, advance = self._loops()
        states = self._states(advance)
        steps: list[Step] = []
        if advance is not None:
            steps, states = self._advanced(advance, states)
        begin = behind(self.then, self._changed_as(start.argument).handed)
        values = {one.value: one.source for one in states}
        right = values.get(begin) == self.index.argument
        self.demand(right, "a segment does not start where its state was kept")
        self._verify_replay(replay, left, begin)
        steps = [self._replayed(replay, values), *steps]
        for step in steps:
            self._verify_others(step)
        changed = frozenset(self.changed)
        return Cut(self.forward, self.gradient, self.refill, changed, tuple(steps))

    # --- what is claimed

    def _read_claims(self) -> None:
        try:
            self.claims = residuals_of(self.gradient)
        except ValueError as error:
            self.demand(False, str(error))

    def _claimed(self, role: str) -> list:
        found = [one for one in self.claims if one.becomes == role]
        self.demand(found, f"nothing is said to be {role!r}")
        return found

    def _variable(self, argument: str) -> Variable:
        self.demand(argument in self.variables, f"{argument!r} is no variable of the loop")
        return self.variables[argument]

    def _changed_as(self, argument: str) -> _Changed:
        self.demand(argument in self.changed, f"the branch does not change {argument!r}")
        return self.changed[argument]

    # --- the counters

    def _changed_variables(self) -> dict[str, _Changed]:
        """Argument of the gradient step net -> how the branch changes it."""
        found = {}
        for place, result in enumerate(self.refill.outputs):
            kept = self.otherwise.outputs[place]
            self.demand(kept in self.otherwise.inputs, "a branch not taken changes a list")
            argument = self.refill.inputs[1 + self.otherwise.inputs.index(kept)]
            variable = self._variable(argument)
            found[argument] = _Changed(variable, result, self.then.outputs[place])
        return found

    def _verify_counters(self, left: Variable, start: Variable) -> None:
        """The branch runs when ``left``, which falls by one, is ``start``, which it changes."""
        sentence = "the counters are not compared"
        equal = self.there(made_by(self.body, self.refill.inputs[0], "Equal"), sentence)
        compared = {behind(self.body, blob) for blob in equal.inputs}
        self.demand(compared == {left.argument, start.argument}, sentence)
        self.demand(steps_by_one(self.body, left, "Sub"), "no counter falls by one")
        result = self._changed_as(start.argument).result
        follows = behind(self.body, start.following) == result
        self.demand(follows, "the branch does not say where its segment starts")
        begin = behind(self.outer, start.start)
        if behind(self.outer, left.start) != begin:
            end = number(self.outer, begin)
            self.demand(isinstance(end, int), "the counters do not begin as one number")
            self.end = cast(int, end)
        self.demand(self.body.fan_out(equal.outputs[0]) == 1, "more reads where segments begin")
        cond = self.gradient.nets["cond"]
        for argument, one in self.changed.items():
            readers = {op.name for op in self.body.readers.get(argument, ())}
            self.demand(
                readers <= {self.refill.name, equal.name}
                and cond.fan_out(cond.inputs[one.variable.position]) == 0
                and not is_read(self.outer, one.variable.final),
                "what a branch changes is read by others",
            )

    def _forward_loop(self, left: Variable) -> Op:
        """The loop that counted how often it ran."""
        blob = behind(self.outer, left.start)
        op = self.there(self.outer.producer.get(blob), "no loop counted its iterations")
        self.demand(op.type in LOOPS, "no loop counted its iterations")
        self.index = variables(op)[op.outputs.index(blob)]
        counts = steps_by_one(op.nets["body"], self.index, "AddV2") and self._is_zero(self.index)
        self.demand(counts, "the forward loop's counter does not count its iterations")
        return op

    def _is_zero(self, variable: Variable) -> bool:
        """Whether a variable of the forward loop begins as 0."""
        return number(self.outer, behind(self.outer, variable.start)) == 0

    # --- the states

    def _loops(self) -> tuple[Op, Op | None]:
        """The loop that replays a segment, and the one that advances to it, if any."""
        loops = [op for op in self.then.ops if op.type in LOOPS]
        marked = {op.attributes.get(SEGMENTS): op for op in loops}
        right = len(marked) == len(loops) and {AGAIN} <= marked.keys() <= {AGAIN, ADVANCES}
        self.demand(right, "the branch does not replay a segment in one loop")
        return marked[AGAIN], marked.get(ADVANCES)

    def _states(self, advance: Op | None) -> list[_Taken]:
        """What is taken off the lists of states; i must be among it."""
        known = {one.argument: one for one in variables(self.forward)}
        taken = []
        for claim in self._claimed(CHECKPOINTED):
            sentence = f"{claim.popped!r} is not given the list {claim.pushed!r}"
            changed = self._changed_as(claim.popped)
            held = self.there(known.get(claim.pushed), sentence)
            self.demand(behind(self.outer, changed.variable.start) == held.final, sentence)
            sentence = f"{claim.pushed!r} does not keep {claim.blob!r} and nothing else"
            keeping = self.there(keeping_of(self.forward.nets["body"], held), sentence)
            alone = keeping.value == claim.blob in known and self._is_empty(held.start)
            self.demand(alone, sentence)
            self.kept.append(keeping)
            taken.append(self._taken(claim.blob, changed, advance, keeping.place is not None))
        self._verify_places(self.kept)
        self._verify_beginning(self.kept[0].branch, known)
        places = {one.inputs[1] for one in self._reads}
        self.demand(len(places) < 2, "states are read from different places")
        return taken

    def _verify_beginning(self, branch: Op, known: Mapping[str, Variable]) -> None:
        """The branch is taken in the first iteration: both of its counters begin as 0."""
        body = self.forward.nets["body"]
        equal = made_by(body, branch.inputs[0], "Equal")
        equal = self.there(equal, "states are not kept where a counter says")
        compared = [known.get(behind(body, blob)) for blob in equal.inputs]
        right = self.index in compared and all(one and self._is_zero(one) for one in compared)
        self.demand(right, "the first state is not kept")

    def _taken(self, source: str, changed: _Changed, advance: Op | None, in_slots: bool) -> _Taken:
        """What is taken off one list of states, once for each segment."""
        given, rest = self._given(changed.variable.argument), changed.handed
        if advance is not None:
            self.demand(
                rest in advance.outputs, "the advancing loop does not carry a list of states"
            )
            rest = advance.inputs[advance.outputs.index(rest)]
        if in_slots:
            reads = [op for op in self.then.readers.get(given, ()) if op.type == _READ]
            right = advance is not None and rest == given and len(reads) == 1
            self._reads += reads
            value = reads[0].outputs[0] if right else ""
        else:
            pop = made_by(self.then, rest, POP)
            readers = [op for op in self.then.readers.get(rest, ()) if op.type != _LENGTH]
            right = (
                pop is not None
                and pop.outputs[0] == rest
                and pop.inputs[0] == given
                and self.then.fan_out(given) == 1
                and len(readers) + self.then.outputs.count(rest) == 1
            )
            value = pop.outputs[1] if pop is not None else ""
        self.demand(
            right
            and self.then.fan_out(changed.handed) == 1
            and behind(self.body, changed.variable.following) == changed.result,
            "a list of states is not taken from once for each segment",
        )
        return _Taken(source, value, rest)

    def _verify_places(self, kept: Sequence[Keeping]) -> None:
        """All values are kept by one branch, pushed, or put at one place that is no hole."""
        together = {(one.branch.name, one.place) for one in kept}
        self.demand(len(together) == 1, "states are not kept together")
        ((_, place),) = together
        if place is None:
            return
        then = kept[0].then
        least = self.there(made_by(then, place, "Maximum"), "a place may be below the first")
        from_zero = number(then, behind(then, least.inputs[1])) == 0
        self.demand(from_zero, "a place may be below the first")
        most = made_by(then, least.inputs[0], "Minimum")
        length = made_by(then, most.inputs[1], _LENGTH) if most is not None else None
        right = length is not None and length.inputs[0] in {one.list for one in kept}
        self.demand(right, "a place may be behind the end")

    # --- the loops in the branch

    def _advanced(self, loop: Op, taken: Sequence[_Taken]) -> tuple[list[Step], list[_Taken]]:
        """The loop that advances to the segment, and what it makes of what was taken."""
        body, all_variables = loop.nets["body"], variables(loop)
        values = {one.value: one.source for one in taken}
        starts = {one: behind(self.then, one.start) for one in all_variables}
        standing = {
            one.argument: values[start]
            for one, start in starts.items()
            # Where the next state is kept begins as the start too.
            if start in values
            and (values[start] != self.index.argument or steps_by_one(body, one, "AddV2"))
        }
        kept = []
        for one in taken:
            held = [variable for variable in all_variables if variable.start == one.rest]
            self.demand(len(held) == 1, "the advancing loop does not carry a list of states once")
            sentence = "an advancing loop keeps another value than the list had"
            keeping = self.there(keeping_of(body, held[0]), sentence)
            types = {op.type for net in keeping.branch.nets.values() for op in net.ops}
            same = standing.get(keeping.value or "") == one.source
            self.demand(same and types <= {*_KEEPING}, sentence)
            kept.append(keeping)
        self._verify_places(kept)
        alike = (kept[0].place is None) == (self.kept[0].place is None)
        self.demand(alike, "the advancing loop keeps states otherwise than the forward loop")
        states = {
            argument: source
            for argument, source in standing.items()
            if source != self.index.argument
        }
        step = Step(loop, states, self._loop_invariant(loop), frozenset((kept[0].branch.name,)))
        ends = [
            _Taken(standing[one.argument], one.final, "")
            for one in all_variables
            if one.argument in standing
        ]
        return [step], ends

    def _verify_replay(self, loop: Op, left: Variable, begin: str) -> None:
        """The loop runs from the start of the segment to its end."""
        cond, known = loop.nets["cond"], variables(loop)
        sentence = "the loop does not count up to a number"
        less = self.there(made_by(cond, cond.outputs[0], "Less"), sentence)
        self.demand(set(less.inputs) <= set(cond.inputs), sentence)
        count, trips = (known[cond.inputs.index(blob)] for blob in less.inputs)
        body = loop.nets["body"]
        from_zero = number(self.then, behind(self.then, count.start)) == 0
        counts = steps_by_one(body, count, "AddV2") and from_zero
        self.demand(counts, "the loop does not count its iterations")
        difference = made_by(self.then, behind(self.then, trips.start), "Sub")
        self.demand(
            behind(body, trips.following) == trips.argument
            and difference is not None
            and difference.inputs[0] == self._given(left.argument)
            and behind(self.then, difference.inputs[1]) == begin,
            "the loop does not run to the end of the segment",
        )

    def _replayed(self, loop: Op, values: Mapping[str, str]) -> Step:
        """The loop that runs a segment again, and fills a list for each pop of a residual."""
        body, known = loop.nets["body"], variables(loop)
        found, pushed = {}, {}
        for claim in self._claimed(REPLAYED):
            changed = self._changed_as(claim.popped)
            argument = changed.variable.argument
            pop = self._pop_of(changed)
            self.demand(changed.handed in loop.outputs, "a list is not filled by the loop")
            filled = known[loop.outputs.index(changed.handed)]
            sentence = "a list does not get one element an iteration"
            push = self.there(made_by(body, filled.following, PUSH), sentence)
            right = (
                push.inputs[0] == filled.argument
                and body.fan_out(filled.argument) == 1
                and filled.start == self._given(argument)
                and self.body.readers.get(argument, ()) == (self.refill,)
                and push.attributes.get("element_dtype") == pop.attributes.get("element_dtype")
            )
            self.demand(right, sentence)
            found[pop.name] = push.inputs[1]
            if self.end is None:
                self.demand(self._is_empty(changed.variable.start), sentence)
            else:
                pushed[pop.name] = self._pushed_behind(self.end, changed.variable)
        starts = ((one.argument, behind(self.then, one.start)) for one in known)
        states = {argument: values[start] for argument, start in starts if start in values}
        invariant = self._loop_invariant(loop)
        return Step(loop, states, invariant, residuals=found, pushed=pushed)

    def _pushed_behind(self, end: int, variable: Variable) -> str:
        """The blob that the forward loop pushes in each iteration from ``end`` on, and no other."""
        sentence = "a list does not begin with what the last iterations push"
        start = behind(self.outer, variable.start)
        held = [one for one in variables(self.forward) if one.final == start]
        self.demand(len(held) == 1 and self._is_empty(held[0].start), sentence)
        body = self.forward.nets["body"]
        keeping = self.there(keeping_of(body, held[0]), sentence)
        self.demand(keeping.place is None and keeping.value is not None, sentence)
        equal = self.there(made_by(body, keeping.branch.inputs[0], "Equal"), sentence)
        index = self.index.argument
        reached = [blob for blob in equal.inputs if behind(body, blob) != index]
        self.demand(len(reached) == 1, sentence)
        most = self.there(made_by(body, reached[0], "Maximum"), sentence)
        compared = [behind(body, blob) for blob in most.inputs]
        numbers = [number(body, blob) for blob in compared if blob != index]
        self.demand(index in compared and numbers == [end], sentence)
        return self.there(keeping.value, sentence)

    def _pop_of(self, changed: _Changed) -> Op:
        """The pop that takes one element off a filled list in every iteration."""
        readers = self.body.readers.get(changed.result, ())
        right = len(readers) == 1 == self.body.fan_out(changed.result) and readers[0].type == POP
        self.demand(right, "a filled list is not popped")
        rest = readers[0].outputs[0]
        alone = behind(self.body, changed.variable.following) == rest
        self.demand(alone and self.body.fan_out(rest) == 1, "a filled list is popped otherwise")
        return readers[0]

    def _loop_invariant(self, loop: Op) -> dict[str, str]:
        """Argument of a loop -> the gradient loop's, for what is the same in all iterations."""
        given = dict(zip(self.then.inputs, self.refill.inputs[1:], strict=True))
        loop_invariant = {
            argument
            for argument, one in self.variables.items()
            if behind(self.body, one.following) == argument
        }
        return {
            one.argument: given[one.start]
            for one in variables(loop)
            if given.get(one.start) in loop_invariant
            and behind(loop.nets["body"], one.following) == one.argument
        }

    def _verify_others(self, step: Step) -> None:
        """What runs in a segment beside the step must not be able to fail."""
        used = {op.name for op in step.ops()} | step.keeping
        for op in step.body.ops:
            if op.name not in used:
                pushed = op.type == POP and step.body.producer.get(op.inputs[0])
                safe = pushed.type == PUSH if pushed else op.type in _CANNOT_FAIL
                safe |= extends_lifetime(self.then, step.loop, op)
                self.demand(safe, f"{op.name!r} is no part of the step")

    def _given(self, argument: str) -> str:
        """The input of ``then`` that holds an argument of the gradient step net."""
        places = [place for place, blob in enumerate(self.refill.inputs[1:]) if blob == argument]
        self.demand(len(places) == 1, f"the branch is not given {argument!r} once")
        return self.then.inputs[places[0]]

    def _is_empty(self, blob: str) -> bool:
        return made_by(self.outer, behind(self.outer, blob), EMPTY) is not None


def _harmless(net: Net) -> bool:
    """Whether nothing that the Net runs can be seen but by what it hands out."""
    return all(
        all(_harmless(inner) for inner in op.nets.values())
        if op.nets
        else op.type in HANDS_ON or is_pure(op)
        for op in net.ops
    )
