"""Undoes segments before a Net is judged, having proven that undoing them changes no value.

A gradient loop with segments pops, in the iteration with ``j`` iterations left, what a branch put
into a list when it last ran the forward iterations ``start ... end - 1`` again. Proven here, on the
ops themselves:

    the forward loop pushes i and some of its variables x whenever i == next, next begins as 0
    the branch runs whenever j == start; both begin as the forward loop's i, which counts from 0
    the branch pops start and x, and runs j - start iterations of a step from x, pushing each v
    then one v is popped, and j falls by one

So what is popped with ``j`` left is what the step gives for iteration ``j - 1``, if the step takes
x(t) to x(t + 1) as the forward loop does. That last condition, and that v is the right value, are
left to the judge: the Net handed out pops every x(t) itself and runs the step's ops on it there,
and a `SAME` op claims that what it gives for x(t + 1) is what the forward loop has.

Where not every segment's states are kept, the branch goes on from what it popped first:

    start and x are popped; a loop counts i up from start and takes a step from x in each iteration
    in iterations of its choice it pushes i and x on the same lists
    the branch goes on with the last i and x in place of start and x

Whatever that choice is, the lists hold pairs of an i and the x(i) of the forward loop, if this step
takes x(t) to x(t + 1) too, which is claimed in the same way.

Where the lists are slots, states are put at places instead of being pushed, and read instead of
being popped:

    all lists begin empty; i and x are put at one place of all lists, of 0 ... length
    start and x are read at one place of all lists

So no list has a hole, all are as long, and whatever the places are, one holds an i and its x(i).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from rnnmem.ir.graph import Blob, Constant, DType, Net, Op
from rnnmem.ir.marks import REFILLS, SEGMENTS
from rnnmem.ir.op_table import is_pure
from rnnmem.verify.errors import refused

SAME = "rnnmem.Same"
"""An op type of this judge alone: its two inputs must always hold the same value."""

_LOOPS = ("While", "StatelessWhile")
_PASSES = ("Identity", "EnsureShape", "PlaceholderWithDefault")
_CANNOT_FAIL = ("AddV2", "Const", "Equal", "Identity", "TensorListPushBack")
_PUSH, _POP, _EMPTY = "TensorListPushBack", "TensorListPopBack", "EmptyTensorList"
_PUT, _READ, _LENGTH = "TensorListSetItem", "TensorListGetItem", "TensorListLength"
_KEEPING = (
    *(*_CANNOT_FAIL, "FloorDiv", "GatherV2", "Maximum", "Minimum", "Mul", "Sub"),
    *("ArgMin", "ConcatV2", "Less", "SelectV2", "TensorListStack", _PUT, _LENGTH),
)


def without_segments(net: Net) -> Net:
    """A Net of the same values whose loops have no segments; the Net itself where it has none.

    Raises:
      CheckError: a loop has a part of what segments need, and not all of it.
    """
    for op in net.ops:
        if op.type in _LOOPS:
            for inner in op.nets["body"].ops:
                if _is_refill(inner):
                    net = _Undone(net, net.op_by_name[op.name], inner).net()
    return net


def _is_refill(op: Op) -> bool:
    """Whether the op is a branch that runs a loop into lists: what only segments do."""
    return op.attributes.get(SEGMENTS) == REFILLS


@dataclasses.dataclass(frozen=True)
class _Variable:
    """A loop variable: its position, and its blobs around and inside the loop."""

    position: int
    start: str
    argument: str
    following: str
    final: str


class _Undone:
    """One gradient loop whose segments are undone."""

    def __init__(self, net: Net, gradient: Op, refill: Op):
        self.outer = net
        self.gradient = gradient
        self.refill = refill
        self.body = gradient.nets["body"]
        self.then = refill.nets["then_branch"]
        self.otherwise = refill.nets["else_branch"]
        self.stem = f"{gradient.name}/{refill.name}"  # of what is added; no two may agree
        self.variables = {one.argument: one for one in _variables(gradient, net)}
        self.keeper: str | None = None  # the branch of the forward loop that keeps states
        self.way: Op | None = None  # the loop that goes on to the segment
        self.on_the_way: dict[str, str] = {}  # its state argument -> the forward argument
        self.keeping: set[str] = set()  # branches in it that keep states
        self.place: str | None = None  # at which all lists of slots are read

    def _demand(self, holds: object, sentence: str) -> None:
        if not holds:
            raise refused("segment-not-understood", sentence, self.body, (self.refill.name,))

    def net(self) -> Net:
        """The Net without the segments."""
        for branch in self.refill.nets.values():
            self._demand(_harmless(branch), "a branch has side effects")
        self.changed = self._changed_variables()
        left, start = self._counters()
        self.forward = self._forward_loop(left)
        steps = self._checkpoints(start)
        rerun, states, lists = self._rerun(left, start, steps)
        return self._flat(rerun, states, lists)

    # --- what is there

    def _changed_variables(self) -> dict[str, tuple[_Variable, str]]:
        """Result of the branch -> the variable that it stands for, and what ``then`` hands out.

        Where the branch is not taken each is the variable's own argument.
        """
        found = {}
        for place, result in enumerate(self.refill.outputs):
            kept = self.otherwise.outputs[place]
            self._demand(kept in self.otherwise.inputs, "a branch not taken changes a list")
            argument = self.refill.inputs[1 + self.otherwise.inputs.index(kept)]
            self._demand(argument in self.variables, "a branch changes what no loop carries")
            found[result] = self.variables[argument], self.then.outputs[place]
        return found

    def _judge_readers(self, equal: Op) -> None:
        """What the branch changes is read by the branch and by nobody else, inside and outside."""
        for variable, _ in self.changed.values():
            readers = {op.name for op in self.body.readers.get(variable.argument, ())}
            self._demand(
                readers <= {self.refill.name, equal.name}
                and self.gradient.nets["cond"].fan_out(
                    self.gradient.nets["cond"].inputs[variable.position]
                )
                == 0
                and not _is_read(self.outer, variable.final),
                "what a branch changes is read by others",
            )
        self._demand(self.body.fan_out(equal.outputs[0]) == 1, "more hangs on where segments begin")

    def _counters(self) -> tuple[_Variable, _Variable]:
        """The variables ``j`` and ``start``."""
        equal = self.body.producer.get(self.refill.inputs[0])
        self._demand(equal is not None and equal.type == "Equal", "no two counters are compared")
        named = [self.variables.get(_behind(self.body, blob)) for blob in equal.inputs]
        self._demand(None not in named, "what is compared are no loop variables")
        left, start = named
        if not _steps_by(self.body, left, "Sub"):
            left, start = start, left
        self._demand(_steps_by(self.body, left, "Sub"), "no counter falls by one")
        self._demand(
            self.changed.get(_behind(self.body, start.following), (None,))[0] == start,
            "the branch does not say where its segment starts",
        )
        self._judge_readers(equal)
        same = _behind(self.outer, left.start) == _behind(self.outer, start.start)
        self._demand(same, "the counters do not begin as one number")
        return left, start

    def _forward_loop(self, left: _Variable) -> Op:
        """The loop that counted how often it ran."""
        blob = _behind(self.outer, left.start)
        op = self.outer.producer.get(blob)
        self._demand(op is not None and op.type in _LOOPS, "no loop counted its iterations")
        self.index = _variables(op, self.outer)[op.outputs.index(blob)]
        body = op.nets["body"]
        counts = _steps_by(body, self.index, "AddV2") and _is_number(
            self.outer, self.index.start, 0
        )
        self._demand(counts, "the forward loop's counter does not count its iterations")
        return op

    def _checkpoints(self, start: _Variable) -> dict[str, str]:
        """Blob of ``then`` -> the forward argument whose value at the start of the segment it is.

        The start itself must be among them.
        """
        self._find_loops()
        pushed = self._pushed_states()
        found: dict[str, str] = {}
        lists: dict[str, str] = {}  # popped blob -> the list without it
        in_slots = any(one.place is not None for one in self.kept)
        for result, (variable, handed) in self.changed.items():
            source = _behind(self.outer, variable.start)
            if source not in pushed:
                continue
            taken = self._read if in_slots else self._popped
            value, lists_left = taken(variable, handed)
            right = (
                value is not None
                and self.then.fan_out(handed) == 1
                and _behind(self.body, variable.following) == result
            )
            self._demand(right, "a list of states is not taken from once for each segment")
            found[value] = pushed[source]
            lists[value] = lists_left
        if self.way is not None:
            found = self._gone_on(self.way, found, lists)
        handed = next(handed for variable, handed in self.changed.values() if variable == start)
        starts = found.get(_behind(self.then, handed)) == self.index.argument
        self._demand(starts, "a segment does not start where its state was kept")
        self.start_there = _behind(self.then, handed)
        return found

    def _popped(self, variable: _Variable, handed: str) -> tuple[str | None, str]:
        """What is popped off a list of states, if that is all, and the list without it."""
        shorter = handed if self.way is None else self._start_of(handed)
        pop = self.then.producer.get(shorter)
        given = self._given(variable.argument)
        right = (
            pop is not None
            and pop.type == _POP
            and pop.outputs[0] == shorter
            and pop.inputs[0] == given
            and self.then.fan_out(given) == 1
            and self._is_handed_on(shorter)
        )
        return (pop.outputs[1] if right else None), shorter

    def _read(self, variable: _Variable, handed: str) -> tuple[str | None, str]:
        """What is read of a list of slots, at the place of all, and the list."""
        given = self._given(variable.argument)
        reads = [op for op in self.then.readers.get(given, ()) if op.type == _READ]
        right = (
            self.way is not None
            and self._start_of(handed) == given
            and len(reads) == 1
            and self.place in (None, reads[0].inputs[1])
        )
        if right:
            self.place = reads[0].inputs[1]
        return (reads[0].outputs[0] if right else None), given

    def _find_loops(self) -> None:
        """The loop that runs a segment again, and the one that goes on to it, if any."""
        loops = [op for op in self.then.ops if op.type in _LOOPS]
        self._demand(0 < len(loops) < 3, "the branch does not run one loop, or two")
        self.rerun = loops[0]
        if len(loops) == 2:
            first, second = loops
            read = {_behind(self.then, blob) for blob in first.inputs}
            self.way, self.rerun = (
                (first, second) if read.isdisjoint(second.outputs) else (second, first)
            )

    def _start_of(self, handed: str) -> str:
        """What the variable begins as whose last value of the way is handed out."""
        self._demand(handed in self.way.outputs, "a list of states does not go the way")
        return self.way.inputs[self.way.outputs.index(handed)]

    def _is_handed_on(self, shorter: str) -> bool:
        """Whether a list is read once; its length may be asked for."""
        readers = [op for op in self.then.readers.get(shorter, ()) if op.type != "TensorListLength"]
        return len(readers) + self.then.outputs.count(shorter) == 1

    def _gone_on(
        self, way: Op, popped: Mapping[str, str], lists: Mapping[str, str]
    ) -> dict[str, str]:
        """What the way makes of the blobs that were popped -> the forward arguments."""
        body = way.nets["body"]
        variables = _variables(way, self.then)
        standing = {
            one.argument: popped[_behind(self.then, one.start)]
            for one in variables
            if _behind(self.then, one.start) in popped
        }
        counts = [one for one in variables if standing.get(one.argument) == self.index.argument]
        counting = [one for one in counts if _steps_by(body, one, "AddV2")]
        # Another may begin as the start too: where the next state is kept.
        self._demand(len(counting) == 1, "no counter goes the way")
        for other in counts:
            if other is not counting[0]:
                del standing[other.argument]
        kept = []
        for blob, shorter in lists.items():
            held = [one for one in variables if one.start == shorter]
            self._demand(len(held) == 1, "a list of states does not go the way once")
            kept.append(self._keeps_on_the_way(body, held[0], standing, popped[blob]))
        self._demand(len(self.keeping) == 1, "the lists on the way are not kept together")
        self._judge_places(kept)
        in_slots = {one.place is None for one in (*kept, *self.kept)}
        self._demand(len(in_slots) == 1, "the way keeps states otherwise than the loop")
        self.on_the_way = {
            argument: source
            for argument, source in standing.items()
            if argument != counting[0].argument
        }
        return {one.final: standing[one.argument] for one in variables if one.argument in standing}

    def _keeps_on_the_way(
        self, body: Net, held: _Variable, standing: Mapping[str, str], source: str
    ) -> _Keeping:
        """How a branch keeps what stands for a forward argument on its list, or does nothing."""
        following = _behind(body, held.following)
        branch = body.producer.get(following)
        self._demand(
            branch is not None and branch.type == "StatelessIf", "a list on the way is not kept"
        )
        keeping = _keeping_of(branch, held.argument, following)
        right = (
            keeping is not None
            and standing.get(keeping.value) == source
            and all(op.type in _KEEPING for net in branch.nets.values() for op in net.ops)
        )
        self._demand(right, "a list on the way gets another value than it had")
        self.keeping.add(branch.name)
        return keeping

    def _pushed_states(self) -> dict[str, str]:
        """Outer blob of a list -> the forward argument whose values it holds, one a segment."""
        body = self.forward.nets["body"]
        variables = _variables(self.forward, self.outer)
        by_argument = {one.argument: one for one in variables}
        found = {}
        self.kept: list[_Keeping] = []
        for variable in variables:
            branch = body.producer.get(_behind(body, variable.following))
            if branch is None or branch.type != "StatelessIf":
                continue
            keeping = _keeping_of(branch, variable.argument, _behind(body, variable.following))
            if (
                keeping is not None
                and keeping.value in by_argument
                and self._is_empty(variable.start)
                and self._begins_a_segment(body, branch, by_argument)
            ):
                found[variable.final] = keeping.value
                self.kept.append(keeping)
        self._judge_places(self.kept)
        return found

    def _judge_places(self, kept: Sequence[_Keeping]) -> None:
        """All values that one branch keeps are pushed, or put at one place that is no hole."""
        places = {one.place for one in kept}
        self._demand(len(places) < 2, "states are not kept together")
        for place in places - {None}:
            then = kept[0].then
            least = then.producer.get(place)
            self._demand(
                least is not None
                and least.type == "Maximum"
                and _is_number(then, least.inputs[1], 0),
                "a place may be below the first",
            )
            most = then.producer.get(least.inputs[0])
            self._demand(
                most is not None and most.type == "Minimum", "a place may be behind the end"
            )
            length = then.producer.get(most.inputs[1])
            self._demand(
                length is not None
                and length.type == _LENGTH
                and length.inputs[0] in {one.list for one in kept},
                "a place may be behind the end",
            )

    def _begins_a_segment(self, body: Net, branch: Op, variables: Mapping[str, _Variable]) -> bool:
        """Whether the branch is taken in the first iteration: both counters begin as 0.

        All lists must be pushed by one branch, so that they hold the same iterations.
        """
        equal = body.producer.get(branch.inputs[0])
        if equal is None or equal.type != "Equal":
            return False
        if self.keeper not in (None, branch.name):
            return False
        self.keeper = branch.name
        compared = [variables.get(_behind(body, blob)) for blob in equal.inputs]
        return self.index in compared and all(
            one is not None and _is_number(self.outer, one.start, 0) for one in compared
        )

    def _rerun(
        self, left: _Variable, start: _Variable, checkpoints: Mapping[str, str]
    ) -> tuple[Op, dict[str, str], dict[str, str]]:
        """The loop in the branch that runs a segment again.

        Returns:
          The loop; its state argument -> the forward argument; pop in the gradient step net -> the
          blob of the loop's body that it gives.
        """
        rerun = self.rerun
        variables = _variables(rerun, self.then)
        by_argument = {one.argument: one for one in variables}
        body, cond = rerun.nets["body"], rerun.nets["cond"]
        less = cond.producer.get(cond.outputs[0])
        self._demand(less is not None and less.type == "Less", "the loop does not count up")
        places = [cond.inputs.index(blob) for blob in less.inputs if blob in cond.inputs]
        self._demand(len(places) == 2, "the loop does not count up to a number")
        count, trips = (variables[place] for place in places)
        self._demand(
            _steps_by(body, count, "AddV2") and _is_number(self.then, count.start, 0),
            "the loop does not count its iterations",
        )
        difference = self.then.producer.get(_behind(self.then, trips.start))
        self._demand(
            _behind(body, trips.following) == trips.argument
            and difference is not None
            and difference.type == "Sub"
            and difference.inputs[0] == self._given(left.argument)
            and _behind(self.then, difference.inputs[1]) == self.start_there,
            "the loop does not run to the end of the segment",
        )
        states = {
            one.argument: checkpoints[_behind(self.then, one.start)]
            for one in variables
            if _behind(self.then, one.start) in checkpoints
        }
        return rerun, states, self._filled(rerun, by_argument)

    def _filled(self, rerun: Op, variables: Mapping[str, _Variable]) -> dict[str, str]:
        """Pop in the gradient step net -> the blob that the rerun pushes for it."""
        body = rerun.nets["body"]
        found = {}
        for result, (variable, handed) in self.changed.items():
            pop = self._pop_of(result, variable)
            if pop is None:
                continue
            source = self.then.producer.get(handed)
            self._demand(source is rerun, "a list is not filled by the loop")
            filled = list(variables.values())[rerun.outputs.index(handed)]
            push = body.producer.get(filled.following)
            right = (
                push is not None
                and push.type == _PUSH
                and push.inputs[0] == filled.argument
                and body.fan_out(filled.argument) == 1
                and filled.start == self._given(variable.argument)
                and self.body.readers.get(variable.argument, ()) == (self.refill,)
                and self._is_empty(variable.start)
                and push.attributes.get("element_dtype") == pop.attributes.get("element_dtype")
            )
            self._demand(right, "a list does not get one element an iteration")
            found[pop.name] = push.inputs[1]
        return found

    def _pop_of(self, result: str, variable: _Variable) -> Op | None:
        """The pop that takes one element off a filled list in every iteration."""
        readers = self.body.readers.get(result, ())
        if len(readers) != 1 or readers[0].type != _POP or self.body.fan_out(result) != 1:
            return None
        (pop,) = readers
        alone = _behind(self.body, variable.following) == pop.outputs[0]
        return pop if alone and self.body.fan_out(pop.outputs[0]) == 1 else None

    def _given(self, argument: str) -> str:
        """The input of ``then`` that holds an argument of the gradient step net."""
        places = [place for place, blob in enumerate(self.refill.inputs[1:]) if blob == argument]
        self._demand(len(places) == 1, f"the branch is not given {argument!r} once")
        return self.then.inputs[places[0]]

    def _is_empty(self, blob: str) -> bool:
        op = self.outer.producer.get(_behind(self.outer, blob))
        return op is not None and op.type == _EMPTY

    # --- what stands for it

    def _flat(self, rerun: Op, states: Mapping[str, str], lists: Mapping[str, str]) -> Net:
        forward_body = self.forward.nets["body"]
        following = dict(zip(forward_body.inputs, forward_body.outputs, strict=True))
        sources = (*states.values(), *self.on_the_way.values())
        wanted = dict.fromkeys(
            blob for argument in sources for blob in (argument, following[argument])
        )
        forward, finals, starts = _pushing(self.forward, list(wanted), self.stem)
        gradient, popped = _popping(
            self.gradient,
            {blob: (finals[blob], forward_body.blobs[blob]) for blob in wanted},
            self.stem,
        )
        body = gradient.nets["body"]
        after = {argument: popped[following[source]] for argument, source in states.items()}
        names = {argument: popped[source] for argument, source in states.items()}
        ops, blobs, claims = self._claimed(rerun, self.stem, names, after, lists.values())
        given = {self.body.op_by_name[pop].outputs[1]: names[blob] for pop, blob in lists.items()}
        if self.way is not None:
            before = {argument: popped[source] for argument, source in self.on_the_way.items()}
            after = {
                argument: popped[following[source]] for argument, source in self.on_the_way.items()
            }
            more = self._claimed(self.way, f"{self.stem}/way", before, after, ())
            ops, blobs, claims = ops + more[0], {**blobs, **more[1]}, claims + more[2]
        gone = {self.refill.name, *lists}
        lost = {blob for name in gone for blob in body.op_by_name[name].outputs} - set(given)
        kept = [
            op.replace(inputs=tuple(given.get(blob, blob) for blob in op.inputs))
            for op in body.ops
            if op.name not in gone and not _hands_on_alone(body, op, lost)
        ]
        read = {blob for op in kept for blob in op.inputs}
        self._demand(read.isdisjoint(lost), "what a branch changes is read otherwise")
        changed = {variable.argument for variable, _ in self.changed.values()}
        outputs = tuple(
            argument if argument in changed else given.get(result, result)
            for argument, result in zip(body.inputs, body.outputs, strict=True)
        )
        handed = {_behind(body, blob) for blob in outputs}
        self._demand(handed.isdisjoint(lost), "what a branch changes goes to another variable")
        flat = body.replace(
            ops=(*kept, *ops, *claims), outputs=outputs, blobs={**body.blobs, **blobs}
        )
        gradient = gradient.replace(nets={**gradient.nets, "body": flat})
        made = {
            self.forward.name: forward,
            self.gradient.name: gradient,
        }
        return self.outer.replace(
            ops=(*starts, *(made.get(op.name, op) for op in self.outer.ops)),
            blobs={
                **self.outer.blobs,
                **{
                    blob: Blob(blob, "variant", ())
                    for op in (*starts, forward, gradient)
                    for blob in op.outputs
                    if blob not in self.outer.blobs
                },
            },
        )

    def _claimed(
        self,
        loop: Op,
        stem: str,
        names: dict[str, str],
        after: Mapping[str, str],
        roots: Iterable[str],
    ) -> tuple[list[Op], dict[str, Blob], list[Op]]:
        """The ops of a loop's step over what is popped, and claims on what they make of states.

        Args:
          loop: the loop in the branch.
          stem: of the names of what is added.
          names: its arguments -> what is popped for them; what is added joins it.
          after: its state arguments -> what is popped for the iteration that follows.
          roots: blobs of its body that are wanted besides.
        """
        step = loop.nets["body"]
        names.update(self._steady(loop))
        ops, blobs = self._cloned(step, names, [*roots, *self._following(step, after)], stem)
        cloned = {op.name for op in ops}
        self._judge_others(step, [op for op in step.ops if f"{stem}/{op.name}" not in cloned])
        claims = [
            Op(
                name=f"{stem}/same/{argument}",
                type=SAME,
                inputs=(names[step.outputs[step.inputs.index(argument)]], following),
            )
            for argument, following in after.items()
        ]
        return ops, blobs, claims

    def _judge_others(self, step: Net, ops: Iterable[Op]) -> None:
        """What runs in a segment beside the step must not be able to fail."""
        for op in ops:
            pushed = op.type == _POP and step.producer.get(op.inputs[0])
            safe = pushed.type == _PUSH if pushed else op.type in _CANNOT_FAIL
            safe = safe or op.name in self.keeping
            self._demand(safe, f"{op.name!r} is no part of the step")

    def _steady(self, rerun: Op) -> dict[str, str]:
        """Argument of the rerun -> the gradient loop's, for what is the same in all iterations."""
        steady = {
            one.argument
            for one in self.variables.values()
            if _behind(self.body, one.following) == one.argument
        }
        given = dict(zip(self.then.inputs, self.refill.inputs[1:], strict=True))
        return {
            one.argument: given[one.start]
            for one in _variables(rerun, self.then)
            if given.get(one.start) in steady
            and _behind(rerun.nets["body"], one.following) == one.argument
        }

    def _following(self, step: Net, states: Iterable[str]) -> list[str]:
        return [step.outputs[step.inputs.index(argument)] for argument in states]

    def _cloned(
        self, step: Net, names: dict[str, str], roots: Sequence[str], stem: str
    ) -> tuple[list[Op], dict[str, Blob]]:
        """The ops of the step that the roots need, over the blobs that ``names`` gives them."""
        needed: set[str] = set()
        pending = list(roots)
        while pending:
            op = step.producer.get(pending.pop())
            if op is not None and op.name not in needed:
                needed.add(op.name)
                pending += op.inputs
        ops, blobs = [], {}
        chosen = [op for op in step.ops if op.name in needed]
        for op in chosen:
            for blob in op.outputs:
                names[blob] = f"{stem}/{blob}"
                kind = step.blobs[blob]
                blobs[names[blob]] = Blob(names[blob], kind.dtype, kind.shape)
        for op in chosen:
            unknown = [blob for blob in op.inputs if blob not in names]
            self._demand(not unknown, f"{op.name!r} reads what is not known")
            ops.append(
                op.replace(
                    name=f"{stem}/{op.name}",
                    inputs=tuple(names[blob] for blob in op.inputs),
                    outputs=tuple(names[blob] for blob in op.outputs),
                    controls=(),
                )
            )
        self._demand(all(blob in names for blob in roots), "a state comes from nowhere")
        return ops, blobs


@dataclasses.dataclass(frozen=True)
class _Keeping:
    """What a branch does to a list of states where it is taken.

    Attributes:
      then: the branch.
      list: its input that is the list.
      value: the blob around the branch that is kept, if it is one.
      place: the blob of the branch that says where it is put; None where it is pushed.
    """

    then: Net
    list: str
    value: str | None
    place: str | None


def _keeping_of(branch: Op, argument: str, result: str) -> _Keeping | None:
    """What a branch does to a list, which is as it was where it is not taken; None if all else."""
    position = branch.outputs.index(result)
    then, otherwise = branch.nets["then_branch"], branch.nets["else_branch"]
    op, kept = then.producer.get(then.outputs[position]), otherwise.outputs[position]
    if op is None or op.type not in (_PUSH, _PUT) or kept not in otherwise.inputs:
        return None
    given = dict(zip(then.inputs, branch.inputs[1:], strict=True))
    unchanged = branch.inputs[1 + otherwise.inputs.index(kept)]
    if unchanged != argument or given.get(op.inputs[0]) != argument:
        return None
    place = op.inputs[1] if op.type == _PUT else None
    return _Keeping(then, op.inputs[0], given.get(op.inputs[-1]), place)


def _harmless(net: Net) -> bool:
    """Whether nothing that the Net runs can be seen but by what it hands out."""
    return all(
        all(_harmless(inner) for inner in op.nets.values())
        if op.nets
        else op.type in _PASSES or is_pure(op)
        for op in net.ops
    )


def _variables(loop: Op, net: Net) -> list[_Variable]:
    body = loop.nets["body"]
    return [
        _Variable(position, loop.inputs[position], argument, result, loop.outputs[position])
        for position, (argument, result) in enumerate(zip(body.inputs, body.outputs, strict=True))
    ]


def _behind(net: Net, blob: str) -> str:
    """The blob that ops hand on which change no value."""
    while (op := net.producer.get(blob)) is not None and op.type in _PASSES:
        blob = op.inputs[0]
    return blob


def _hands_on_alone(net: Net, op: Op, blobs: Collection[str]) -> bool:
    """Whether the op hands one of the blobs to a next iteration, and to no op of this one."""
    passes = op.type == "Identity" and op.inputs[0] in blobs
    return passes and not net.readers.get(op.outputs[0])


def _is_read(net: Net, blob: str) -> bool:
    """Whether anybody reads the blob, but through ops that hand it on to nobody."""
    return blob in net.outputs or any(
        op.type != "Identity" or _is_read(net, op.outputs[0]) for op in net.readers.get(blob, ())
    )


def _is_number(net: Net, blob: str, number: int) -> bool:
    op = net.producer.get(_behind(net, blob))
    held = op.attributes.get("value") if op is not None and op.type == "Const" else None
    return isinstance(held, Constant) and held.value == number and held.value is not True


def _steps_by(body: Net, variable: _Variable, type: str) -> bool:
    """Whether the variable grows (AddV2) or falls (Sub) by one in each iteration."""
    op = body.producer.get(_behind(body, variable.following))
    return (
        op is not None
        and op.type == type
        and _behind(body, op.inputs[0]) == variable.argument
        and _is_number(body, op.inputs[1], 1)
    )


def _pushing(loop: Op, blobs: Sequence[str], stem: str) -> tuple[Op, dict[str, str], list[Op]]:
    """The loop with one more accumulator for each blob; their outer blobs, and what starts them."""
    body, cond = loop.nets["body"], loop.nets["cond"]
    ops, added, finals, starts = [], [], {}, []
    for number, blob in enumerate(blobs):
        name = f"{stem}/pushed/{number}"
        dtype = DType(body.blobs[blob].dtype)
        attributes = {"element_dtype": dtype}
        starts.append(Op(f"{name}/empty", _EMPTY, (), (f"{name}/start",), attributes))
        push = Op(name, _PUSH, (f"{name}/list", blob), (f"{name}/longer",), attributes)
        ops.append(push)
        added.append((f"{name}/start", f"{name}/list", f"{name}/longer", f"{name}/final"))
        finals[blob] = f"{name}/final"
    return _with_variables(loop, body, cond, added, ops), finals, starts


def _popping(
    loop: Op, sources: Mapping[str, tuple[str, Blob]], stem: str
) -> tuple[Op, dict[str, str]]:
    """The loop that pops accumulators of other blobs; blob -> what is popped for it."""
    body, cond = loop.nets["body"], loop.nets["cond"]
    ops, added, popped = [], [], {}
    kinds = {}
    for number, (blob, (start, kind)) in enumerate(sources.items()):
        name = f"{stem}/popped/{number}"
        shape = f"{name}/shape"
        attributes = {"element_dtype": DType(kind.dtype)}
        ops.append(Op(shape, "Const", (), (shape,), {"value": number}))
        ops.append(
            Op(name, _POP, (f"{name}/list", shape), (f"{name}/shorter", f"{name}/blob"), attributes)
        )
        added.append((start, f"{name}/list", f"{name}/shorter", f"{name}/final"))
        popped[blob] = f"{name}/blob"
        kinds[f"{name}/blob"] = Blob(f"{name}/blob", kind.dtype, kind.shape)
        kinds[shape] = Blob(shape, "int32", None)
    return _with_variables(loop, body, cond, added, ops, kinds), popped


def _with_variables(
    loop: Op,
    body: Net,
    cond: Net,
    added: Sequence[tuple[str, str, str, str]],
    ops: Sequence[Op],
    kinds: Mapping[str, Blob] | None = None,
) -> Op:
    """The loop with list variables ``(start, argument, following, final)`` and ops in its body."""
    lists = {
        blob: Blob(blob, "variant", ())
        for _, argument, following, _ in added
        for blob in (argument, following)
    }
    body = body.replace(
        inputs=(*body.inputs, *(one[1] for one in added)),
        outputs=(*body.outputs, *(one[2] for one in added)),
        ops=(*body.ops, *ops),
        blobs={**body.blobs, **lists, **(kinds or {})},
    )
    cond = cond.replace(
        inputs=(*cond.inputs, *(one[1] for one in added)), blobs={**cond.blobs, **lists}
    )
    return loop.replace(
        inputs=(*loop.inputs, *(one[0] for one in added)),
        outputs=(*loop.outputs, *(one[3] for one in added)),
        nets={**loop.nets, "body": body, "cond": cond},
    )
