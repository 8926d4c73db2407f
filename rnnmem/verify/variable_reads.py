"""Reads of variables: which of them read the same state of the variable.

An input of the Net that is a handle is one variable; two are two. What a read gives depends on the
variable and on the writes that came before it, and on nothing else, where each op that may write
the variable runs either before the read or after it:

    W1 ──► loop { read } ──► W2       state {W1}
     └───► read ─────────────┘        state {W1}, so it gives what each read in the loop gives

Only ops of the outermost Net are put in order here. So a read below one of them, which may run many
times, has a state only if that op writes the variable at no depth. The states of reads below are
found in the original alone: the rewrite runs the same effects in the same order, or is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from rnnmem.ir.graph import FunctionRef, Net, Op, Path
from rnnmem.ir.op_table import BRANCHES, LOOKUP, LOOPS, READ, is_pure
from rnnmem.ir.order import all_needed_by, needed_by
from rnnmem.verify.order import RunningOrder

State = tuple[int, frozenset[int]]
"""A variable, and the effects of the outermost Net that may have written it before."""

_LEAVE_IT_ALONE = frozenset(
    {READ, LOOKUP, "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"}
)
_HANDS_ON = frozenset({"Identity", "EnsureShape"})
_MAY_HAND_ON = _HANDS_ON | LOOPS
UNKNOWN = -1
"""Stands for a variable of which only a run can tell which it is."""
_Variables = Mapping[str, int]  # blob of a Net -> input of the outermost Net


class Reads:
    """What the reads of one Net may depend on."""

    def __init__(self, net: Net, order: RunningOrder, handles: _Variables):
        """Looks at all ops, at any depth; ``handles`` are the variables of the Net's inputs."""
        self._net, self._order = net, order
        self._writes: dict[str, set[int]] = {}  # op of the outermost Net -> variables
        self._inner: dict[Path, tuple[str, int]] = {}  # path -> outermost op, variable
        self._states: dict[tuple[str, int], State | None] = {}
        self._before: dict[str, set[str]] = {}
        self._variables = self._traced(net, handles)
        for op in order.of(net):
            writes: set[int] = set()
            self._look(net, op, self._variables, Path(), op.name, writes)
            if writes:
                self._writes[op.name] = writes

    def below(self, path: Path, effects: Mapping[str, int]) -> State | None:
        """The state that a read in a step net sees; None where that is not known.

        Args:
          path: the way to the read.
          effects: op of the outermost Net -> its effect.
        """
        outermost, variable = self._inner.get(path, ("", UNKNOWN))
        if variable == UNKNOWN or self._may_write(outermost, variable):
            return None
        return self._state(outermost, variable, effects)

    def beside(self, read: Op, effects: Mapping[str, int]) -> State | None:
        """The state that a read in the outermost Net sees; None where that is not known."""
        variable = self._variables.get(read.inputs[0], UNKNOWN)
        return None if variable == UNKNOWN else self._state(read.name, variable, effects)

    def _may_write(self, name: str, variable: int) -> bool:
        writes = self._writes.get(name, ())
        return variable in writes or UNKNOWN in writes

    def _state(self, name: str, variable: int, effects: Mapping[str, int]) -> State | None:
        if (name, variable) not in self._states:
            before = (self.writers(variable) - {name}) & self.needed(name)
            state = variable, frozenset(effects[one] for one in before)
            in_turn = self.others_in_turn(name, variable)
            self._states[name, variable] = state if in_turn else None
        return self._states[name, variable]

    def writers(self, variable: int) -> set[str]:
        """Names of the ops of the Net that may write the variable."""
        return {one for one in self._writes if self._may_write(one, variable)}

    def others_in_turn(self, name: str, variable: int) -> bool:
        """Whether each other op that may write the variable runs before that op or after it."""
        others = self.writers(variable) - {name}
        late = others - self.needed(name)
        return all(name in self.needed(one) for one in late)

    def given_to(self, op: Op, variables: _Variables | None = None) -> list[int]:
        """The variables whose handles the inputs of the op's step nets hold at all times."""
        variables = self._variables if variables is None else variables
        given = op.inputs[1:] if op.type in BRANCHES else op.inputs
        held = [variables.get(blob, UNKNOWN) for blob in given]
        if op.type not in LOOPS:
            return held
        body = op.nets["body"]
        return [one if self._stays(body, place) else UNKNOWN for place, one in enumerate(held)]

    def needed(self, name: str) -> set[str]:
        """The ops that must have run before that op."""
        if name not in self._before:
            self._before[name] = all_needed_by(self._net, needed_by(self._net, name))
        return self._before[name]

    def _look(
        self, net, op, variables: _Variables, path: Path, outermost: str, writes: set[int]
    ) -> None:
        """Notes what the op writes, and the reads below it."""
        if not op.nets:
            if op.type in (READ, LOOKUP) and path:
                self._inner[path.child(op.name)] = outermost, variables.get(op.inputs[0], UNKNOWN)
            if not is_pure(op):
                writes |= _written(net, op, variables)
            return
        path = path.child(op.name)
        held = self.given_to(op, variables)
        for label, inner in op.nets.items():
            known = dict(zip(inner.inputs, held, strict=True))
            below = self._traced(
                inner, {blob: one for blob, one in known.items() if one != UNKNOWN}
            )
            for one in self._order.of(inner):
                self._look(inner, one, below, path.child(label), outermost, writes)

    def _traced(self, net: Net, given: _Variables) -> _Variables:
        """The variables whose handles the blobs of a Net are."""
        found = dict(given)
        for op in self._order.of(net):
            if op.type not in _MAY_HAND_ON:
                continue
            for place in range(len(op.outputs)):
                source = self._source(op, place)
                if source is not None and source in found:
                    found[op.outputs[place]] = found[source]
        return found

    def _source(self, op: Op, place: int) -> str | None:
        """The blob that the op hands on as its output at that place, if it does."""
        if op.type in _HANDS_ON:
            return op.inputs[0]
        if op.type in LOOPS and self._stays(op.nets["body"], place):
            return op.inputs[place]
        return None

    def _stays(self, body: Net, place: int) -> bool:
        """Whether a loop variable is the same in every iteration."""
        blob = body.outputs[place]
        while (op := body.producer.get(blob)) is not None:
            source = self._source(op, op.outputs.index(blob))
            if source is None:
                return False
            blob = source
        return blob == body.inputs[place]


def _written(net: Net, op: Op, variables: _Variables) -> set[int]:
    if op.type in _LEAVE_IT_ALONE or op.type in _HANDS_ON:
        return set()
    if "PyFunc" in op.type or any(_names_a_function(one) for one in op.attributes.values()):
        return {UNKNOWN}
    handles = (blob for blob in op.inputs if net.blobs[blob].dtype == "resource")
    return {variables.get(blob, UNKNOWN) for blob in handles}


def _names_a_function(value: object) -> bool:
    if isinstance(value, tuple):
        return any(_names_a_function(one) for one in value)
    return isinstance(value, FunctionRef)
