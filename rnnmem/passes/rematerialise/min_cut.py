"""The saved set of one step net, as a minimum cut.

A forward step net must hand some blobs to its gradient step net. Each is either saved (an
accumulator keeps it for every iteration) or recomputed from blobs that are. With a price in bytes
per second on recomputation, the cheapest choice is a minimum cut:

    source ──price × time──► op_in ──bytes + price × time──► blob_out ──► reader_in   (no limit)
    source ──unlimited──► op_in        an op that must not run twice, a carried state
    blob_out ──unlimited──► sink       the gradient reads this blob

An op whose ``in`` node falls on the sink's side is recomputed; a blob whose edge is cut is saved.
Loop invariants, constants and reads of variables that stay the same cost nothing and are no nodes.

Source: the AOTAutograd partitioner of PyTorch (Horace He et al. 2022, "Min-cut optimal
recomputation"), which cuts one flat graph by bytes; here the graph is one iteration, and time has a
price in the same cut. The prices between zero and infinity give the lower convex hull of all
trades between bytes and time (Lawler's parametric selection), not every point in between.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from rnnmem.analysis.held_bytes import held_bytes
from rnnmem.analysis.shared_rows import whole_buffer
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import ASKS_SHAPE, facts, may_fuse
from rnnmem.ir.order import reached, through_identities
from rnnmem.passes.encode.decision import BFLOAT16, Encoding
from rnnmem.passes.encode.formats import is_continuous

_UNLIMITED = 2**30  # scipy's flows are 32-bit integers
_LARGEST = 2**26  # what one finite capacity is scaled down to


@dataclasses.dataclass(frozen=True)
class Step:
    """What the choice for one step net depends on.

    Attributes:
      body: the forward step net.
      invariants: its inputs that are the same in every iteration and that the gradient may read.
      live_in: blobs that the gradient step net reads.
      pushed: blobs that the original saves.
      dead: those of them that no gradient step net reads: of a factor of a constant only the pop
        is there.
      kept: blobs that the user asked to keep; ``never`` has their ops.
      recomputed: blobs that the user asked to recompute, where that can be had.
      refused: those where it cannot -> why.
      seconds: estimated time of one run of an op.
      seconds_to_keep: estimated time of saving so many bytes, and of reading them later.
      free: blobs that are saved whatever is chosen (someone else reads their accumulator).
      never: names of ops that may not be recomputed here, whatever their type.
      otherwise: those of them that TensorFlow was found to compute in another way again.
      addends: blobs that a sum may add up in place, or may not: where the original does not save
        one, saving it would show in the order of the sum.
      hoisted: blobs that read a variable which stays the same: one read beside the loop will do.
      hoists: names of ops that are recomputed once beside the gradient loop.
      reading: branch ops that read variables which stay the same -> the handles, which the op does
        without when it runs again.
      codecs: the other forms in which a blob may be kept.
      signs: blobs added to the body, each the sign of another that the gradient asks no more of ->
        that other blob. They are kept as bits or not at all.
      read_inside: blobs that loops inside the gradient step net recompute from.
      counted: accumulators of loops inside whose bytes are counted there.
    """

    body: Net
    invariants: frozenset[str]
    live_in: frozenset[str]
    pushed: frozenset[str]
    seconds: Callable[[Op, Net], float]
    seconds_to_keep: Callable[[int], float] = lambda size: 0.0
    free: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()
    otherwise: frozenset[str] = frozenset()
    addends: frozenset[str] = frozenset()
    hoisted: frozenset[str] = frozenset()
    hoists: frozenset[str] = frozenset()
    reading: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    codecs: Callable[[str], tuple[Encoding, ...]] = lambda blob: ()
    signs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    read_inside: frozenset[str] = frozenset()
    counted: frozenset[str] = frozenset()
    dead: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    recomputed: frozenset[str] = frozenset()
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def rematerialised_seconds(self, op: Op) -> float:
        """Estimated time per iteration of recomputing an op of the step net."""
        nothing = op.name in self.hoists or op.outputs[0] in self.signs
        return 0.0 if nothing else self.seconds(op, self.body)

    def ways_to_keep(self, blob: str) -> tuple[Encoding, ...]:
        """The forms in which an accumulator may keep the blob, its own first if it may."""
        if blob not in self._ways:
            self._ways[blob] = self._ways_found(blob)
        return self._ways[blob]

    @functools.cached_property
    def _ways(self) -> dict[str, tuple[Encoding, ...]]:
        """These forms, of the blobs that somebody asked about."""
        return {}

    def _ways_found(self, blob: str) -> tuple[Encoding, ...]:
        if blob in self.signs:
            return self.codecs(blob)
        size = self.bytes_kept(blob)
        return (Encoding(blob, (), size, self.seconds_to_keep(size)), *self.codecs(blob))

    def cheapest(self, blob: str, price: float) -> Encoding:
        """The form that costs least at a price of ``price`` bytes a second."""
        return min(self.ways_to_keep(blob), key=lambda one: one.bytes + price * one.seconds)

    def bytes_kept(self, blob: str) -> int:
        """Bytes that saving the blob takes per iteration; rows hold all that they are cut from."""
        if blob in self.counted or blob in self.kept_as_states:
            return 0
        whole = whole_buffer(self.body, blob)
        return held_bytes(self.body, blob if self.is_given(whole) else whole)

    @functools.cached_property
    def kept_as_states(self) -> frozenset[str]:
        """Blobs that are kept whatever is chosen, as the state of the iteration before or after."""
        body, found = self.body, set()
        for argument, result in zip(body.inputs, body.outputs, strict=False):
            both = {argument, through_identities(body, result)}
            if not both.isdisjoint(self.free):
                found |= both
        return frozenset(found)

    def is_given(self, blob: str) -> bool:
        """Whether the gradient step net has the blob's value from outside both loops."""
        return blob not in self.free and (blob in self.invariants or blob in self.hoisted)

    def may_run_twice(self, op: Op) -> bool:
        """Whether the op may be recomputed in this step."""
        pure = facts(op) is not None or op.name in self.reading
        return pure and op.name not in self.never

    def folds_into(self, producer: Op | None, op: Op) -> bool:
        """Whether the graph optimizer looks through the producer into an op that runs again."""
        if producer is None or op.outputs[0] in self.signs:
            return False
        known = facts(producer)
        return producer.name in self.measuring or known is not None and known.folds

    @functools.cached_property
    def measuring(self) -> frozenset[str]:
        """Names of the ops that compute from nothing but shapes, which a graph optimizer may know.

        It takes a Sum over no axis out, say, and a Reshape to the shape that is there already.
        """
        found: set[str] = set()
        for op in self.body.ops:
            if op.type in ASKS_SHAPE:
                found.add(op.name)
            elif found:
                sources = [self.body.producer.get(blob) for blob in op.inputs]
                if any(one is not None and one.name in found for one in sources) and all(
                    one is not None and (one.name in found or is_constant(one)) for one in sources
                ):
                    found.add(op.name)
        return frozenset(found)

    def rematerialised_inputs(self, op: Op) -> tuple[str, ...]:
        """The inputs that the op needs when it is recomputed."""
        handles = self.reading.get(op.name)
        return tuple([blob for blob in op.inputs if blob not in handles]) if handles else op.inputs

    @functools.cached_property
    def network(self) -> _Network:
        """What is cut, at whatever price."""
        return _Network(self)


@dataclasses.dataclass(frozen=True)
class SavedSet:
    """The choice for one step net.

    Attributes:
      saved: blobs that accumulators keep.
      recomputed: names of the ops that run again in the gradient step net, in order.
      hoisted: blobs that the gradient or a recomputed op has from one read beside the loop.
      bytes: kept per iteration; unknown sizes are guessed.
      seconds: spent per iteration on keeping and on recomputing, estimated.
      encodings: of saved blobs that are kept in another form than their own.
    """

    saved: frozenset[str]
    recomputed: tuple[str, ...]
    hoisted: frozenset[str]
    bytes: int
    seconds: float
    encodings: tuple[Encoding, ...] = ()


def may_be_saved(step: Step, blob: str) -> bool:
    """Whether keeping the blob is possible and leaves the forward step net's bits alone.

    One more reader may stop a fusion: a blob with one reader, which the original does not save, is
    not saved either, unless nothing is ever fused with what writes it.
    """
    if blob in step.recomputed:
        return False
    if blob in step.pushed or blob in step.free:
        return True
    if step.body.blobs[blob].dtype in ("variant", "resource", "string") or blob in step.addends:
        return False
    producer = step.body.producer.get(blob)
    if producer is None or not step.may_run_twice(producer) or step.body.fan_out(blob) != 1:
        return True
    readers = step.body.readers.get(blob, ())
    return bool(readers) and not may_fuse(producer, readers[0])


def is_constant(op: Op) -> bool:
    """Whether the op writes the same value in every run, from nothing."""
    return op.type == "Const"


def choose_saved_set(step: Step, price: float) -> SavedSet | None:
    """The cheapest choice at a price of ``price`` bytes for each second spent again.

    Returns:
      The choice, or None where some demanded blob can be neither saved nor recomputed.
    """
    recomputed = step.network.sink_side(price)
    if recomputed is None:
        return None
    return collect(step, recomputed, lambda blob: step.cheapest(blob, price))


def collect(
    step: Step, recomputed: Collection[str], codec: Callable[[str], Encoding] | None = None
) -> SavedSet:
    """The choice in which these ops run again: what else is met on the way up is saved.

    Args:
      step: the step net.
      recomputed: names of ops.
      codec: in which form a saved blob is kept; None: in its own.
    """
    saved: set[str] = set()
    rematerialised: set[str] = set()
    given: set[str] = set()

    def needs(blob: str) -> Iterable[str]:
        op = step.body.producer.get(blob)
        if step.is_given(blob):
            given.add(blob)
        elif op is not None and (op.name in recomputed or is_constant(op)):
            rematerialised.add(op.name)
            return step.rematerialised_inputs(op)
        else:
            saved.add(blob)
        return ()

    for _ in reached(step.live_in, needs):
        pass
    saved |= step.free & step.pushed  # even an invariant's accumulator, which somebody else reads
    return _saved_set(
        step, saved, rematerialised, given, codec or (lambda blob: step.ways_to_keep(blob)[0])
    )


def kept_as_it_is(step: Step, price: float) -> SavedSet | None:
    """The choice that saves what the original saves, in the forms that are cheapest at a price."""
    if not {step.signs.get(blob, blob) for blob in step.live_in} <= step.pushed:
        return None

    def cost(blob: str) -> float:
        one = step.cheapest(blob, price)
        return one.bytes + price * one.seconds

    saved = {min(step.signs.get(blob, blob), blob, key=cost) for blob in step.live_in}
    saved |= step.free & step.pushed
    return _saved_set(step, saved, set(), set(), lambda blob: step.cheapest(blob, price))


def _saved_set(
    step: Step,
    saved: set[str],
    rematerialised: set[str],
    given: set[str],
    codec: Callable[[str], Encoding],
) -> SavedSet:
    """The choice that keeps these blobs: no sign of one that is kept or computed again anyway."""
    there = saved | {
        blob for op in step.body.ops if op.name in rematerialised for blob in op.outputs
    }
    saved = {blob for blob in saved if step.signs.get(blob) not in there}
    ops = [
        op for op in step.body.ops if op.name in rematerialised and op.outputs[0] not in step.signs
    ]
    codecs = [codec(blob) for blob in sorted(saved - step.free)]
    codecs = [
        step.ways_to_keep(one.blob)[0]
        if BFLOAT16 in one.techniques and _decides(step, one, ops)
        else one
        for one in codecs
    ]
    encodings = tuple(
        dataclasses.replace(one, blob=step.signs.get(one.blob, one.blob))
        for one in codecs
        if one.techniques
    )
    return SavedSet(
        saved=frozenset(step.signs.get(blob, blob) for blob in saved),
        recomputed=tuple(op.name for op in ops),
        hoisted=frozenset(given & step.hoisted),
        bytes=sum(one.bytes for one in codecs),
        seconds=sum(one.seconds for one in codecs) + sum(map(step.rematerialised_seconds, ops)),
        encodings=encodings,
    )


def _decides(step: Step, one: Encoding, ops: Collection[Op]) -> bool:
    """Whether truths or whole numbers, which might flip, are made of a rounded copy.

    Args:
      step: the step net.
      one: the form of the copy.
      ops: what runs again, in order.
    """
    if BFLOAT16 not in one.techniques:
        return False
    reached = {one.blob}
    for op in ops:
        if reached.isdisjoint(op.inputs) or op.type in ASKS_SHAPE:
            continue
        if op.nets or not all(is_continuous(step.body.blobs[blob]) for blob in op.outputs):
            return True
        reached.update(op.outputs)
    return not reached.isdisjoint(step.read_inside)


_Ways = list[tuple[float, float]]
"""Bytes and seconds of each way of doing something; the cheapest at a price is what it costs."""
_NO_WAY: _Ways = [(math.inf, 0.0)]


class _Network:
    """The flow network of one step net."""

    SOURCE, SINK = 0, 1

    def __init__(self, step: Step):
        self.step = step
        self.edges: dict[tuple[int, int], _Ways] = {}
        self.entry: dict[str, int] = {}  # op name (or carried input) -> its ``in`` node
        self.exit: dict[str, int] = {}  # blob -> its ``out`` node
        self.nodes = 2
        pending = []
        for blob in sorted(step.live_in):
            node = self._out(blob, pending)
            if node is not None:
                self.edges[node, self.SINK] = _NO_WAY
        while pending:
            self._add_op(pending.pop(), pending)

    def _node(self) -> int:
        self.nodes += 1
        return self.nodes - 1

    def _out(self, blob: str, pending: list[Op]) -> int | None:
        """The blob's ``out`` node, or None for a blob that is there for nothing."""
        if self.step.is_given(blob):
            return None
        producer = self.step.body.producer.get(blob)
        if producer is not None and is_constant(producer):
            return None
        key = blob if producer is None else producer.name
        if key not in self.entry:
            self.entry[key] = self._node()
            if producer is None:
                self.edges[self.SOURCE, self.entry[key]] = _NO_WAY
            else:
                pending.append(producer)
        if blob not in self.exit:
            self.exit[blob] = self._node()
            self.edges[self.entry[key], self.exit[blob]] = self._ways_to_keep(blob)
        return self.exit[blob]

    def _ways_to_keep(self, blob: str) -> _Ways:
        if blob in self.step.free:
            return [(0.0, 0.0)]
        if not may_be_saved(self.step, blob):
            return _NO_WAY
        return [(one.bytes, one.seconds) for one in self.step.ways_to_keep(blob)]

    def _add_op(self, op: Op, pending: list[Op]) -> None:
        entry = self.entry[op.name]
        if not self.step.may_run_twice(op):
            self.edges[self.SOURCE, entry] = _NO_WAY
            return
        self.edges[self.SOURCE, entry] = [(1.0, self.step.rematerialised_seconds(op))]
        for blob in self.step.rematerialised_inputs(op):
            node = self._out(blob, pending)
            if node is None:
                continue
            self.edges[node, entry] = _NO_WAY
            producer = self.step.body.producer.get(blob)
            if self.step.folds_into(producer, op):
                self.edges[self.entry[producer.name], entry] = _NO_WAY

    def sink_side(self, price: float) -> set[str] | None:
        """Names of the ops on the sink's side of a minimum cut; None where no finite cut exists.

        Args:
          price: bytes that a second is worth.
        """
        if not self.edges:
            return set()
        wanted = [
            ways[0][0] + price * ways[0][1]
            if len(ways) == 1
            else min([held + price * seconds for held, seconds in ways])
            for ways in self.edges.values()
        ]
        finite = [capacity for capacity in wanted if capacity < math.inf]
        scale = min(1.0, _LARGEST / max(1.0, sum(finite)))
        capacities = tuple(
            [
                _UNLIMITED if capacity == math.inf else max(0, math.ceil(capacity * scale))
                for capacity in wanted
            ]
        )
        reached = _source_side(self.nodes, self._ends, capacities)
        if reached is None:
            return None
        return {key for key, node in self.entry.items() if node not in reached}

    @functools.cached_property
    def _ends(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        tails, heads = zip(*self.edges, strict=True)
        return tails, heads


@functools.lru_cache(maxsize=1024)
def _source_side(
    nodes: int, ends: tuple[tuple[int, ...], tuple[int, ...]], capacities: tuple[int, ...]
) -> frozenset[int] | None:
    """Nodes on the source's side of a minimum cut; None where no finite cut exists.

    Layers of a model, and prices beside each other, ask for the same cut again and again.

    Args:
      nodes: how many there are.
      ends: of all edges, where they begin and where they lead.
      capacities: of the edges.
    """
    shape = nodes, nodes
    network = csr_matrix((np.array(capacities, np.int32), ends), shape=shape)
    result = maximum_flow(network, _Network.SOURCE, _Network.SINK)
    if result.flow_value >= _UNLIMITED:
        return None
    residual = network - result.flow
    residual.data = np.where(residual.data > 0, 1, 0)
    residual.eliminate_zeros()
    reached = breadth_first_order(residual, _Network.SOURCE, return_predecessors=False)
    return frozenset(reached.tolist())
