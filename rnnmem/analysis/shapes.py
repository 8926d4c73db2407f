"""Shapes as a run would see them: sizes that a trace leaves open and constants or trips tell.

A traced loop forgets how many elements its lists have, so everything made from them has an unknown
dimension. Here small integers (shapes, axes, list lengths) are followed through the Net and its
step nets, and loops run as often as `trips` says:

    TensorListReserve(n = 150) ─► While, 150 iterations ─► TensorListStack
                                              traced [?, 32, 256], found [150, 32, 256]
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rnnmem.analysis.growing_sizes import Growth, growths, middle, sizes_after
from rnnmem.analysis.list_lengths import lengths_behind, reads_lengths
from rnnmem.analysis.loops import Loop
from rnnmem.analysis.shape_rules import UNKNOWN, Fact, common, merged, possible, results_of
from rnnmem.analysis.trip_count import Number, growth, trip_count
from rnnmem.ir.graph import REAL_DTYPES, Blob, FindsOnce, Net, Op, Path, bytes_of
from rnnmem.ir.marks import TRIPS
from rnnmem.ir.op_table import ASKS_SHAPE, BRANCHES, LOOPS, slots, types
from rnnmem.ir.order import constant_value, through_identities, topological

_NOTHING: Mapping[str, int] = MappingProxyType({})


_OUTERMOST = Path()
MANY = 512
"""Stands for a dimension that no call has told."""
_COUNTS = "Range"


@dataclasses.dataclass(frozen=True)
class KnownNet(FindsOnce):
    """A Net with its shapes filled in, and what else was found out.

    Attributes:
      net: the Net; its blobs have the shapes that were found, its ops are the original ones.
      declared: the shapes as traced, which are all that TensorFlow's graph optimizer knows.
      facts: blob -> what is known of it.
      trips: loop op -> iterations, None where only a run can tell.
      inner: (op, attribute) -> the step net, filled in as it runs in this place.
      grown: of a loop's body, lists that a write made which may lengthen them -> how many elements
        they have when the loop ends.
      growing: loop op -> bytes that its variables have more at the end than in the middle
        iteration, for which all are taken.
    """

    net: Net
    declared: Mapping[str, Blob]
    facts: Mapping[str, Fact]
    trips: Mapping[str, int | None]
    inner: Mapping[tuple[str, str], KnownNet]
    grown: Mapping[str, int] = dataclasses.field(default_factory=lambda: _NOTHING)
    growing: Mapping[str, int] = dataclasses.field(default_factory=lambda: _NOTHING)


def known_net(
    net: Net,
    inputs: Sequence[Fact] | None = None,
    unknown_dimension: int | None = None,
    observed: Mapping[Path, int] = _NOTHING,
    path: Path = _OUTERMOST,
    unknown_trips: Sequence[int] = (),
    most: bool = False,
) -> KnownNet:
    """Fills in the shapes of a Net and of all step nets in it.

    Args:
      net: the Net.
      inputs: what is known of its inputs; None: what is declared.
      unknown_dimension: stands for a dimension, and a trip count, that stays unknown.
      observed: path of a loop op -> how often it ran in some run, for loops whose trip count the
        Net does not tell.
      path: of the Net itself; empty for a whole function.
      unknown_trips: stand for trip counts that stay unknown, of the Net's own loops, of those in
        their bodies, and so on; the last of them for all that are deeper.
      most: whether a size that values decide is the most that it may be, and that of a branch the
        larger one; nothing may be decided on it but what is compared.
    """
    filler = _Filler(net, unknown_dimension, observed, path, unknown_trips, most)
    if observed:  # of this place alone
        return filler.run(inputs)
    asked = (
        None if inputs is None else tuple(inputs),
        unknown_dimension,
        tuple(unknown_trips),
        most,
    )
    answers = net.once(_answers)
    if asked not in answers:
        answers[asked] = filler.run(inputs)
    return answers[asked]


def _answers(net: Net) -> dict[tuple, KnownNet]:
    """What was found out about a Net so far: one plan leaves alone what another rewrites."""
    return {}


@dataclasses.dataclass
class _Latest:
    """What was found out about an op the last time that somebody asked, and what for."""

    ins: list[Fact]
    declared: list[Blob]
    facts: list[Fact]


def _latest(op: Op) -> dict[tuple[int | None, bool], _Latest]:
    """By what stands for unknown sizes: assumed sizes and those of a call are asked in turns."""
    return {}


def with_known_shapes(net: Net) -> Net:
    """The Net with every shape that can be found out filled in, here and in all step nets."""
    return filled(known_net(net))


def filled(known: KnownNet) -> Net:
    """The Net with the shapes that were found, here and in all step nets, and with trip counts."""
    return known.once(_filled_in)


def _filled_in(known: KnownNet) -> Net:
    if not known.inner:
        return known.net
    ops = tuple(
        _filled(op, known)
        if op.nets and all((op.name, key) in known.inner for key in op.nets)
        else op
        for op in known.net.ops
    )
    return known.net.replace(ops=ops)


def _filled(op: Op, known: KnownNet) -> Op:
    trips = known.trips.get(op.name)
    return op.replace(
        nets={key: filled(known.inner[op.name, key]) for key in op.nets},
        attributes=op.attributes if trips is None else {**op.attributes, TRIPS: trips},
    )


class _Filler:
    def __init__(
        self,
        net: Net,
        unknown: int | None,
        observed: Mapping[Path, int],
        path: Path,
        unknown_trips: Sequence[int],
        most: bool,
    ):
        self.net = net
        self.unknown = unknown
        self.most = most
        self.observed = observed
        self.path = path
        self.unknown_trips = unknown_trips
        self.facts: dict[str, Fact] = {}
        self.given: dict[str, int | float | bool | tuple] = {}  # values among the facts
        self.trips: dict[str, int | None] = {}
        self.inner: dict[tuple[str, str], KnownNet] = {}
        self.growing: dict[str, int] = {}
        self.ways: dict[str, tuple[str, dict[str, Fact]]] = {}  # blob -> what decides, by branch

    def run(self, inputs: Sequence[Fact] | None) -> KnownNet:
        for index, name in enumerate(self.net.inputs):
            given = inputs[index] if inputs is not None else UNKNOWN
            self._note(name, self._settled(self.net.blobs[name], given))
        for op in self.net.of_ops(topological):
            for name, fact in zip(op.outputs, self._facts_of(op), strict=False):
                self._note(name, fact)
        facts = self.facts
        blobs = {}
        for name, blob in self.net.blobs.items():
            shape = facts[name].shape if name in facts else None
            blobs[name] = blob if blob.shape == shape else Blob(name, blob.dtype, shape)
        filled_in = self.net.replace(blobs=blobs)
        return KnownNet(
            filled_in, self.net.blobs, facts, self.trips, self.inner, growing=self.growing
        )

    def _note(self, name: str, fact: Fact) -> None:
        self.facts[name] = fact
        if fact.value is not None:
            self.given[name] = fact.value

    def _facts_of(self, op: Op) -> list[Fact]:
        """What is known of each result of an op, the trace included."""
        ins = [self.facts.get(blob, UNKNOWN) for blob in op.inputs]
        declared = [self.net.blobs[blob] for blob in op.outputs]
        if op.nets:
            results = self._loop(op, ins) if op.type in LOOPS else self._branches(op, ins)
            return [self._settled(*one) for one in zip(declared, results, strict=False)]
        # Most of a Net reads the same when it is looked at again, and when it was rewritten.
        answers, how = op.once(_latest), (self.unknown, self.most)
        counts = op.type == _COUNTS and declared[0].dtype in REAL_DTYPES
        if counts:
            ins = list(map(self._counted, op.inputs, ins))
        latest = answers.get(how)
        if latest is not None and latest.ins == ins and latest.declared == declared:
            return latest.facts
        results = results_of(op, ins, declared)
        if counts:  # values are followed of whole numbers alone
            results = [Fact(one.shape) for one in results]
        if self.most:
            results = _at_most(op, ins, declared, results)
        facts = [self._settled(*one) for one in zip(declared, results, strict=False)]
        answers[how] = _Latest(ins, declared, facts)
        return facts

    def _counted(self, blob: str, fact: Fact) -> Fact:
        """A bound or a step of a range of real numbers, whose length it tells where it is whole."""
        value = constant_value(self.net, blob)
        is_whole = isinstance(value, float) and value.is_integer()
        return Fact((), int(value)) if is_whole and fact.value is None else fact

    def _settled(self, declared: Blob, found: Fact) -> Fact:
        fact = possible(merged(declared, found))
        if self.unknown is not None and fact.shape is not None and None in fact.shape:
            filled = tuple(self.unknown if size is None else size for size in fact.shape)
            fact = dataclasses.replace(fact, shape=filled)
        return fact

    def _inner(self, op: Op, key: str, inputs: Sequence[Fact]) -> KnownNet:
        """A step net of an op, filled in for these inputs."""
        path = self.path.child(op.name, key)
        deeper = (self.unknown_trips[1:] if op.type in LOOPS else ()) or self.unknown_trips
        return known_net(op.nets[key], inputs, self.unknown, self.observed, path, deeper, self.most)

    def _branches(self, op: Op, ins: list[Fact]) -> list[Fact]:
        """A call or a branch: what all of its Nets agree on."""
        results: list[list[Fact]] = []
        decides = through_identities(self.net, op.inputs[0]) if op.type in BRANCHES else ""
        for key, inner in op.nets.items():
            first = len(ins) - len(inner.inputs)
            given = [
                self._where_taken(blob, fact, decides, key)
                for blob, fact in zip(op.inputs[first:], ins[first:], strict=True)
            ]
            known = self._inner(op, key, given)
            self.inner[op.name, key] = known
            results.append([known.facts[blob] for blob in inner.outputs])
        for place, blob in enumerate(op.outputs if decides else ()):
            self.ways[blob] = (
                decides,
                {key: one[place] for key, one in zip(op.nets, results, strict=True)},
            )
        found = [common(facts) for facts in zip(*results, strict=True)]
        if self.most:
            found = list(map(_at_most_of, found, zip(*results, strict=True)))
        return found

    def _where_taken(self, blob: str, fact: Fact, decides: str, key: str) -> Fact:
        """What is known in a branch: of what another gave that went the same way, its own."""
        decided, ways = self.ways.get(blob, ("", {}))
        return ways.get(key, fact) if decides and decided == decides else fact

    def _loop(self, op: Op, ins: list[Fact]) -> list[Fact]:
        loop = Loop(self.net, op)
        given = self.given
        invariants = {*loop.invariants.values(), *_kept(loop)}
        trips = trip_count(loop, given)
        asks = any(one.type in ASKS_SHAPE for one in loop.cond.ops)
        if trips is None and asks and self.unknown is None:  # else trips are assumed as well
            trips = trip_count(loop, given, self._asked(op, ins, invariants))
        if trips is None:
            assumed = self.unknown_trips[0] if self.unknown_trips else self.unknown
            trips = self.observed.get(self.path.child(op.name), assumed)
        self.trips[op.name] = trips
        starts, known, grow = self._body(op, loop, ins, invariants, trips)
        after = [known.facts[blob] for blob in loop.body.outputs]
        lengths, grown = lengths_behind(loop, ins, after, trips, given)
        while _lengths_change(starts, after) and reads_lengths(loop.body):
            # The first iteration's length is not that of the others.
            pairs = zip(starts, after, strict=True)
            starts = [a if a.length == b.length else _longer(a) for a, b in pairs]
            known = self._inner(op, "body", starts)
            after = [known.facts[blob] for blob in loop.body.outputs]
        known = dataclasses.replace(known, grown=grown) if grown else known
        self.inner[op.name, "body"] = known
        self.inner[op.name, "cond"] = self._inner(op, "cond", starts)
        results = []
        for index, (start, end) in enumerate(zip(ins, after, strict=True)):
            last = end if trips else _in_any(start, end)  # it may have run no iteration
            if index in grow:
                last = sizes_after(start, grow[index], trips or 0)
                self._note_growth(
                    op, loop.body.blobs[loop.body.inputs[index]].dtype, starts[index], last
                )
            after_all = Fact(last.shape, None, last.element, lengths[index], asked=last.asked)
            fact = start if index in invariants else after_all
            if index not in invariants and loop.body.blobs[loop.body.inputs[index]].shape == ():
                fact = dataclasses.replace(fact, value=_counter(loop, index, start, trips, given))
            results.append(fact)
        return results

    def _note_growth(self, op: Op, dtype: str, taken: Fact, last: Fact) -> None:
        more = (bytes_of(dtype, last.shape) or 0) - (bytes_of(dtype, taken.shape) or 0)
        self.growing[op.name] = self.growing.get(op.name, 0) + max(0, more)

    def _asked(self, op: Op, ins: list[Fact], invariants: set[int]) -> dict[str, Number]:
        """Values in a loop's cond that follow from what is the same in each iteration."""
        same = [fact if at in invariants else UNKNOWN for at, fact in enumerate(ins)]
        known = self._inner(op, "cond", same)
        return {blob: fact.value for blob, fact in known.facts.items() if fact.value is not None}

    def _body(
        self, op: Op, loop: Loop, ins: list[Fact], invariants: set[int], trips: int | None
    ) -> tuple[list[Fact], KnownNet, dict[int, Growth]]:
        """What is known of variables in every iteration, the body with that, and what grows."""
        starts = [
            fact if index in invariants or fact.value is None else _without_value(fact)
            for index, fact in enumerate(ins)
        ]
        grow: dict[int, Growth] = {}
        counters: dict[int, int] = {}
        if self.most and trips:  # else it must hold in each iteration
            behind = self._inner(op, "body", starts)
            grow = growths(starts, [behind.facts[blob] for blob in loop.body.outputs], trips)
            for index, growth in grow.items():
                starts[index] = sizes_after(starts[index], growth, middle(trips))
            counters = self._counters(loop, ins, invariants, middle(trips))
            for index, value in counters.items():
                starts[index] = dataclasses.replace(starts[index], value=value)
        for turn in range(_MOST_PASSES + 1):
            known = self._inner(op, "body", starts)
            after = [known.facts[blob] for blob in loop.body.outputs]
            if grow:
                same = growths(starts, after, 0)
                grow = {index: one for index, one in grow.items() if same.get(index) == one}
            settled = invariants | grow.keys() | counters.keys()
            follow = [
                start if index in settled else _in_any(start, end)
                for index, (start, end) in enumerate(zip(starts, after, strict=True))
            ]
            if not any(
                _differ(a, b) and not (a.shape == b.shape and _only_filled(loop, index, a))
                for index, (a, b) in enumerate(zip(starts, follow, strict=True))
            ):
                break
            if turn == _MOST_PASSES - 1:  # each pass would know less of one more
                follow = [a if i in invariants else UNKNOWN for i, a in enumerate(follow)]
            starts = follow
        return starts, known, grow

    def _counters(
        self, loop: Loop, ins: Sequence[Fact], invariants: set[int], iterations: int
    ) -> dict[int, int]:
        """The values, behind so many iterations, of variables that count them."""
        found = {
            index: _counter(loop, index, start, iterations, self.given)
            for index, start in enumerate(ins)
            if index not in invariants
        }
        return {index: value for index, value in found.items() if value is not None}


_COUNTED = slots("counted")


def _at_most(
    op: Op, ins: Sequence[Fact], declared: Sequence[Blob], results: Sequence[Fact]
) -> Sequence[Fact]:
    """The results with the most rows that they may have, where values decide how many."""
    counted = ins[_COUNTED[op.type]].shape if op.type in _COUNTED else None
    if counted is None or None in counted:
        return results
    rows = math.prod(size or 0 for size in counted)
    found = []
    for blob, fact in zip(declared, results, strict=False):
        shape = merged(blob, fact).shape
        if shape and shape[0] is None:
            fact = dataclasses.replace(fact, shape=(rows, *shape[1:]))
        found.append(fact)
    return found


def _at_most_of(agreed: Fact, ways: Sequence[Fact]) -> Fact:
    """What branches agree on, as large as the largest of them gives it."""
    known = [one.shape for one in ways if one.shape is not None and None not in one.shape]
    if len(known) < len(ways) or len({len(shape) for shape in known}) > 1:
        return agreed
    return dataclasses.replace(agreed, shape=tuple(map(max, zip(*known, strict=True))))


_MOST_PASSES = 4
"""Passes over a body after which nothing is known of what changes from iteration to iteration."""


def _kept(loop: Loop) -> list[int]:
    """Variables that become the larger of themselves and themselves: they stay, and hide it."""
    makers = [loop.body.producer.get(blob) for blob in loop.body.outputs]
    return [
        index
        for index, (argument, op) in enumerate(zip(loop.body.inputs, makers, strict=True))
        if op is not None and op.type == "Maximum" and {*op.inputs} == {argument}
    ]


def _in_any(start: Fact, end: Fact) -> Fact:
    """What is known of a variable in the first iteration and in those behind it.

    The length of a list is followed by itself (:mod:`rnnmem.analysis.list_lengths`).
    """
    if end.length != start.length:
        end = dataclasses.replace(end, length=start.length)
    return _without_value(common((start, end)))


def _differ(one: Fact, other: Fact) -> bool:
    return one.shape != other.shape or one.element != other.element


def _only_filled(loop: Loop, index: int, start: Fact) -> bool:
    """Whether a variable is a list without elements that its body fills and does not read."""
    element = start.element
    if element is None or not element.unset:
        return False
    return _fills(loop.body, loop.body.inputs[index], index)


_FILLING = types("list", "length", "push", "resize", "place", "set")
"""Ops that put elements into their first input, a list, or see none of them."""


def _fills(net: Net, blob: str, index: int) -> bool:
    """Whether nobody in a body reads an element of a list, itself or with more put in.

    Args:
      net: the body.
      blob: the list.
      index: of the variable that it is; as another it would be read as that.
    """
    own = net.outputs[index : index + 1] == (blob,)
    readers = net.readers.get(blob, ())
    if net.fan_out(blob) > len(readers) + own:
        return False
    for reader in readers:
        slots = [slot for slot, one in enumerate(reader.inputs) if one == blob]
        if reader.type in LOOPS:
            nets = list(reader.nets.values())
            follow = [
                *((inner, inner.inputs[slot], slot) for inner in nets for slot in slots),
                *((net, reader.outputs[slot], index) for slot in slots),
            ]
        elif reader.type == "Identity" or (reader.type in _FILLING and slots == [0]):
            follow = [(net, one, index) for one in reader.outputs[:1]]
        else:
            return False
        if not all(_fills(*one) for one in follow):
            return False
    return True


def _counter(loop: Loop, index: int, start: Fact, trips: int | None, given) -> int | None:
    """The last value of a variable that grows by a constant."""
    if not isinstance(start.value, int) or trips is None:
        return None
    grows = growth(loop, index, given)
    return None if grows is None else start.value + trips * grows


def _lengths_change(starts: Sequence[Fact], after: Sequence[Fact]) -> bool:
    pairs = zip(starts, after, strict=True)
    return any(a.length is not None and a.length != b.length for a, b in pairs)


def _longer(fact: Fact) -> Fact:
    """A list that is of another length in each iteration."""
    return dataclasses.replace(fact, length=None)


def _without_value(fact: Fact) -> Fact:
    if fact.value is None and fact.pushed is None:
        return fact
    return dataclasses.replace(fact, value=None, pushed=None)
