"""Sums that race with other readers of an addend, where clones would hold these up.

A sum of three values or more begins with the first addend that nobody else holds. Where the data
flow orders it with no other reader, that is a race; one that ends one way if the reader has little
to do and the sum waits for much:

    dy ─┬─► MatMul(x, dy) = dw                          has dy only as long as it runs
        └─► MatMul ─► SoftmaxGrad ─► MatMul ─► AddN(dy, …)

Where x runs again for it, the reader may come last. So the sum waits for it then, by a control
edge; where that cannot be, the region does not run again. So it is where what takes the reader's
place takes longer (`Races.awaiting`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator

from rnnmem.grappler.fusion import NEAR, may_be_awaited, may_have_proxy
from rnnmem.grappler.summation_order import addends_of, merged_sums, merged_trees
from rnnmem.ir.edges import Edge
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import ASKS_SHAPE
from rnnmem.ir.order import all_needed_by, all_waiting_for, reached, waiting_for
from rnnmem.passes.straight_line.decision import Region
from rnnmem.passes.straight_line.segments import Line

_SURELY = 3.0
"""How many times what the reader takes must lie before the sum for the reader to come first."""


@dataclasses.dataclass(frozen=True)
class Race:
    """A sum of three or more and another reader of an addend, which nothing orders.

    Attributes:
      adding: name of the sum, the last op of its tree.
      reader: name of the other.
      maker: name of the op that makes the buffer that both read; empty: it is given.
      edge: lets the sum wait for the reader, which comes first as it is; None: no edge may.
    """

    adding: str
    reader: str
    maker: str
    edge: Edge | None


class Races:
    """All races of a Net.

    Args:
      line: the Net, outside of its loops.
      seconds: estimated time of one run of an op of a Net.
    """

    def __init__(self, line: Line, seconds: Callable[[Op, Net], float]):
        self._line, self._net, self._seconds = line, line.net, seconds
        self._far: dict[str, dict[str, float]] = {}  # op -> seconds until others are done
        self._held: dict[tuple[tuple[str, ...], str], set[str]] = {}
        self._all = list(self._found())

    def settled(self, region: Region) -> Region | None:
        """The region with edges for races whose readers it holds up; None where one has none."""
        if not self._all:
            return region
        late = all_waiting_for(self._net, region.readers)
        edges: dict[Edge, None] = {}
        for race in self._all:
            if race.reader not in late:
                continue
            waits = race.adding in late
            if waits and race.reader not in self._held_up(region, race.maker):
                continue
            if race.edge is None or not waits and not self._is_backward(race.edge):
                return None
            edges[race.edge] = None
        return dataclasses.replace(region, edges=tuple(edges))

    def awaiting(self, reader: str) -> tuple[str, ...] | None:
        """Names of the sums that are to wait for what takes a reader's place, and takes longer.

        None: one of them may come first, or may not wait.
        """
        races = [race for race in self._all if race.reader == reader]
        if all(race.edge is not None and self._is_backward(race.edge) for race in races):
            return tuple(race.adding for race in races)
        return None

    def _is_backward(self, edge: Edge) -> bool:
        """Whether the sum stands behind what it would wait for: nothing waits for itself then."""
        return self._line.place[edge.after] < self._line.place[edge.op]

    def _held_up(self, region: Region, maker: str) -> set[str]:
        """What waits for the clones of a region otherwise than through an op."""
        key = region.readers, maker
        if key not in self._held:
            self._held[key] = set(
                reached(
                    [name for name in region.readers if name != maker],
                    lambda name: (one for one in waiting_for(self._net, name) if one != maker),
                )
            )
        return self._held[key]

    def _found(self) -> Iterator[Race]:
        net, sums = self._net, merged_sums(self._net)
        for tree in merged_trees(net):
            inside, last = {op.name for op in tree}, tree[0]
            behind = all_waiting_for(net, [last.name])
            ordered = inside | all_needed_by(net, [last.name]) | behind
            for blob in dict.fromkeys(addends_of(net, tree)):
                sharing = sums.sharing(blob)
                maker = self._maker(sharing)
                readers = dict.fromkeys(
                    reader.name
                    for shared in sharing
                    for reader in net.readers.get(shared, ())
                    if reader.name not in ordered and reader.type not in ASKS_SHAPE
                )
                for name in readers:
                    edge = (
                        None
                        if maker is None
                        else self._edge(tree, behind, net.op_by_name[name], maker)
                    )
                    yield Race(last.name, name, "" if maker is None else maker.name, edge)

    def _maker(self, blobs: Collection[str]) -> Op | None:
        """The op that makes what stands in a buffer first; None where it is given."""
        makers = [self._net.producer.get(blob) for blob in blobs]
        return min(
            (one for one in makers if one is not None),
            key=lambda op: self._line.place[op.name],
            default=None,
        )

    def _edge(
        self, tree: Collection[Op], last: Collection[str], reader: Op, maker: Op
    ) -> Edge | None:
        """The edge by which the sum waits for the reader; None where it would change anything."""
        (adding, *more) = tree
        if more or adding.type != "AddN" or not self._comes_first(reader, adding, maker):
            return None
        net = self._net
        if len(reader.outputs) == 1 and may_have_proxy(net, reader.outputs[0]):
            return Edge(adding.name, None, reader.name, by_proxy=True)
        behind = reached([reader.name], lambda name: waiting_for(net, name))
        near = (name for name in itertools.islice(behind, NEAR) if name not in last)
        after = (name for name in near if may_be_awaited(net, net.op_by_name[name]))
        found = next(after, None)
        return None if found is None else Edge(adding.name, None, found)

    def _comes_first(self, reader: Op, adding: Op, maker: Op) -> bool:
        """Whether the reader is surely done before the sum can begin, from what both wait for."""
        far, net = self._until(maker), self._net
        if reader.name not in far or adding.name not in far:
            return False
        made = [net.producer[blob] for blob in reader.inputs if blob in net.producer]
        early = all(one.name in far or self._is_early(one) for one in made)
        alone = far[adding.name] - self._seconds(adding, net)
        return early and _SURELY * far[reader.name] <= alone

    def _is_early(self, op: Op) -> bool:
        """Whether an op is done before the gradient arrives: a shape of what the forward part made.

        So is all of the forward part.
        """
        line, place = self._line, self._line.place[op.name]
        asks = op.name in line.constant and line.available[place] < line.last
        return place < line.turn or asks

    def _until(self, maker: Op) -> dict[str, float]:
        """Seconds from when an op is done until each op that waits for it is, at least."""
        if maker.name not in self._far:
            found = {maker.name: 0.0}
            for op in self._net.ops[self._line.place[maker.name] + 1 :]:
                sources = [self._net.producer.get(blob) for blob in op.inputs]
                before = [
                    found[one.name] for one in sources if one is not None and one.name in found
                ]
                if before:
                    found[op.name] = max(before) + self._seconds(op, self._net)
            self._far[maker.name] = found
        return self._far[maker.name]
