"""Step nets as graphs that a page can draw: what is saved, recomputed, invariant, and why.

Constants, lists, counters and what rnnmem keeps its books with are left out; an edge goes through
what is left out:

    x ─► Identity ─► MatMul        drawn as        x ─► MatMul
    Const ─────────────┘
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from rnnmem.ir.graph import Blob, Net, Op
from rnnmem.ir.op_table import LOOPS, POP, READ, types
from rnnmem.ir.order import maker, through_identities, topological
from rnnmem.passes.rematerialise.decision import INVARIANT, RECOMPUTED
from rnnmem.planning.plan import Plan
from rnnmem.reports.data import Graph, Node, Part
from rnnmem.reports.kinds import Kinds, Place, places
from rnnmem.reports.layers import layers
from rnnmem.reports.rows import largest
from rnnmem.reports.told import Told
from rnnmem.sizes import counted

NODES = 6000
"""Ops that are drawn in all, about."""
LAYERED = 60
"""Ops from which on a function without loops is drawn by its layers."""
FEWEST, MOST = 40, 240
"""Ops that one graph may have at least, and at most."""
GRAPHS = 150

_HIDDEN = types("quiet")
_HANDED_ON = ("Identity", READ)
_NOTHING: Mapping[str, str] = MappingProxyType({})
_NO_PEAKS: Mapping[str, Iterable[Part]] = MappingProxyType({})
_SMALL = 8
"""Bytes up to which a blob is a counter."""


def graphs(
    original: Net,
    rewritten: Net,
    plan: Plan,
    inputs: Mapping[str, str] = _NOTHING,
    peaks: Mapping[str, Iterable[Part]] = _NO_PEAKS,
) -> tuple[Graph, ...]:
    """The function and its step nets, before and after; shapes filled in.

    Args:
      original: the function as it was.
      rewritten: as it runs now; the original itself where nothing was changed.
      plan: what becomes of the original's blobs.
      inputs: inputs of the function -> the user's names of those arguments and variables.
      peaks: ``before`` and ``after`` -> the parts of that peak; the ops of the largest are drawn.
    """
    sides = [("before", original)]
    if rewritten is not original:
        sides.append(("after", rewritten))
    every = [(side, loops, net) for side, whole in sides for loops, net in _nets(whole)]
    every = every[:GRAPHS]
    most = max(FEWEST, min(MOST, NODES // len(every)))
    told = {side: Told(side, Kinds(whole, original, plan, frozenset())) for side, whole in sides}
    around = {(side, loops): net for side, loops, net in every}
    drawn: list[Graph] = []
    for side, loops, net in every:
        name_of = functools.partial(_outer_name, around, side, loops, inputs)
        at_peak = {
            part.label.rpartition(": ")[2]
            for row in largest(peaks.get(side, ()))
            for part in row
            if part.loops == loops
        }
        drawn += _Drawing(loops, net, told[side], most, name_of, at_peak).graphs()
    there = {graph.id for graph in drawn}
    return tuple(_with_open_doors(graph, there) for graph in drawn)


def _nets(net: Net) -> Iterator[tuple[Place, Net]]:
    """The function and the bodies of its loops; where a branch is in the way, the first there."""
    seen = set()
    for loops, inner in places(net):
        if loops not in seen:
            seen.add(loops)
            yield loops, inner


def _outer_name(
    nets: Mapping[tuple[str, Place], Net],
    side: str,
    loops: Place,
    names: Mapping[str, str],
    place: int,
) -> str:
    """The user's name of what a loop is given at a place from outside; empty where it has none."""
    outer = nets.get((side, loops[:-1]))
    op = None if outer is None else outer.op_by_name.get(loops[-1])
    if outer is None or op is None:
        return ""
    blob = op.inputs[place]
    while (made := outer.producer.get(blob)) is not None and made.type in _HANDED_ON:
        blob = made.inputs[0]
    if made is not None or len(loops) == 1:
        return names.get(blob, "")
    return _outer_name(nets, side, loops[:-1], names, outer.inputs.index(blob))


def _with_open_doors(graph: Graph, there: set[str]) -> Graph:
    """The graph, whose nodes open only what was drawn."""
    nodes = tuple(
        node if not node.opens or node.opens in there else dataclasses.replace(node, opens="")
        for node in graph.nodes
    )
    return dataclasses.replace(graph, nodes=nodes)


def graph_id(side: str, loops: Place) -> str:
    """Names the graph of a step net."""
    return "/".join((side, *loops))


class _Drawing:
    """One step net, or the function itself."""

    def __init__(
        self,
        loops: Place,
        net: Net,
        told: Told,
        most: int,
        name_of: Callable[[int], str],
        at_peak: set[str],
    ):
        self.loops, self.net, self.told, self.most = loops, net, told, most
        self.name_of = name_of
        self.at_peak = at_peak  # the largest blobs there
        self.side = told.side
        self.ops = topological(net.ops)

    def graphs(self) -> list[Graph]:
        """The graph; of a large function without loops, one of its layers, and one of each."""
        shown = [op for op in self.ops if self._shows(op)]
        large = not self.loops and len(shown) > LAYERED
        layer_of: Mapping[str, str] = {}
        if large and not any(op.type in LOOPS for op in self.ops):
            layer_of = layers(shown, lambda op: self.told.runs_again(self.loops, op))
        if not layer_of:
            return [self._graph(self.loops, [*self._inputs(), *self._visible(shown)], shown)]
        of_layer: dict[str, list[Op]] = {}
        for op in shown:
            of_layer.setdefault(layer_of[op.name], []).append(op)
        drawn = [self._of_layers(of_layer)]
        for layer, ops in of_layer.items():
            drawn.append(self._graph((layer,), list(self._largest(ops)), ops))
        return drawn

    def _graph(self, loops: Place, shown: list[Op | str], ops: list[Op]) -> Graph:
        """The graph of some ops, of all ``ops`` that there are, and of inputs."""
        number = {one.name: index for index, one in enumerate(shown) if isinstance(one, Op)}
        given = {one: index for index, one in enumerate(shown) if isinstance(one, str)}
        left = [op for op in ops if op.name not in number]
        return Graph(
            id=graph_id(self.side, loops),
            title=f"step net of {loops[-1]}" if loops else "the whole function",
            loops=loops,
            side=self.side,
            nodes=tuple(map(self._node, shown)),
            edges=self._edges(number, given),
            left_out=len(left),
            left_bytes=max(map(self._size, left), default=0),
        )

    def _of_layers(self, of_layer: Mapping[str, list[Op]]) -> Graph:
        """The function, a node for each layer."""
        place = {layer: index for index, layer in enumerate(of_layer)}
        number = {op.name: place[layer] for layer, ops in of_layer.items() for op in ops}
        return Graph(
            id=graph_id(self.side, ()),
            title="the whole function",
            loops=(),
            side=self.side,
            nodes=tuple(self._layer(layer, ops) for layer, ops in of_layer.items()),
            edges=self._edges(number, {}),
        )

    def _layer(self, layer: str, ops: list[Op]) -> Node:
        again = sum(self.told.runs_again(self.loops, op) for op in ops)
        return Node(
            name=layer,
            type="layer",
            dtype="",
            shape=None,
            bytes=sum(map(self._size, ops)),
            source=str(ops[0].source or layer),
            decision=RECOMPUTED if again else "",
            reason=counted(len(ops), "op") + (" run again" if again == len(ops) else ""),
            opens=graph_id(self.side, (layer,)),
        )

    def _inputs(self) -> list[str]:
        """Tensors that come into a step net, but no counters."""
        if not self.loops:
            return []
        return [blob for blob in self.net.inputs if self._is_tensor(blob) and self._is_read(blob)]

    def _is_read(self, blob: str) -> bool:
        return any(op.type != "Identity" for op in self.net.readers.get(blob, ()))

    def _is_tensor(self, blob: str) -> bool:
        known = self.net.blobs[blob]
        small = known.bytes is not None and known.bytes <= _SMALL
        return known.dtype not in ("variant", "resource") and not small

    def _visible(self, shown: list[Op]) -> list[Op]:
        """The ops to be drawn."""
        if self.loops or not any(op.type in LOOPS for op in shown):
            return self._largest(shown)
        return self._largest([op for op in shown if op.type in LOOPS or self._is_at_peak(op)])

    def _largest(self, found: list[Op]) -> list[Op]:
        """As many of some ops as are drawn at most, those of most interest."""
        if len(found) <= self.most:
            return found
        ranked = sorted(found, key=self._rank)
        chosen = {op.name for op in ranked[: self.most]}
        return [op for op in found if op.name in chosen]

    def _rank(self, op: Op) -> tuple[bool, bool, bool, int]:
        """What goes first where not all can be drawn."""
        return (
            not op.nets,
            not self._is_at_peak(op),
            not self.told.of_op(self.loops, self.net, op).word,
            -self._size(op),
        )

    def _is_at_peak(self, op: Op) -> bool:
        return not self.at_peak.isdisjoint(op.outputs)

    def _shows(self, op: Op) -> bool:
        if self.told.keeps_books(self.loops, self.net, op):
            return False
        if op.nets or op.type == POP:
            return True
        return op.type not in _HIDDEN and any(map(self._is_tensor, op.outputs))

    def _size(self, op: Op) -> int:
        return sum(self.net.blobs[blob].bytes or 0 for blob in op.outputs)

    def _edges(
        self, number: Mapping[str, int], given: Mapping[str, int]
    ) -> tuple[tuple[int, int], ...]:
        """Pairs of nodes between which data flows, through nothing that is drawn.

        Args:
          number: names of ops -> the node that each is drawn in.
          given: inputs of the net -> the node of each.
        """
        masks = {blob: 1 << index for blob, index in given.items()}
        found: dict[tuple[int, int], None] = {}
        for op in self.ops:
            mask = 0
            for blob in op.inputs:
                mask |= masks.get(blob, 0)
            own = number.get(op.name)
            if own is not None:
                found.update(dict.fromkeys((one, own) for one in _bits(mask) if one != own))
                mask = 1 << own
            masks.update(dict.fromkeys(op.outputs, mask))
        return tuple(found)

    def _node(self, one: Op | str) -> Node:
        if isinstance(one, str):
            return self._input_node(one)
        blob = next(filter(self._is_tensor, one.outputs), None)
        known = self.net.blobs[blob] if blob else Blob("", "")
        told = self.told.of_op(self.loops, self.net, one)
        door = self.told.opens(self.loops, one)
        return Node(
            name=one.name,
            type=self.told.type_of(self.loops, self.net, one),
            dtype=known.dtype,
            shape=known.shape,
            bytes=known.bytes if blob else None,
            source=str(one.source or one.name),
            decision=told.word,
            reason=told.reason,
            opens="" if door is None else graph_id(self.side, door),
            title=self._variable(one) if one.type == READ else "",
        )

    def _variable(self, op: Op) -> str:
        """The name of the variable that an op of a step net reads."""
        handle = op.inputs[0]
        inside = self.loops and handle in self.net.inputs
        return self.name_of(self.net.inputs.index(handle)) if inside else ""

    def _input_node(self, blob: str) -> Node:
        known = self.net.blobs[blob]
        place = self.net.inputs.index(blob)
        carried = len(self.net.outputs) > place
        same = carried and self._is_handed_on(blob, place)
        following = maker(self.net, blob) if carried else None
        told = self.told.of_input(self.loops, self.net, blob)
        word, reason = told.word, told.reason
        if same:
            word, reason = INVARIANT, "the same in every iteration"
        kind = "invariant" if same else "state"
        name = self.name_of(place) if same else ""
        shape, size = known.shape, known.bytes
        line = blob if following is None else str(following.source or blob)
        return Node(blob, kind, known.dtype, shape, size, line, word, reason, title=name)

    def _is_handed_on(self, blob: str, place: int) -> bool:
        return through_identities(self.net, self.net.outputs[place]) == blob


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
