"""Shapes as a run would see them: sizes that a trace leaves open and constants or trips tell.

A traced loop forgets how many elements its lists have, so everything made from them has an unknown
dimension. Here small integers (shapes, axes, list lengths) are followed through the Net and its
step nets, and loops run as often as `trips` says:

    TensorListReserve(n = 150) ─► While, 150 iterations ─► TensorListStack
                                              traced [?, 32, 256], found [150, 32, 256]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rnnmem.net.loops import Loop
from rnnmem.net.nouns import Blob, Net, Op, Shape
from rnnmem.net.optypes import LOOPS
from rnnmem.net.order import topological
from rnnmem.net.shape_rules import RULES, UNKNOWN, Fact, merged
from rnnmem.net.trips import growth, trip_count

_NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class KnownNet:
    """A Net with its shapes filled in, and what else was found out.

    Attributes:
      net: the Net; its blobs have the shapes that were found, its ops are the original ones.
      declared: the shapes as traced, which are all that TensorFlow's graph optimizer knows.
      facts: blob -> what is known of it.
      trips: loop op -> iterations, None where only a run can tell.
      inner: (op, attribute) -> the step net, filled in as it runs in this place.
    """

    net: Net
    declared: Mapping[str, Blob]
    facts: Mapping[str, Fact]
    trips: Mapping[str, int | None]
    inner: Mapping[tuple[str, str], KnownNet]


def known_net(
    net: Net,
    inputs: Sequence[Fact] | None = None,
    unknown_dimension: int | None = None,
    observed: Mapping[str, int] = _NOTHING,
    path: str = "",
    unknown_trips: Sequence[int] = (),
) -> KnownNet:
    """Fills in the shapes of a Net and of all step nets in it.

    Args:
      net: the Net.
      inputs: what is known of its inputs; None: what is declared.
      unknown_dimension: stands for a dimension, and a trip count, that stays unknown.
      observed: path of a loop op (``while/body/while_1``) -> how often it ran in some run, for
        loops whose trip count the Net does not tell.
      path: of the Net itself, ending in a slash; empty for a whole function.
      unknown_trips: stand for trip counts that stay unknown, of the Net's own loops, of those in
        their bodies, and so on; the last of them for all that are deeper.
    """
    return _Filler(net, unknown_dimension, observed, path, unknown_trips).run(inputs)


def with_known_shapes(net: Net) -> Net:
    """The Net with every shape that can be found out filled in, here and in all step nets."""
    return filled(known_net(net))


def filled(known: KnownNet) -> Net:
    """The Net with the shapes that were found, here and in all step nets."""
    if not known.inner:
        return known.net
    ops = tuple(
        op.replace(nets={key: filled(known.inner[op.name, key]) for key in op.nets})
        if op.nets and all((op.name, key) in known.inner for key in op.nets)
        else op
        for op in known.net.ops
    )
    return known.net.replace(ops=ops)


class _Filler:
    def __init__(
        self,
        net: Net,
        unknown: int | None,
        observed: Mapping[str, int],
        path: str,
        unknown_trips: Sequence[int],
    ):
        self.net = net
        self.unknown = unknown
        self.observed = observed
        self.path = path
        self.unknown_trips = unknown_trips
        self.facts: dict[str, Fact] = {}
        self.given: dict[str, int | float | bool | tuple] = {}  # values among the facts
        self.trips: dict[str, int | None] = {}
        self.inner: dict[tuple[str, str], KnownNet] = {}

    def run(self, inputs: Sequence[Fact] | None) -> KnownNet:
        for index, name in enumerate(self.net.inputs):
            given = inputs[index] if inputs is not None else UNKNOWN
            self._learn(name, given)
        for op in self.net.of_ops(topological):
            for name, found in zip(op.outputs, self._results(op), strict=False):
                self._learn(name, found)
        facts = self.facts
        shapes = {name: facts[name].shape if name in facts else None for name in self.net.blobs}
        blobs = {
            name: blob if blob.shape == shapes[name] else Blob(name, blob.dtype, shapes[name])
            for name, blob in self.net.blobs.items()
        }
        return KnownNet(
            self.net.replace(blobs=blobs), self.net.blobs, self.facts, self.trips, self.inner
        )

    def _learn(self, name: str, found: Fact) -> None:
        self.facts[name] = fact = self._settled(name, found)
        if fact.value is not None:
            self.given[name] = fact.value

    def _settled(self, name: str, found: Fact) -> Fact:
        fact = merged(self.net.blobs[name], found)
        if self.unknown is not None and fact.shape is not None and None in fact.shape:
            filled = tuple(self.unknown if size is None else size for size in fact.shape)
            fact = dataclasses.replace(fact, shape=filled)
        return fact

    def _results(self, op: Op) -> list[Fact]:
        ins = [self.facts.get(blob, UNKNOWN) for blob in op.inputs]
        if op.type in LOOPS:
            return self._loop(op, ins)
        if op.nets:
            return self._branches(op, ins)
        rule = RULES.get(op.type)
        found = rule(op, ins) if rule else []
        return [*found, *[UNKNOWN] * (len(op.outputs) - len(found))]

    def _inner(self, op: Op, key: str, inputs: Sequence[Fact]) -> KnownNet:
        """A step net of an op, filled in for these inputs."""
        path = f"{self.path}{op.name}/{key}/"
        deeper = (self.unknown_trips[1:] if op.type in LOOPS else ()) or self.unknown_trips
        return known_net(op.nets[key], inputs, self.unknown, self.observed, path, deeper)

    def _branches(self, op: Op, ins: list[Fact]) -> list[Fact]:
        """A call or a branch: what all of its Nets agree on."""
        results: list[list[Fact]] = []
        for key, inner in op.nets.items():
            known = self._inner(op, key, ins[len(ins) - len(inner.inputs) :])
            self.inner[op.name, key] = known
            results.append([known.facts[blob] for blob in inner.outputs])
        return [_common(facts) for facts in zip(*results, strict=True)]

    def _loop(self, op: Op, ins: list[Fact]) -> list[Fact]:
        loop = Loop(self.net, op)
        given = self.given
        trips = trip_count(loop, given)
        if trips is None:
            assumed = self.unknown_trips[0] if self.unknown_trips else self.unknown
            trips = self.observed.get(self.path + op.name, assumed)
        self.trips[op.name] = trips
        invariants = set(loop.invariants.values())
        starts = [
            fact if index in invariants or fact.value is None else _without_value(fact)
            for index, fact in enumerate(ins)
        ]
        known = self._inner(op, "body", starts)
        after = [known.facts[blob] for blob in loop.body.outputs]
        changing = [
            start if start.element else _common((start, end))
            for start, end in zip(starts, after, strict=True)
        ]
        if any(a.shape != b.shape for a, b in zip(starts, changing, strict=True)):
            starts = changing  # a shape that changes from one iteration to the next is not known
            known = self._inner(op, "body", starts)
            after = [known.facts[blob] for blob in loop.body.outputs]
        self.inner[op.name, "body"] = known
        self.inner[op.name, "cond"] = self._inner(op, "cond", starts)
        results = []
        for index, (start, end) in enumerate(zip(ins, after, strict=True)):
            fact = start if index in invariants else _after(start, end, trips)
            if index not in invariants and loop.body.blobs[loop.body.inputs[index]].shape == ():
                fact = dataclasses.replace(fact, value=_counter(loop, index, start, trips, given))
            results.append(fact)
        return results


def _counter(loop: Loop, index: int, start: Fact, trips: int | None, given) -> int | None:
    """The last value of a variable that grows by a constant."""
    grows = growth(loop, index, given)
    if not isinstance(start.value, int) or grows is None or trips is None:
        return None
    return start.value + trips * grows


def _after(start: Fact, end: Fact, trips: int | None) -> Fact:
    """A loop variable when the loop has ended; a list has then grown or shrunk every iteration."""
    length = start.length
    if start.length is not None and end.length is not None and end.length != start.length:
        length = None if trips is None else start.length + trips * (end.length - start.length)
    return Fact(end.shape, None, end.element, length)


def _without_value(fact: Fact) -> Fact:
    return Fact(fact.shape, None, fact.element, fact.length)


def _common(facts: Sequence[Fact]) -> Fact:
    first = facts[0]
    for other in facts[1:]:
        first = Fact(
            _common_shape(first.shape, other.shape),
            first.value if first.value == other.value else None,
            first.element or other.element,
            first.length if first.length == other.length else None,
        )
    return first


def _common_shape(first: Shape, second: Shape) -> Shape:
    if first is None or second is None or len(first) != len(second):
        return None
    return tuple(a if a == b else None for a, b in zip(first, second, strict=True))
