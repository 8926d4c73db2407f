"""Which addends TensorFlow's AddN may overwrite, as a function runs: it begins with the first.

AddN adds the others to the first addend whose buffer nobody else holds, and with three or more that
is another order of summation. Who holds a buffer follows from the graph, or is a race:

    held     in a list, a constant, another addend too, or what reads it waits for the sum
    alone    nobody else reads it, or the sum waits for all who do
    racing   another reader is not ordered with the sum, in this iteration or the next, which may
             be under way as well
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence

from rnnmem.verify.flat_graph import FlatGraph, FlatOp

ALONE, RACING, HELD = "alone", "racing", "held"
SAME = frozenset(
    """Identity Enter NextIteration OptimizationBarrier XlaOptimizationBarrier Snapshot StopGradient
    PreventGradient Reshape ExpandDims Squeeze EnsureShape Bitcast CheckNumerics DeepCopy LoopCond
    PlaceholderWithDefault BroadcastTo Tile _Retval""".split()
)
"""Op types that give what they read first."""
_LISTS = frozenset({"TensorListPushBack", "TensorListSetItem"})
_OPTIONALS = frozenset({"OptionalFromValue", "OptionalGetValue"})
_SHARES = (
    SAME - {"BroadcastTo", "Tile", "DeepCopy"}
    | _OPTIONALS
    | {"Switch", "Merge", "Exit", "_SwitchN"}
)
"""Op types whose first output is the buffer that they read."""
_ALWAYS = frozenset({"Const", "_Arg", "ReadVariableOp", "VarHandleOp"})
"""Op types whose result somebody else holds for as long as the function runs."""


_MOST = 64
"""Ways through branches that one addend may have come; of more nothing is said."""
_FAR = 3
"""Ops more in a row that a sum waits for, so that an op that might have raced with it is done."""
_Blob = tuple[str, int]


class Addends:
    """Who holds what the sums of one function add up."""

    def __init__(self, graph: FlatGraph):
        self.graph = graph
        self._loops: dict[str, tuple[str, ...]] = {}
        self._enters: dict[str, FlatOp] = {}
        self._racing: dict[str, set[tuple[str, ...]]] = {}
        for op in graph.order:
            around = max((self._loops[name] for name, _ in _data(graph, op)), key=len, default=())
            if op.type == "Enter":
                self._enters.setdefault(op.frame, op)
                around = (*around, op.frame)
            self._loops[op.name] = around[:-1] if op.type == "Exit" else around

    def of(self, op: FlatOp) -> tuple[str, ...]:
        """Of each addend of a sum whether it may be overwritten; joined by / what branches say."""
        chains = [list(itertools.islice(self._upwards(blob), _MOST)) for blob in op.inputs]
        ends = [{chain[-1] for chain in one} for one in chains]
        ordered = _Ordered(self.graph, op)
        found = []
        for place, one in enumerate(chains):
            twice = any(not ends[place].isdisjoint(e) for e in ends[:place] + ends[place + 1 :])
            ways = {HELD} if twice else {self._held(op, chain, ordered) for chain in one}
            found.append("/".join(sorted(ways)) if len(one) < _MOST else RACING)
        return tuple(found)

    def neighbours(self, op: FlatOp) -> Hashable:
        """What decides a race: what else the loops of both do, and how many iterations at once."""
        others = self._racing.get(op.name)
        loops = {self._loops[op.name], *others} if others else ()
        return tuple(sorted((self._types(one), self._parallel(one)) for one in loops))

    def _types(self, loops: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(one.type for one in self.graph.order if self._loops[one.name] == loops))

    def _parallel(self, loops: tuple[str, ...]) -> int:
        return self._enters[loops[-1]].parallel_iterations if loops else 0

    def _upwards(self, blob: _Blob, seen: tuple[_Blob, ...] = ()) -> Iterator[tuple[_Blob, ...]]:
        """The names that a buffer has had, the latest first; of a branch's result, by each branch.

        A loop's state is what its step made of it.
        """
        seen = (*seen, blob)
        source = self.graph.ops[blob[0]]
        if source.type not in _SHARES or not source.inputs:
            yield seen
        elif source.type != "Merge":
            yield from self._upwards(source.inputs[0], seen)
        elif (back := self.graph.back_edge(source)) is None:
            for one in source.inputs:
                yield from self._upwards(one, seen)
        elif self.graph.is_invariant(source):
            enter = next(one for one in source.inputs if one[0] != back.name)
            yield from self._upwards(enter, seen)
        elif (back.name, 0) not in seen:
            yield from self._upwards((back.name, 0), seen)
        else:
            yield seen

    def _held(self, op: FlatOp, chain: tuple[_Blob, ...], ordered: _Ordered) -> str:
        """Whether an addend may be overwritten if its buffer had these names."""
        if self.graph.ops[chain[-1][0]].type in _ALWAYS:
            return HELD
        loops = self._loops[op.name]
        found, later = ALONE, 0
        for at, name in enumerate(chain):
            source = self.graph.ops[name[0]]
            if source.type == "Enter" and _is_around(self._loops[source.name], loops):
                if (
                    source.parallel_iterations == 1
                    or self.graph.ops[chain[at - 1][0]].type != "Merge"
                ):
                    return HELD
                found = RACING  # what stays the same goes ahead to the loop's end
                self._racing.setdefault(op.name, set()).add(loops)
            for reader, after in self._readers(name, later, loops, {op.name}):
                one_by_one = bool(after) and self._parallel(loops) == 1
                if self._keeps(reader) or ordered.follows(reader, after):
                    return HELD
                if one_by_one and after > 0:
                    return HELD
                beside = after == 0 and self._loops[reader.name] == loops
                if beside and ordered.is_far_behind(reader):
                    continue
                if not one_by_one and not ordered.precedes(reader, after):
                    found = RACING
                    if not beside:  # those beside the sum begin together with it in both
                        self._racing.setdefault(op.name, set()).add(self._loops[reader.name])
            if source.type == "NextIteration" and _is_around(self._loops[source.name], loops):
                later -= 1
        return found

    def _readers(
        self, blob: _Blob, later: int, loops: tuple[str, ...], seen: set[str]
    ) -> Iterator[tuple[FlatOp, int]]:
        """What reads a buffer under this name or what it becomes, and how many iterations later.

        Args:
          blob: the name.
          later: how many iterations later than the sum.
          loops: those around the sum; what others hand on is another iteration's.
          seen: names of the ops that are known.
        """
        for reader in self.graph.readers.get(blob, ()):
            if reader.name in seen or self._is_anothers(reader, loops):
                continue
            seen.add(reader.name)
            if reader.type not in _SHARES or self._keeps(reader):
                yield reader, later
                continue
            after = later + (reader.type == "NextIteration")
            for place in range(max(1, len(reader.dtypes))):
                yield from self._readers((reader.name, place), after, loops, seen)

    def _is_anothers(self, reader: FlatOp, loops: tuple[str, ...]) -> bool:
        if reader.type == "Exit":
            merge = self.graph.merge_of(reader)
            return merge is not None and not self.graph.is_invariant(merge)
        return reader.type == "NextIteration" and not _is_around(self._loops[reader.name], loops)

    def _keeps(self, reader: FlatOp) -> bool:
        """Whether what an op reads stays alive in what it makes: in a list, or as a result."""
        if reader.type == "_Retval":
            return True
        after = self.graph.readers.get((reader.name, 0), [])
        if reader.type in _LISTS:
            return any(one.type != "TensorListPopBack" for one in after)
        return reader.type == "OptionalFromValue" and any(map(self._keeps_optional, after))

    def _keeps_optional(self, reader: FlatOp) -> bool:
        if reader.type in ("Merge", "Identity"):
            return any(map(self._keeps_optional, self.graph.readers.get((reader.name, 0), [])))
        return self._keeps(reader)


class _Ordered:
    """What waits for a sum, and what it waits for, in its iteration and over one back edge."""

    def __init__(self, graph: FlatGraph, op: FlatOp):
        self._graph, self._op = graph, op
        self._after = [graph.reached([op.name])]
        self._after.append(graph.reached(graph.over_back_edges(self._after[0])))
        self._before = [graph.reached([op.name], backwards=True)]
        before = graph.over_back_edges(self._before[0], backwards=True)
        self._before.append(graph.reached(before, backwards=True))

    def follows(self, op: FlatOp, later: int) -> bool:
        """Whether an op, so many iterations later, waits for the sum."""
        return later in (0, 1) and op.name in self._after[later]

    def precedes(self, op: FlatOp, later: int) -> bool:
        """Whether the sum waits for an op of so many iterations later."""
        return later in (0, -1) and op.name in self._before[-later]

    def is_far_behind(self, op: FlatOp) -> bool:
        """Whether the sum waits for so much more than an op beside it that it finds that done."""
        before = self._graph.reached([op.name], backwards=True)
        mine = self._depth(self._before[0] - before)
        return mine >= self._depth(before - self._before[0]) + _FAR

    def _depth(self, names: set[str]) -> int:
        """How many of these ops wait one for the other."""
        depth: dict[str, int] = {}
        for op in self._graph.order:
            if op.name in names:
                found = (depth.get(name, 0) for name, _ in _data(self._graph, op))
                depth[op.name] = 1 + max(found, default=0)
        return max(depth.values(), default=0)


def may_begin(buffers: Sequence[str]) -> list[int]:
    """The addends of which one is the first that a sum may overwrite."""
    found = []
    for place, one in enumerate(buffers):
        if one != HELD:
            found.append(place)
        if one == ALONE:
            break
    return found or [0]


def _is_around(outer: tuple[str, ...], inner: tuple[str, ...]) -> bool:
    return inner[: len(outer)] == outer


def _data(graph: FlatGraph, op: FlatOp) -> Iterator[_Blob]:
    return (blob for blob in op.inputs if graph.ops[blob[0]].type != "NextIteration")
