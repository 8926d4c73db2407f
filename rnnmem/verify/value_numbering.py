"""Numbers every blob of a Net and its step nets, and notes what must agree with another Net."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Mapping, Sequence

from rnnmem.ir.graph import Net, Op, Path
from rnnmem.ir.neutral import other_factor
from rnnmem.ir.op_table import BRANCHES, LOOPS
from rnnmem.ir.order import constant_value
from rnnmem.verify.effects import GUARDS, TOP, Effects, Place
from rnnmem.verify.expressions import (
    DECODING,
    EFFECT,
    ENCODING,
    FINAL,
    GOT,
    ITEM,
    LEAF,
    OP,
    POPPED_ELEMENT,
    POPPED_LIST,
    PUSH,
    RAW,
    TRIPS,
    ZEROS,
    Operator,
    Table,
)
from rnnmem.verify.lowering.encode import DECODED, ENCODED
from rnnmem.verify.lowering.replay import SAME
from rnnmem.verify.nested import handles_of
from rnnmem.verify.order import RunningOrder
from rnnmem.verify.recurrences import Solution
from rnnmem.verify.signatures import Signs, attributes_of, exact
from rnnmem.verify.variable_reads import LOOKUP, READ, Reads, State

TRANSPARENT = frozenset({"EnsureShape", "Identity", "PlaceholderWithDefault", "PreventGradient"})
"""Types whose result is their input."""

GATHERS = frozenset({"Gather", "GatherV2"})

_ANYWHERE = frozenset({"Const", "EmptyTensorList"})
"""Types whose result does not depend on the device."""

_MARKS = ("_noinline", "_XlaMustCompile", "_XlaCompile", "api_implements")
_KINDS = {"TensorListPushBack": (PUSH,), "TensorListPopBack": (POPPED_LIST, POPPED_ELEMENT)}
_OF_THEIR_OWN = frozenset(
    {*TRANSPARENT, *LOOPS, *BRANCHES, *_KINDS, *GATHERS, SAME, ENCODED, DECODED, "OptionalGetValue"}
)
"""Types whose results are not simply what their sign computes of the inputs."""

_instances = itertools.count()


@dataclasses.dataclass(slots=True)
class Claim:
    """A value that must agree with the other Net's value under the same key.

    Attributes:
      key: what the value is for, e.g. input 1 of effect 7.
      number: the value.
      net: where it stands.
      op: the op that reads or writes it; empty for the Net's own.
    """

    key: tuple[Hashable, ...]
    number: int
    net: Net
    op: str


@dataclasses.dataclass(slots=True)
class Pop:
    """A pop: the list, the trips of the loop right around it (None outside loops), where it is."""

    popped: int
    trips: int | None
    net: Net
    op: str


@dataclasses.dataclass(slots=True)
class Agreement:
    """Two values of one Net that must agree."""

    numbers: Sequence[int]
    net: Net
    op: str


@dataclasses.dataclass(slots=True)
class Notes:
    """What was noted in a Net and below; ``pops_here`` are those of the innermost loop."""

    claims: list[Claim] = dataclasses.field(default_factory=list)
    guards: list[Claim] = dataclasses.field(default_factory=list)
    pops: list[Pop] = dataclasses.field(default_factory=list)
    pops_here: list[Pop] = dataclasses.field(default_factory=list)
    agreements: list[Agreement] = dataclasses.field(default_factory=list)


class ValueNumbering:
    """One pass over a Net; what it found stands in ``notes`` and ``outputs``."""

    def __init__(
        self,
        table: Table,
        order: RunningOrder,
        signs: Signs,
        effects: Effects,
        operators: dict[tuple[Hashable, int], tuple[Operator, ...]],
        states: dict[int, tuple[Hashable, State]] | None = None,
        handles: Mapping[str, int] | None = None,
    ):
        """Both Nets of a check share all but the effects.

        Args:
          table: where expressions get their numbers.
          order: finds the running orders.
          signs: finds the ops' signs.
          effects: of the Net.
          operators: what ops of a sign, with so many outputs, compute.
          states: effect -> sign of the read that it is, and the state that this read sees; found in
            the original, and what a new read of the rewritten Net must see.
          handles: input of the Net -> the variable whose handle it holds; None: one each.
        """
        self._handles = handles
        self._table, self._order, self._signs = table, order, signs
        self._effects, self._operators = effects, operators
        self._states = {} if states is None else states
        self._wholes: dict[int, Op] = {}
        self.notes = Notes()
        self.outputs: tuple[int, ...] = ()

    def run(self, net: Net) -> ValueNumbering:
        """Numbers the verified Net itself."""
        given = [
            self._table.make(
                self._table.operator(LEAF, data=("input", place), text=f"input {place}")
            )
            for place in range(len(net.inputs))
        ]
        handles = handles_of(net) if self._handles is None else self._handles
        self._reads = Reads(net, self._order, handles)
        self.outputs = self._net(net, given, 0, TOP, Path())
        for place, number in enumerate(self.outputs):
            self.notes.claims.append(Claim(("output", place), number, net, net.outputs[place]))
        return self

    def _net(
        self, net: Net, given: Sequence[int], level: int, place: Place | None, path: Path
    ) -> tuple[int, ...]:
        """The numbers of the Net's outputs; a place is given where effects stand in it."""
        effects: Mapping[str, int] = {} if place is None else self._effects.identify(net, place)
        numbers = dict(zip(net.inputs, given, strict=True))
        make = self._table.make
        for op in self._order.of(net):
            inputs = tuple([numbers[blob] for blob in op.inputs])
            results: Sequence[int]
            effect = effects.get(op.name)
            if (factor := other_factor(net, op)) is not None:
                numbers[op.outputs[0]] = numbers[factor]
                continue
            if effect is None and not op.nets and op.type not in _OF_THEIR_OWN:
                for blob, operator in zip(op.outputs, self._operators_of(op), strict=True):
                    numbers[blob] = make(operator, inputs, op.name)
                continue
            if effect is not None and not op.nets:
                self._claim_inputs(net, op, effect, inputs)
            if op.type in TRANSPARENT:
                results = inputs
                if op.type in GUARDS:
                    key = ("guard", place, attributes_of(op))
                    self.notes.guards.append(Claim(key, inputs[0], net, op.name))
            elif op.type == SAME:
                self.notes.agreements.append(Agreement(inputs, net, op.name))
                results = ()
            elif op.type in LOOPS:
                results = self._loop(net, op, inputs, level, effect, path)
            elif op.type in BRANCHES:
                results = self._branch(net, op, inputs, level, effect, path)
            elif op.nets:
                results = self._call(net, op, inputs, level, effect, path)
            elif effect is not None:
                results = self._effect(op, effect, inputs, level, path)
            elif op.type in _KINDS:
                results = self._list_op(net, op, inputs)
            elif op.type in GATHERS:
                results = (self._gathered(net, op, inputs),)
            elif op.type in (ENCODED, DECODED):
                results = (self._form(op, inputs),)
            else:
                held = self._table.held(inputs[0])
                results = held or [
                    make(operator, inputs, op.name) for operator in self._operators_of(op)
                ]
            numbers.update(zip(op.outputs, results, strict=True))
        return tuple([numbers[blob] for blob in net.outputs])

    def _claim_inputs(self, net: Net, op: Op, effect: int, inputs: Sequence[int]) -> None:
        self.notes.claims += [
            Claim(("input", effect, slot), number, net, op.name)
            for slot, number in enumerate(inputs)
        ]

    def _operators_of(self, op: Op) -> tuple[Operator, ...]:
        key = self._signs.of(op), len(op.outputs)
        found = self._operators.get(key)
        if found is None:
            kinds = _KINDS.get(op.type)
            if op.type == "ZerosLike":  # of a dtype that the input has too, and on any device
                found = (self._table.operator(ZEROS),)
            elif op.type == "TensorListGetItem":
                found = (self._table.operator(GOT, 0, self._signs.of(op), op.type),)
            elif kinds is not None:
                sign = exact(op.attributes.get("element_dtype"))
                found = tuple([self._table.operator(kind, 0, sign, op.type) for kind in kinds])
            else:
                sign = (op.type, attributes_of(op)) if op.type in _ANYWHERE else self._signs.of(op)
                found = tuple(
                    [
                        self._table.operator(OP, 0, (sign, place), op.type)
                        for place in range(len(op.outputs))
                    ]
                )
            self._operators[key] = found
        return found

    def _form(self, op: Op, inputs: tuple[int, ...]) -> int:
        """What is encoded, or what decoding gives."""
        kind = ENCODING if op.type == ENCODED else DECODING
        operator = self._table.operator(kind, 0, op.attributes["form"], op.type)
        return self._table.make(operator, inputs, op.name)

    def _gathered(self, net: Net, op: Op, inputs: tuple[int, ...]) -> int:
        """Along the first axis it takes items, as lists and lookups do."""
        first = not op.inputs[2:] or constant_value(net, op.inputs[2]) == 0
        if first and not op.attributes.get("batch_dims"):
            return self._table.make(self._table.operator(ITEM), inputs[:2], op.name)
        return self._table.make(self._operators_of(op)[0], inputs, op.name)

    def _list_op(self, net: Net, op: Op, inputs: tuple[int, ...]) -> Sequence[int]:
        make, operators = self._table.make, self._operators_of(op)
        if op.type == "TensorListPushBack":
            return (make(operators[0], inputs, op.name),)
        self.notes.pops_here.append(Pop(inputs[0], None, net, op.name))
        return make(operators[0], inputs[:1], op.name), make(operators[1], inputs, op.name)

    def _effect(
        self, op: Op, effect: int, inputs: tuple[int, ...], level: int, path: Path
    ) -> Sequence[int]:
        """What an effect gives is a value of its own in every iteration around it.

        But a read gives what every other read of the same state gives.
        """
        make, operator = self._table.make, self._table.operator
        if op.type in (READ, LOOKUP) and (state := self._state(op, effect, path)) is not None:
            if not _is_whole(op):
                return [make(operator(OP, 0, state, op.type), inputs, op.name)]
            table = make(operator(OP, 0, state, READ), inputs[:1], op.name)
            looked_up = op.type == LOOKUP
            return [make(operator(ITEM), (table, inputs[1]), op.name) if looked_up else table]
        return [
            self._table.make(operator(EFFECT, level, (effect, place), op.type), (), op.name)
            for place in range(len(op.outputs))
        ]

    def _state(self, op: Op, effect: int, path: Path) -> tuple[Hashable, State] | None:
        """The sign of a read with the state that it sees; None where the state is not known."""
        looks_up = op.type == LOOKUP and _is_whole(op)
        sign = self._signs.of(self._whole(op) if looks_up else op)
        at_top = self._effects.at_top
        if self._effects.are_first and (path or op.type == LOOKUP):
            reads = self._reads
            seen = reads.below(path.child(op.name), at_top) if path else reads.beside(op, at_top)
            if seen is not None:
                self._states[effect] = sign, seen
        if path or self._effects.is_known(effect):
            return self._states.get(effect)
        state = self._reads.beside(op, at_top)
        if state is None or (sign, state) not in self._states.values():
            return None
        self._effects.excuse(TOP, op.name)
        return sign, state

    def _whole(self, lookup: Op) -> Op:
        """The read of the whole variable whose rows are looked up."""
        if id(lookup) not in self._wholes:
            kind = {name: one for name, one in lookup.attributes.items() if name == "dtype"}
            self._wholes[id(lookup)] = lookup.replace(type=READ, attributes=kind)
        return self._wholes[id(lookup)]

    def _loop(
        self, net: Net, op: Op, starts: tuple[int, ...], level: int, effect: int | None, path: Path
    ) -> Sequence[int]:
        table, level, path = self._table, level + 1, path.child(op.name)
        instance = next(_instances)
        raw = [table.operator(RAW, level, (instance, index)) for index in range(len(starts))]
        first = table.fresh(raw)
        variables = range(first, first + len(starts))
        outside, self.notes = self.notes, Notes()
        (going_on,) = self._net(
            op.nets["cond"], variables, level, self._place(op, effect, "cond"), path.child("cond")
        )
        following = self._net(
            op.nets["body"], variables, level, self._place(op, effect, "body"), path.child("body")
        )
        inside, self.notes = self.notes, outside
        solution = Solution(table, level, first, starts)
        solution.solve(following)
        trips = table.make(table.operator(TRIPS, level), (solution.of(going_on),), op.name)
        self._bring_out(inside, solution, trips)
        key = ("trips", path) if effect is None else ("trips", effect)
        self.notes.claims.append(Claim(key, trips, net, op.name))
        final = table.operator(FINAL, level)
        return [table.make(final, (trips, one), op.name) for one in solution.variables]

    def _bring_out(self, inside: Notes, solution: Solution, trips: int) -> None:
        """Notes of a solved loop, as its outside sees them."""
        for claim in (*inside.claims, *inside.guards):
            claim.number = solution.of(claim.number)
        for pop in (*inside.pops, *inside.pops_here):
            pop.popped = solution.of(pop.popped)
            pop.trips = trips if pop.trips is None else solution.of(pop.trips)
        for one in inside.agreements:
            one.numbers = solution.of(one.numbers[0]), solution.of(one.numbers[1])
        self.notes.agreements += inside.agreements
        self.notes.claims += inside.claims
        self.notes.guards += inside.guards
        self.notes.pops += (*inside.pops, *inside.pops_here)

    def _branch(
        self, net: Net, op: Op, inputs: tuple[int, ...], level: int, effect: int | None, path: Path
    ) -> Sequence[int]:
        labels = tuple(sorted(op.nets))
        taken = [
            self._net(
                op.nets[label],
                # Inside a loop what was popped is not known yet.
                [self._where_taken(one, inputs[0], labels, label) for one in inputs[1:]]
                if not level
                else inputs[1:],
                level,
                self._place(op, effect, label),
                path.child(op.name, label),
            )
            for label in labels
        ]
        if effect is not None:
            self.notes.claims.append(Claim(("branch", effect), inputs[0], net, op.name))
        operator = self._table.operator(OP, 0, ("branch", labels, op.device), op.type)
        return [
            self._table.make(operator, (inputs[0], *values), op.name)
            for values in zip(*taken, strict=True)
        ]

    def _where_taken(self, number: int, taken: int, labels: tuple[str, ...], label: str) -> int:
        """What a value is in a branch: of another that went the same way, what that one gave."""
        operator, children = self._table.operators[number], self._table.children[number]
        data = operator.data if operator.kind == OP and isinstance(operator.data, tuple) else ()
        same = data[:2] == ("branch", labels) and children[0] == taken
        return children[1 + labels.index(label)] if same else number

    def _call(
        self, net: Net, op: Op, inputs: tuple[int, ...], level: int, effect: int | None, path: Path
    ) -> Sequence[int]:
        """A call that stays closed: what its body computes, under the marks that keep it closed."""
        ((label, body),) = op.nets.items()
        results = self._net(
            body, inputs, level, self._place(op, effect, label), path.child(op.name, label)
        )
        marks = {**body.attributes.get("attributes", {}), **op.attributes}
        kept = tuple((name, exact(marks[name])) for name in _MARKS if name in marks)
        operator = self._table.operator(OP, 0, ("call", op.type, op.device, kept), op.type)
        return [self._table.make(operator, (result,), op.name) for result in results]

    def _place(self, op: Op, effect: int | None, label: str) -> Place | None:
        if effect is None or not self._effects.has_effects(op.nets[label]):
            return None
        return effect, label


def _is_whole(op: Op) -> bool:
    """Whether a read gives the whole variable, or rows of it along the first axis."""
    return not op.attributes.get("batch_dims")
