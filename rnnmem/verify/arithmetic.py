"""Whether a rewritten function, as TensorFlow runs it, adds and multiplies as the original does.

`rnnmem.verify.check` proves that both compute the same from the Net; in what order sums add up and
which ops are fused is decided later, by TensorFlow's graph optimizer, who sees other neighbours in
the rewritten function. So what it made of both is compared here: each value gets a number by the
arithmetic that makes it (value numbering: Alpern, Wegman and Zadeck 1988), and each result must
have the same number in both. What only moves data, counts or compares has no number of its own;
that it is right is proven of the Net.

    original     h ─► Tanh ─► push        pop ─► TanhGrad         the pop has the Tanh's number
    rewritten    h ─► push          pop ─► Tanh ─► TanhGrad       and so has the clone

A loop's state has a number by where it starts and what the next iteration makes of it, looked at
some times over, as automata are minimised (Hopcroft 1971).
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence

from rnnmem.verify.addends import ALONE, HELD, SAME, SHARED, around, holders, order_of_equals
from rnnmem.verify.flat_graph import FlatGraph, FlatOp
from rnnmem.verify.value_numbers import FILL, Table

ROUNDS = 3
"""How often the states of loops are numbered; what differs in one iteration shows in the first."""

LIST, RESOURCE = "variant", "resource"
FLOATS = frozenset({"float32", "float64", "float16", "bfloat16", "complex64", "complex128"})
"""Types of what has a number."""

_OTHER = 0
"""The number of all that is no such value."""
_SUMS = frozenset({"Add", "AddV2", "AddN"})
_COMMUTE = frozenset({"Mul", "SquaredDifference"})
_IN_ORDER = 9
"""Values that AddN adds up one after the other, at most; of more it makes groups."""
_ONE_ROW = ("shrink_axis_mask", b"\x18\x01")
"""Attribute of a slice that takes one row, and hands it on without the first axis."""
_REPLAYS = re.compile(r"rnnmem/(way|again)(_\d+)?$")
"""Loops that run iterations of a forward loop again."""
_PART = re.compile(r"rnnmem/part(_\d+)?$")
"""What cuts a chunk's rows, all of which have the bits of the whole's."""
_ITEM_SUM = re.compile(r"rnnmem/item_sum(_\d+)?$")
"""What adds up the items of a batched product, in the kernel's order."""
_JOINED = re.compile(r"/rnnmem/joined(_\d+)?$")
"""Behind a sum's name: what puts the slices' gradients side by side that it added up."""
_PIECE = re.compile(r"rnnmem/piece(_\d+)?$")
"""What gives one of them zeros beside it."""
_WRITES = "InplaceUpdate"
"""Rows in the place of those that a chunk has read; that nobody reads them is proven of the Net."""


Given = Callable[[int, str], int]
"""Index and type of an argument -> its number."""


class Numbered:
    """The numbers of all values of one function."""

    def __init__(self, graph: FlatGraph, table: Table, given: Given):
        self.graph, self.table, self.given = graph, table, given
        self.numbers: dict[str, tuple[int, ...]] = {}
        self.replayed: dict[str, int] = {}
        self._states: dict[str, int] = {}
        self._returned = [op for op in graph.order if op.type == "_Retval"]

    def look(self) -> None:
        """Numbers all values once more, states by what they were found to be the last time."""
        order = self.graph.order
        states = [op for op in order if self.is_state(op)]
        if self.numbers:
            self._states = {op.name: self.following(op) for op in states}
        self.replayed = {}
        for op in order:
            self.numbers[op.name] = self._of(op)

    def of(self, blob: tuple[str, int]) -> int:
        """The number of one output of an op."""
        return self.numbers[blob[0]][blob[1]]

    def is_state(self, op: FlatOp) -> bool:
        """Whether the op gives a loop's state at the start of an iteration."""
        return op.type == "Merge" and self.graph.back_edge(op) is not None

    def following(self, merge: FlatOp) -> int:
        """The number of what the next iteration starts with."""
        back = self.graph.back_edge(merge)
        assert back is not None
        return self.of(back.inputs[0])

    def results(self) -> dict[int, int]:
        """Index of a result -> its number."""
        return {op.index: self.of(op.inputs[0]) for op in self._returned}

    def effects(self) -> list[tuple[str, tuple[int, ...]]]:
        """What is written into variables: op type, and what it reads, in no order."""
        found = []
        for op in self.graph.order:
            reads = [self.of(blob) for blob in op.inputs]
            given = any(self.graph.ops[name].dtypes[at] == RESOURCE for name, at in op.inputs)
            if given and op.type not in _HANDLES and not FLOATS.intersection(op.dtypes):
                found.append((op.type, tuple(reads)))
        return sorted(found)

    def _of(self, op: FlatOp) -> tuple[int, ...]:
        rule = _RULES.get(op.type)
        return self._made(op) if rule is None else rule(self, op)

    def _made(self, op: FlatOp) -> tuple[int, ...]:
        """What an op without a rule makes of what it reads."""
        reads = [self.of(blob) for blob in op.inputs]
        if op.type in SAME:
            return (reads[0],) * max(1, len(op.dtypes)) if reads else (_OTHER,)
        if not any(map(_is_numbered, op.dtypes)):
            return (_OTHER,) * len(op.dtypes)
        if op.type in _COMMUTE:
            reads.sort()
        made = self.table.number(op.type, op.detail, tuple(reads))
        return tuple(
            self.table.number(made, place) if _is_numbered(dtype) else _OTHER
            for place, dtype in enumerate(op.dtypes)
        )

    def _argument(self, op: FlatOp) -> tuple[int, ...]:
        return (self.given(op.index, op.dtypes[0]),)

    def _constant(self, op: FlatOp) -> tuple[int, ...]:
        return (_OTHER if op.value is None else self.table.constant(op.value),)

    def _switch(self, op: FlatOp) -> tuple[int, ...]:
        return (self.of(op.inputs[0]),) * len(op.dtypes)

    def _merge(self, op: FlatOp) -> tuple[int, ...]:
        dtype = op.dtypes[0]
        back = self.graph.back_edge(op)
        if not _is_numbered(dtype):
            return _OTHER, _OTHER
        if back is None:
            return self._branches([self.of(blob) for blob in op.inputs], dtype), _OTHER
        enter = next(blob for blob in op.inputs if blob[0] != back.name)
        start = self.of(enter)
        if dtype not in FLOATS or self._is_invariant(op, back) or self._is_written(back):
            return start, _OTHER
        if start in self.table.states and _REPLAYS.search(self.graph.ops[enter[0]].frame):
            self.replayed[op.name] = start
            return start, _OTHER
        return self.table.state(start, self._states.get(op.name, _OTHER)), _OTHER

    def _branches(self, reads: Sequence[int], dtype: str) -> int:
        """The number of what one branch or another hands out."""
        distinct = sorted(set(reads))
        if any(one in self.table.optionals for one in distinct):
            distinct = [one for one in distinct if self.table.optionals.get(one) != ()]
        elif dtype == LIST:
            return self.table.joined(distinct)
        if len(distinct) == 1:
            return distinct[0]
        return self.table.number("branches", tuple(distinct)) if distinct else reads[0]

    def _is_invariant(self, merge: FlatOp, back: FlatOp) -> bool:
        source = self.graph.ops[back.inputs[0][0]]
        while source.type == "Identity":
            source = self.graph.ops[source.inputs[0][0]]
        return source.type == "Switch" and source.inputs[0][0] == merge.name

    def _is_written(self, back: FlatOp) -> bool:
        """Whether the state is a buffer that a loop over chunks writes its rows into."""
        source = self.graph.ops[back.inputs[0][0]]
        while source.type == "Identity":
            source = self.graph.ops[source.inputs[0][0]]
        return source.type == _WRITES

    def _exit(self, op: FlatOp) -> tuple[int, ...]:
        value = self.of(op.inputs[0])
        merge = self.graph.merge_of(op)
        back = None if merge is None else self.graph.back_edge(merge)
        if merge is None or back is None:
            return (value,)
        if self._is_written(back) or self.following(merge) in self.table.sums_of_items:
            return (self.following(merge),)
        if op.dtypes[0] == LIST:
            return (self.table.joined([value, self.following(merge)]),)
        if (
            op.dtypes[0] in FLOATS
            and value in self.table.states
            and merge.name not in self.replayed
        ):
            return (self.table.number("exit", value, self.following(merge)),)
        return (value,)

    def _sum(self, op: FlatOp) -> tuple[int, ...]:
        """Two values may change places; of more, AddN begins with the first it may overwrite."""
        reads = [self.of(blob) for blob in op.inputs]
        if _ITEM_SUM.search(op.name):
            return (self.table.sum_of_items(reads[reads[0] in self.table.states]),)
        if op.dtypes[0] == LIST:
            return (functools.reduce(self.table.list_sum, reads),)
        if not _is_numbered(op.dtypes[0]):
            return (_OTHER,)
        if self.table.joined_sums and (joined := self._joined(op)):
            return (joined,)
        if (as_they_come := self.table.as_they_come.get(tuple(sorted(reads)))) is not None:
            return (as_they_come,)  # one of the orders that the original may take
        if len(reads) - reads.count(self.table.zero) > 2:  # zeros may be added wherever
            return (self._in_order(op, reads),)
        return (functools.reduce(self.table.plus, reads),)

    def _joined(self, op: FlatOp) -> int | None:
        """The number of a sum of slices' gradients and one other at most; None: it is none."""
        parts, others = list[int](), list[int]()
        joins = any(self.of(blob) in self.table.sides for blob in op.inputs)
        named = joins or around(op.name) in self.table.joined_sums
        for blob in op.inputs:
            source, number = self.graph.ops[blob[0]], self.of(blob)
            if named and source.type in _WINDOWS:
                parts.append(self.of(source.inputs[_WINDOWS[source.type]]))
            elif number in self.table.sides:
                parts += self.table.sides[number]
            elif number != self.table.zero:
                others.append(number)
        if not parts or len(others) > 1:
            return None
        return functools.reduce(self.table.plus, others, self.table.side_by_side(parts))

    def _concatenated(self, op: FlatOp) -> tuple[int, ...]:
        if not _JOINED.search(op.name):
            return self._made(op)
        return (self.table.side_by_side(map(self.of, op.inputs[:-1])),)

    def _padded(self, op: FlatOp) -> tuple[int, ...]:
        return (self.of(op.inputs[0]),) if _PIECE.search(op.name) else self._made(op)

    def _in_order(self, op: FlatOp, reads: list[int]) -> int:
        """The number of a sum of three or more."""
        blobs, buffers = list(op.inputs), holders(self.graph, op)
        first = next((at for at, one in enumerate(buffers) if one != HELD), 0)
        if len(reads) > _IN_ORDER or buffers[first] == SHARED:
            asked = buffers[: buffers.index(ALONE) + 1] if ALONE in buffers else buffers
            total = self.table.number("AddN", tuple(reads), asked)
        else:
            reads[0], reads[first] = reads[first], reads[0]
            blobs[0], blobs[first] = blobs[first], blobs[0]
            total = functools.reduce(self.table.plus, reads)
        equals = order_of_equals(self.graph, blobs, reads, self.table.zero)
        return self.table.number("in order", total, equals) if equals else total

    def _total(self, op: FlatOp) -> tuple[int, ...]:
        """A sum over the items of a batched product, or over others."""
        batched = self.graph.ops[op.inputs[0][0]].type == "BatchMatMulV2"
        return (self.table.sum_of_items(self.of(op.inputs[0])),) if batched else self._made(op)

    def _accumulated(self, op: FlatOp) -> tuple[int, ...]:
        """What a large function's memory optimizer makes of a sum: it adds values as they come."""
        adding = self.graph.accumulated(op)
        if not adding:
            return (self.of(op.inputs[0]),)
        return (self.table.accumulated(self.of(one.inputs[1]) for one in adding),)

    def _optional(self, op: FlatOp) -> tuple[int, ...]:
        return (self.table.optional_of(tuple(self.of(blob) for blob in op.inputs)),)

    def _from_optional(self, op: FlatOp) -> tuple[int, ...]:
        held = self.of(op.inputs[0])
        if held in self.table.lists:
            held = self.table.element(held)
        values = self.table.optionals.get(held)
        if values is not None and len(values) == len(op.dtypes):
            return values
        return self._each(op, lambda place: self.table.number("held", held, place))

    def _each(self, op: FlatOp, number: Callable[[int], int]) -> tuple[int, ...]:
        places = enumerate(op.dtypes)
        return tuple(number(at) if _is_numbered(dtype) else _OTHER for at, dtype in places)

    def _empty_list(self, op: FlatOp) -> tuple[int, ...]:
        return (self.table.list_of(frozenset()),)

    def _put(self, op: FlatOp) -> tuple[int, ...]:
        """A list and one more element, which is the last that is read."""
        before, put = self.of(op.inputs[0]), self.of(op.inputs[-1])
        return (self.table.list_of(self.table.elements(before) | {put}),)

    def _pop(self, op: FlatOp) -> tuple[int, ...]:
        given = self.of(op.inputs[0])
        return given, self.table.element(given) if _is_numbered(op.dtypes[1]) else _OTHER

    def _get(self, op: FlatOp) -> tuple[int, ...]:
        return self._each(op, lambda _: self.table.element(self.of(op.inputs[0])))

    def _stack(self, op: FlatOp) -> tuple[int, ...]:
        return self._each(op, lambda _: self.table.element(self.of(op.inputs[0])))

    def _unstack(self, op: FlatOp) -> tuple[int, ...]:
        whole = self.of(op.inputs[0])
        return (self.table.list_of(frozenset([whole])),)

    def _row(self, op: FlatOp) -> tuple[int, ...]:
        """One row, or zeros but for one: which one is proven of the Net."""
        return (self.of(op.inputs[_ROWS[op.type]]),) if _ONE_ROW in op.detail else self._made(op)

    def _packed(self, op: FlatOp) -> tuple[int, ...]:
        """Values side by side: as a list of them is, where all have one number."""
        distinct = {self.of(blob) for blob in op.inputs}
        return (min(distinct),) if len(distinct) == 1 else self._made(op)

    def _lists_joined(self, op: FlatOp) -> tuple[int, ...]:
        return (self.table.joined(map(self.of, op.inputs[:2])),)

    def _same_list(self, op: FlatOp) -> tuple[int, ...]:
        return (self.of(op.inputs[0]),)

    def _zeros(self, op: FlatOp) -> tuple[int, ...]:
        zero = self.table.zero
        if op.dtypes[0] == LIST:
            return (self.table.list_of(frozenset([zero])),)
        return self._each(op, lambda _: zero)

    def _ones(self, op: FlatOp) -> tuple[int, ...]:
        return self._each(op, lambda _: self.table.constant((FILL, 1.0)))

    def _written(self, op: FlatOp) -> tuple[int, ...]:
        return (self.of(op.inputs[2]),)

    def _slice(self, op: FlatOp) -> tuple[int, ...]:
        read = self.of(op.inputs[0])
        if not _PART.search(op.name):
            read = self.table.number(op.type, op.detail, (read, _OTHER, _OTHER))
        return self._each(op, lambda _: read)

    def _fill(self, op: FlatOp) -> tuple[int, ...]:
        return self._each(op, lambda _: self.of(op.inputs[1]))

    def _square(self, op: FlatOp) -> tuple[int, ...]:
        read = self.of(op.inputs[0])
        made = self.table.number("Mul", (), (read, read))
        return self._each(op, lambda place: self.table.number(made, place))

    def _rows(self, op: FlatOp) -> tuple[int, ...]:
        """Rows of a variable, which another may read whole and take rows of."""
        read = self.table.number("ReadVariableOp", (), (self.of(op.inputs[0]),))
        return self._each(op, lambda place: self.table.number(read, place))

    def _several(self, op: FlatOp) -> tuple[int, ...]:
        return tuple(map(self.of, op.inputs))


_HANDLES = SAME | {"ReadVariableOp", "Switch", "Merge", "Exit", "_SwitchN", "VarIsInitializedOp"}
"""What may read a variable's handle and writes nothing."""
_WINDOWS = {"Pad": 0, "StridedSliceGrad": 4}
"""Op type -> which of its inputs it puts between zeros."""
_ROWS = {"StridedSlice": 0, "StridedSliceGrad": 4}
"""Op type -> which of its inputs it takes rows of, or puts between zeros."""
_RULES: Mapping[str, Callable[[Numbered, FlatOp], tuple[int, ...]]] = {
    "_Arg": Numbered._argument,
    "Const": Numbered._constant,
    "Switch": Numbered._switch,
    "_SwitchN": Numbered._switch,
    "Merge": Numbered._merge,
    "Exit": Numbered._exit,
    "DestroyTemporaryVariable": Numbered._accumulated,
    "IdentityN": Numbered._several,
    "OptionalFromValue": Numbered._optional,
    "OptionalNone": Numbered._optional,
    "OptionalGetValue": Numbered._from_optional,
    "EmptyTensorList": Numbered._empty_list,
    "TensorListReserve": Numbered._empty_list,
    "TensorListPushBack": Numbered._put,
    "TensorListSetItem": Numbered._put,
    "TensorListPopBack": Numbered._pop,
    "TensorListGetItem": Numbered._get,
    "TensorListStack": Numbered._stack,
    "TensorListGather": Numbered._stack,
    "TensorListConcat": Numbered._stack,
    "TensorListConcatV2": Numbered._stack,
    "TensorListFromTensor": Numbered._unstack,
    "TensorListScatter": Numbered._unstack,
    "TensorListScatterV2": Numbered._unstack,
    "TensorListSplit": Numbered._unstack,
    "TensorListScatterIntoExistingList": Numbered._put,
    "TensorListConcatLists": Numbered._lists_joined,
    "TensorListPushBackBatch": Numbered._lists_joined,
    "TensorListResize": Numbered._same_list,
    **dict.fromkeys(_ROWS, Numbered._row),
    "ZerosLike": Numbered._zeros,
    "OnesLike": Numbered._ones,
    "Fill": Numbered._fill,
    "ResourceGather": Numbered._rows,
    "Slice": Numbered._slice,
    "ConcatV2": Numbered._concatenated,
    "Pad": Numbered._padded,
    "Pack": Numbered._packed,
    "Square": Numbered._square,
    "Sum": Numbered._total,
    _WRITES: Numbered._written,
    **dict.fromkeys(_SUMS, Numbered._sum),
}


@dataclasses.dataclass(frozen=True)
class Half:
    """A function, or one of the two halves that a differentiated one has.

    Attributes:
      graph: what the graph optimizer made of it.
      sources: where each argument comes from: ``("result", i)`` of the half before, or a name and
        a number that stand for it.
      results: how many results count by themselves; None: all. The others go to the next half.
    """

    graph: FlatGraph
    sources: Mapping[int, tuple[str, int]] = dataclasses.field(default_factory=dict)
    results: int | None = None


def difference(original: Sequence[Half], rewritten: Sequence[Half]) -> str | None:
    """The op of the rewritten function that does other arithmetic than the original; None: none.

    Args:
      original: its halves, in the order in which they run.
      rewritten: those of what is to run instead.
    """
    table = Table(joined_sums=_joined_sums(rewritten))
    befores, afters = _numbered(original, table), _numbered(rewritten, table)
    for half, before, after in zip(original, befores, afters, strict=True):
        expected, found = before.results(), after.results()
        count = len(expected) if half.results is None else half.results
        same = all(found.get(index) == expected.get(index) for index in range(count))
        if not same or before.effects() != after.effects() or not _replays_agree(afters):
            return _first_unknown(befores, afters)
    return None


def _joined_sums(halves: Sequence[Half]) -> frozenset[str]:
    """The sums, by name, of which slices' gradients are put side by side."""
    names = (op.name for half in halves for op in half.graph.order if op.type == "ConcatV2")
    return frozenset(around(name) for name in names if _JOINED.search(name))


def _numbered(halves: Sequence[Half], table: Table) -> list[Numbered]:
    found: list[Numbered] = []
    for half in halves:
        before = found[-1] if found else None

        def given(
            index: int, dtype: str, half: Half = half, before: Numbered | None = before
        ) -> int:
            kind, place = half.sources.get(index, ("argument", index))
            if kind == "result" and before is not None:
                return before.results()[place]
            if not _is_numbered(dtype):
                return _OTHER
            number = table.number(kind, place)
            return table.list_of(frozenset([number])) if dtype == LIST else number

        found.append(Numbered(half.graph, table, given))
    for _ in range(ROUNDS):  # all halves at once: a replay's loops are those of the half before
        for one in found:
            one.look()
    return found


def _replays_agree(halves: Sequence[Numbered]) -> bool:
    """Whether loops that run iterations again make of each state what the forward loop does."""
    following: dict[int, int] = {}
    for half in halves:
        for op in half.graph.order:
            if half.is_state(op) and op.name not in half.replayed:
                number = half.numbers[op.name][0]
                if number in half.table.states:
                    following.setdefault(number, half.following(op))
    return all(
        following.get(state) in (None, half.following(half.graph.ops[name]))
        for half in halves
        for name, state in half.replayed.items()
    )


def _first_unknown(befores: Sequence[Numbered], afters: Sequence[Numbered]) -> str:
    """The first op whose number the original does not have, though it has what the op reads."""
    known = {number for half in befores for numbers in half.numbers.values() for number in numbers}
    constant = ""
    for half in afters:
        for op in half.graph.order:
            new = not known.issuperset(half.numbers[op.name])
            if not new or not all(half.of(blob) in known for blob in op.inputs):
                continue
            if op.type == "Const":
                constant = constant or op.name
            elif op.type in _SUMS or op.type not in _RULES and op.type not in SAME:
                return op.name
    return constant or "a loop's state"


def _is_numbered(dtype: str) -> bool:
    return dtype in FLOATS or dtype in (LIST, RESOURCE)
