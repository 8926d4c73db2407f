"""Large buffers take turns, by control edges: what a storage plan means in TensorFlow.

"b takes a's storage" holds as soon as all that use a have run before b is made. The data flow
implies most of it; the rest becomes control edges, and then the memory of a run is bounded however
its threads interleave: what is alive lives in different storages of a plan that is safe for any.

    x ─► MatMul 1 ─► Relu ─► Sum 1 ┐ control edge
    x ──────────────── delayed input ◄──────┘
                        └──► MatMul 2 ─► Relu ─► Sum 2         one product at a time

An edge changes numbers where it takes an op out of a fusion, for Grappler leaves ops with control
edges alone. So edges start only at ops that it never fuses, and end there too, or at a *delayed
input*: an EnsureShape between the op and an argument or variable that it reads
(:mod:`rnnmem.grappler.fusion`). With other edges an op that may write in place is the last reader
of what it reads (:mod:`rnnmem.passes.schedule.in_place`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence

from rnnmem.analysis.machine import PATCHES_TOGETHER, TOGETHER, WIDE_SECONDS, Machine
from rnnmem.analysis.reachability import HappensBefore
from rnnmem.analysis.times import op_seconds
from rnnmem.analysis.versions import SsaVersions, overwrites, ssa
from rnnmem.grappler.cse import congruent_ops
from rnnmem.grappler.fusion import Sources, waiting_places
from rnnmem.grappler.summation_races import held_below, not_to_wait
from rnnmem.ir.edges import Edge
from rnnmem.ir.graph import Blob, Net, Op
from rnnmem.ir.marks import OWN_KERNEL
from rnnmem.ir.op_table import HANDS_OUT, VIEWS
from rnnmem.ir.order import popped_at_once
from rnnmem.passes.schedule.orders import LARGE, controlled, orders
from rnnmem.simulate.program import in_place_inputs
from rnnmem.simulate.scratch import scratch_bytes
from rnnmem.storage.buffers import LiveBuffer, Rules, units_of
from rnnmem.storage.parallel import assign_parallel
from rnnmem.storage.ranges import Range, assign

MOST_WAITING = 256
"""Waiting ops, those before the largest buffers, of which it is asked how much time they take."""
MOST_OPS = 20_000
"""Ops beyond which a Net is left in the order in which its threads run it."""


@dataclasses.dataclass(frozen=True)
class Edges:
    """Control edges that bound the memory of a Net.

    Attributes:
      edges: the control edges.
      bytes: what is alive at once at most, however threads interleave, beside what is not pooled.
      bytes_before: the same without the edges.
      slowdown: estimated factor of time.
    """

    edges: tuple[Edge, ...]
    bytes: int
    bytes_before: int
    slowdown: float


def all_edges(
    net: Net, machine: Machine, max_slowdown: float, sized: Net | None = None
) -> Edges | None:
    """What :func:`edges_of` finds for a Net and for each step net in it, as one.

    The bounds are those of the outer Net; a step net without edges of its own stays as it is.
    """
    found: dict[tuple[str, ...], Edges] = {}
    held = dict(held_below(net))
    for (path, inner), (_, own) in zip(net.walk(), (sized or net).walk(), strict=True):
        scheduling_edges = edges_of(inner, machine, max_slowdown, path, held.get(path, ()), own)
        if scheduling_edges is not None:
            found[path] = scheduling_edges
    if not found:
        return None
    outer = found.get((), Edges((), 0, 0, 1.0))
    edges = tuple(
        dataclasses.replace(edge, path=path)
        for path, scheduling_edges in found.items()
        for edge in scheduling_edges.edges
    )
    slowdown = max(scheduling_edges.slowdown for scheduling_edges in found.values())
    return dataclasses.replace(outer, edges=edges, slowdown=slowdown)


def most_scratch(sized: Net, threads: int) -> int:
    """Bytes that convolutions of one step net ask for, each once: of the one where it is most."""
    if not any(op.attributes.get(OWN_KERNEL) for _, inner in sized.walk() for op in inner.ops):
        return 0
    return max(
        sum(scratch_bytes(op, inner, _unknown, threads) for op in inner.ops)
        for _, inner in sized.walk()
    )


def edges_of(
    net: Net,
    machine: Machine,
    max_slowdown: float,
    path: Sequence[str] = (),
    held: Collection[str] = (),
    sized: Net | None = None,
) -> Edges | None:
    """Finds the control edges that let large buffers take turns.

    Args:
      net: a whole function, inlined, its names written once; or a step net of one.
      machine: what estimates of time assume.
      max_slowdown: the factor of time that may be spent.
      path: of a step net, ending in the attribute that holds it; the edges have none yet.
      held: inputs of a step net that somebody outside holds until it has run.
      sized: the same Net with the sizes of a call, by which buffers are large; where an edge may
        stand is told by what the Net itself knows, which is all that a graph optimizer does.

    Returns:
      The edges, or None where there are none, where they would not lower the bound on memory,
      where they would cost too much time, or where a sum could show them.
    """
    if len(net.ops) > MOST_OPS or overwrites(net):
        return None
    sized = sized or net
    planned = _as_it_runs(sized, machine.threads)
    past = ssa(planned)
    before = _bound(past)
    if before < 2 * LARGE:
        return None
    found = []
    together = (
        1.0 if path[-1:] == ("body",) else TOGETHER
    )  # in a loop the next iteration keeps cores busy
    seconds = {op.name: op_seconds(op, sized, machine) for op in sized.ops}
    unordered = _Span(past, seconds, together, machine.threads).of(())
    for order, waits, rest in _candidates(net, sized, planned, path, held):
        span = _Span(ssa(order), seconds, together, machine.threads)
        edges = [*waits, *rest]
        if span.of(edges) > max_slowdown * unordered:
            edges = _fewer(waits, rest, span, max_slowdown * unordered)
        if edges and (bound := _bound(ssa(controlled(order, edges)))) < before:
            found.append(Edges(tuple(edges), bound, before, span.of(edges) / unordered))
    return min(found, key=lambda scheduling_edges: scheduling_edges.bytes, default=None)


def _fewer(
    waits: Sequence[Edge], edges: Mapping[Edge, int], span: _Span, most: float
) -> list[Edge]:
    """Of edges that take too long together those that keep the largest buffers waiting.

    Args:
      waits: edges without which the order is another.
      edges: the others, and the bytes of what waits.
      span: times of the order with edges.
      most: the longest one allowed.

    Returns:
      None of them where what the order asks for takes too long already.
    """
    by_op: dict[str, list[Edge]] = {}
    for edge in edges:
        by_op.setdefault(edge.op, []).append(edge)
    if span.of(waits) > most:
        return []
    taken = list(waits)
    largest = sorted(by_op.values(), key=lambda some: -max(edges[one] for one in some))
    for some in largest[:MOST_WAITING]:
        if span.of([*taken, *some]) <= most:
            taken += some
    return taken


def _candidates(
    net: Net, sized: Net, planned: Net, path: Sequence[str], held: Collection[str]
) -> Iterator[tuple[Net, Sequence[Edge], Mapping[Edge, int]]]:
    """Nets in orders with a low peak, and the edges for each that no sum could show.

    First those of ops that wait to write in place, then the others, with the bytes of what waits.
    """
    congruent, carried = congruent_ops(net), path[-1:] == ("body",)
    urgent = functools.cache(lambda: not_to_wait(net, path, held))
    for order, waits in orders(net, sized, planned, congruent, carried):
        wanted = _edges(net, ssa(order), congruent, carried)
        edges = {edge: waiting for edge, waiting in wanted.items() if edge.op not in urgent()}
        if not waits:
            yield order, (), edges
        elif edges == wanted and urgent().isdisjoint(edge.op for edge in waits):
            yield order, waits, edges  # else the order is that of other buffers


def _as_it_runs(net: Net, threads: int) -> Net:
    """The Net as it uses buffers, its kernels' own among them.

    What may write into the buffer of its input is a view of it.
    """
    outputs = set(net.outputs)
    blobs = dict(net.blobs)
    ops = []
    for op in net.ops:
        source = net.producer.get(op.inputs[0]) if op.type in HANDS_OUT else None
        if source is not None and source.type == "OptionalFromValue":
            op = _past(op.replace(type="Alias"), source, source.inputs[:1])
        elif source is not None and popped_at_once(net, source) is not None:
            op = _past(op, source, (source.inputs[0], *op.inputs[1:]))
        if op.type in HANDS_OUT:
            for blob in op.outputs:
                blobs[blob] = Blob(blob, blobs[blob].dtype, (0,))
        written = [net.blobs[blob] for blob in op.outputs]
        for position in in_place_inputs(op, written, net) if op.type not in VIEWS else ():
            blob = op.inputs[position]
            alone = len(net.readers[blob]) == 1 and blob not in outputs
            if alone and blob in net.producer and net.producer[blob].type != "ReadVariableOp":
                rest = op.inputs[:position] + op.inputs[position + 1 :]
                op = op.replace(type="Alias", inputs=(blob, *rest))
                break
        scratch = scratch_bytes(net.op_by_name[op.name], net, _unknown, threads)
        if scratch >= LARGE:
            made = f"{op.name}/scratch"
            blobs[made] = Blob(made, "uint8", (scratch,))
            op = op.replace(outputs=(*op.outputs, made))
        ops.append(op)
    return net.replace(ops=tuple(ops), blobs=blobs)


def _unknown(_: str) -> None:
    return None


def _past(op: Op, source: Op, inputs: tuple[str, ...]) -> Op:
    """The op reading what lies before the source, for which it still waits."""
    return op.replace(inputs=inputs, controls=(*op.controls, source.name))


def _large_units(past: SsaVersions) -> list[LiveBuffer]:
    sizes = {name: blob.bytes or 0 for name, blob in past.net.blobs.items()}
    return [
        dataclasses.replace(unit, kind=("memory", unit.kind[1]))
        for unit in units_of(past, Rules(sizes=sizes))
        if unit.bytes >= LARGE
    ]


def _bound(past: SsaVersions) -> int:
    """Bytes of large buffers that are alive at once at most, however the ops interleave."""
    return sum(track.size for track in assign_parallel(past, _large_units(past), 2, by_use=False))


def _edges(
    net: Net, past: SsaVersions, congruent: frozenset[str], carried: bool
) -> dict[Edge, int]:
    """The edges that a storage plan over the order of ``past`` needs beyond the data flow.

    And of each the bytes of the buffers that its op makes, or leads to.

    Args:
      net: the Net.
      past: its history.
      congruent: ops that a graph optimizer may merge with others.
      carried: whether it is a loop's body.
    """
    units = {unit.name: unit for unit in _large_units(past)}
    ranges = [Range(unit.name, unit.defined, unit.used, unit.size) for unit in units.values()]
    takes: dict[int, list[list[LiveBuffer]]] = {}  # op -> units before its own in their storages
    for storage in assign(ranges, "best_fit").storages:
        held = [units[one.name] for one in storage]
        for number, unit in enumerate(held[1:], 1):
            takes.setdefault(unit.defined, []).append(held[number - 1 :: -1])
    order = HappensBefore()
    edges: dict[Edge, int] = {}
    made: dict[int, int] = {}  # op -> bytes of its units
    for unit in units.values():
        made[unit.defined] = made.get(unit.defined, 0) + unit.bytes
    sources = Sources(net, past, congruent)
    for index, others in enumerate(past.before):
        order.begin(others)
        for earlier in takes.get(index, ()):
            for unit in earlier:
                for user in sorted(unit.last, reverse=True):  # the last implies most others
                    if order.comes_before(user):
                        continue
                    edge = _edge(net, past, index, user, sources, carried)
                    if edge is not None:
                        edges[edge[0]] = max(made[index], edges.get(edge[0], 0))
                        order.wait_for(edge[1])
                if all(map(order.comes_before, unit.last)):
                    break  # which waited for those before it
        order.end()
    return edges


def _edge(
    net: Net, past: SsaVersions, index: int, user: int, sources: Sources, carried: bool
) -> tuple[Edge, int] | None:
    """An edge by which an op waits for another, and the op that is waited for; None: there is none.

    Where the op may not wait itself, one does that it needs; where no edge may start at the other,
    one may at its completion proxy.
    """
    places = list(waiting_places(net, past, index, sources.congruent))
    for place, slot in places:
        source = sources.from_(user, place) if user < place else None
        if source is not None:
            return Edge(past.ops[place].name, slot, past.ops[source].name), source
    if carried and sources.may_have_proxy(user):
        for place, slot in places:
            if user < place:
                return Edge(past.ops[place].name, slot, past.ops[user].name, by_proxy=True), user
    return None


class _Span:
    """Estimated time: the longest path of ops, or all their work, where that takes longer.

    Args:
      past: the ops in an order that edges keep.
      seconds: of each op, alone.
      together: how many large ops are done in the time of one.
      threads: that run small ops side by side.
    """

    def __init__(
        self, past: SsaVersions, seconds: Mapping[str, float], together: float, threads: int
    ):
        self._past, self._seconds = past, [seconds[op.name] for op in past.ops]
        self._number = {op.name: index for index, op in enumerate(past.ops)}
        self._work = 0.0
        for op, own in zip(past.ops, self._seconds, strict=True):
            at_once = together if own > WIDE_SECONDS else threads
            self._work += own / (PATCHES_TOGETHER if op.attributes.get(OWN_KERNEL) else at_once)

    def of(self, edges: Sequence[Edge]) -> float:
        """Seconds with edges, each from an op to a later one."""
        waits: dict[int, list[int]] = {}
        for edge in edges:
            waits.setdefault(self._number[edge.op], []).append(self._number[edge.after])
        longest: list[float] = []
        for index, own in enumerate(self._seconds):
            others = (*self._past.before[index], *waits.get(index, ()))
            longest.append(own + max((longest[other] for other in others), default=0.0))
        return max(self._work, *longest) + 1e-12
