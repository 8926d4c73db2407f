"""What a storage plan means in TensorFlow: ops take turns, by control edges.

"b takes a's storage" holds as soon as all that use a have run before b is made. The data flow
implies most of it; the rest becomes control edges, and then the memory of a run is bounded however
its threads interleave: what is alive lives in different storages of a plan that is safe for any.

    x ─► MatMul 1 ─► Relu ─► Sum 1 ┐ control edge
    x ──────────────── gate ◄──────┘
                        └──► MatMul 2 ─► Relu ─► Sum 2         one product at a time

An edge changes numbers where it takes an op out of a fusion, for Grappler leaves ops with control
edges alone. So edges start only at ops that it never fuses, and end there too, or at a *gate*: an
EnsureShape between the op and an argument or variable that it reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnnmem.net.cost import Machine
from rnnmem.net.history import History, history, overwrites
from rnnmem.net.nouns import Blob, Net, Op
from rnnmem.net.optypes import BRANCHES, LOOPS, OPAQUE_SOURCES, OpFacts, Work, facts
from rnnmem.net.order import topological
from rnnmem.net.program import in_place_inputs
from rnnmem.plan import Turn
from rnnmem.sharing.estimate import bytes_inside, estimate_sizes
from rnnmem.sharing.lives import VIEWS
from rnnmem.sharing.orders import lowest_peak
from rnnmem.sharing.parallel import assign_parallel
from rnnmem.sharing.ranges import Range, assign
from rnnmem.sharing.units import Rules, Unit, units_of

LARGE = 2**18
"""Bytes from which a buffer is worth a control edge."""
MOST_OPS = 20_000
"""Ops beyond which a Net is left in the order in which its threads run it."""

APART = frozenset(
    {
        *("ArgMax", "ArgMin", "Gather", "GatherNd", "GatherV2", "Max", "Min", "Shape", "Size"),
        *("Sum", "TopKV2", "Unpack", "Split", "SplitV", "TensorListPushBack", "TensorListStack"),
        *("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"),
        *("ResourceApplyGradientDescent", "ResourceApplyAdam", "ResourceApplyKerasMomentum"),
        *("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits"),
        *LOOPS,
        *BRANCHES,
    }
)
"""Op types that no graph optimizer fuses with what they read, or with what reads them."""

CALM = frozenset(
    {
        *("AddN", "MatMul", "ReluGrad", "ResourceApplyAdam", "ResourceApplyGradientDescent"),
        *("AssignAddVariableOp", "AssignSubVariableOp", "AssignVariableOp", "SigmoidGrad"),
        *("TanhGrad", "TensorListPushBack"),
    }
)
"""Op types that no matrix product is fused with; sums of equal shapes are others."""

FILLERS = frozenset({"BroadcastTo", "Fill", "Tile", "ZerosLike"})
"""Op types whose results are large, cheap, and made from next to nothing."""

FROM_LISTS = frozenset({"OptionalGetValue", "TensorListGetItem", "TensorListPopBack"})
"""Op types that hand out a buffer which a list has kept."""

HIDING = frozenset({"EnsureShape", "PlaceholderWithDefault"})
"""Op types that hide from a graph optimizer what stands before them."""

PRODUCTS = frozenset({"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D", "MatMul"})
"""Op types that are worth a gate: large results from little."""


@dataclasses.dataclass(frozen=True)
class Turns:
    """Control edges that bound the memory of a Net.

    Attributes:
      edges: the control edges.
      bytes: what is alive at once at most, however threads interleave, beside what is not pooled.
      bytes_before: the same without the edges.
      slowdown: estimated factor of time.
    """

    edges: tuple[Turn, ...]
    bytes: int
    bytes_before: int
    slowdown: float


def all_turns(net: Net, machine: Machine, max_slowdown: float) -> Turns | None:
    """What :func:`turns_of` finds for a Net and for each step net in it, as one.

    The bounds are those of the outer Net; a step net without edges of its own stays as it is.
    """
    found: dict[tuple[str, ...], Turns] = {}
    for path, inner in net.walk():
        turns = turns_of(inner, machine, max_slowdown)
        if turns is not None:
            found[path] = turns
    if not found:
        return None
    outer = found.get((), Turns((), 0, 0, 1.0))
    edges = tuple(
        dataclasses.replace(edge, path=path)
        for path, turns in found.items()
        for edge in turns.edges
    )
    slowdown = max(turns.slowdown for turns in found.values())
    return dataclasses.replace(outer, edges=edges, slowdown=slowdown)


def turns_of(net: Net, machine: Machine, max_slowdown: float) -> Turns | None:
    """Finds the control edges that let large buffers take turns.

    Args:
      net: a whole function, inlined, its names written once.
      machine: what estimates of time assume.
      max_slowdown: the factor of time that may be spent.

    Returns:
      The edges, or None where there are none, where they would not lower the bound on memory, or
      where they would cost too much time.
    """
    if len(net.ops) > MOST_OPS or overwrites(net):
        return None
    planned = _with_in_place(net)
    past = history(planned)
    before = _bound(past)
    if before < 2 * LARGE:
        return None
    extra = [max((bytes_inside(inner) for inner in op.nets.values()), default=0) for op in past.ops]
    chosen = lowest_peak(past, estimate_sizes(past), extra)
    planned = planned.replace(ops=tuple(past.ops[index] for index in chosen))
    edges = _edges(net, history(planned))
    if not edges:
        return None
    bound = _bound(history(_controlled(planned, edges)))
    slowdown = _slowdown(net, edges, machine)
    if bound >= before or slowdown > max_slowdown:
        return None
    return Turns(tuple(edges), bound, before, slowdown)


def _twins(net: Net) -> frozenset[str]:
    """Names of ops that a graph optimizer may merge with another that computes the same.

    An edge at one of them would keep it apart, and its readers' other readers with it.
    """
    number: dict[str, object] = {blob: blob for blob in net.inputs}
    first: dict[tuple, str] = {}
    found: set[str] = set()
    for op in topological(net.ops):
        read = sorted(map(str, (number[blob] for blob in op.inputs)))
        attributes = frozenset(item for item in op.attributes.items() if item[0] != "_class")
        key = (op.type, op.device, tuple(read), attributes)
        own = op.nets or (not op.inputs and op.type != "Const")
        same = op.name if own else first.setdefault(key, op.name)
        if same != op.name:
            found.update((op.name, same))
        number.update({blob: f"{same}:{place}" for place, blob in enumerate(op.outputs)})
    return frozenset(found)


def _with_in_place(net: Net) -> Net:
    """The Net as it uses buffers: what may write into the buffer of its input is a view of it."""
    outputs = set(net.outputs)
    blobs = dict(net.blobs)
    ops = []
    for op in net.ops:
        if op.type in FROM_LISTS:
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
        ops.append(op)
    return net.replace(ops=tuple(ops), blobs=blobs)


def _large_units(past: History) -> list[Unit]:
    sizes = {name: blob.bytes or 0 for name, blob in past.net.blobs.items()}
    return [
        dataclasses.replace(unit, kind=("memory", unit.kind[1]))
        for unit in units_of(past, Rules(sizes=sizes))
        if unit.bytes >= LARGE
    ]


def _bound(past: History) -> int:
    """Bytes of large buffers that are alive at once at most, however the ops interleave."""
    return sum(track.size for track in assign_parallel(past, _large_units(past), 2, by_use=False))


def _edges(net: Net, past: History) -> list[Turn]:
    """The edges that a storage plan over the order of ``past`` needs beyond the data flow."""
    units = {unit.name: unit for unit in _large_units(past)}
    ranges = [Range(unit.name, unit.defined, unit.used, unit.size) for unit in units.values()]
    takes: dict[int, list[Unit]] = {}
    for storage in assign(ranges, "best_fit").storages:
        for one, other in zip(storage, storage[1:], strict=False):
            takes.setdefault(units[other.name].defined, []).append(units[one.name])
    ahead: list[int] = []  # op -> a bit for each op that surely ran before it, and for itself
    edges: list[Turn] = []
    twins = _twins(net)
    sources = _Sources(net, past, twins)
    for index, others in enumerate(past.before):
        known = 0
        for other in others:
            known |= ahead[other]
        for unit in takes.get(index, ()):
            for user in unit.last:
                if known >> user & 1:
                    continue
                source = sources.from_(user, index)
                waiting = past.ops[index].name
                slot = None if source is None or waiting in twins else _target(net, waiting)
                if source is None or slot is None:
                    continue
                waited = past.ops[source].name
                edges.append(Turn(past.ops[index].name, None if slot < 0 else slot, waited))
                known |= ahead[source]
        ahead.append(known | 1 << index)
    return edges


class _Sources:
    """Finds ops to wait for: an op that is never fused, or the nearest such op behind it."""

    def __init__(self, net: Net, past: History, twins: frozenset[str]):
        self.net, self.past, self.twins = net, past, twins

    def from_(self, user: int, waiting: int) -> int | None:
        """An op that runs after ``user`` in any case, before ``waiting`` in the order."""
        pending, seen = [user], {user}
        for index in pending:
            if self._is_apart(index):
                return index
            for other in self.past.after[index]:
                if other < waiting and other not in seen and len(seen) < 64:
                    seen.add(other)
                    pending.append(other)
        return None

    def _is_apart(self, index: int) -> bool:
        op = self.net.op_by_name[self.past.ops[index].name]
        return op.name not in self.twins and _is_apart(self.net, op)


def _is_apart(net: Net, op: Op) -> bool:
    """Whether a control edge at the op takes it out of no fusion."""
    if op.type in APART:
        return True
    if op.type != "MatMul" or any(blob in net.outputs for blob in op.outputs):
        return False
    sources = [net.producer[blob] for blob in op.inputs if blob in net.producer]
    if any(source.type == "Pad" or (facts(source) or _FOLDS).folds for source in sources):
        return False
    return all(
        reader.type in CALM or _adds_alike(net, reader)
        for reader in net.readers.get(op.outputs[0], ())
    )


_FOLDS = OpFacts(Work.MOVES, folds=False)


def _adds_alike(net: Net, op: Op) -> bool:
    """Whether the op adds matrices of one shape: no bias."""
    shapes = {net.blobs[blob].shape for blob in op.inputs}
    return op.type in ("Add", "AddV2") and len(shapes) == 1 and len((*shapes,)[0] or ()) > 1


def _target(net: Net, name: str) -> int | None:
    """The input of an op where a gate may stand, -1 where the op itself may wait, or None."""
    op = net.op_by_name[name]
    if _is_apart(net, op) or op.type in FILLERS and not _is_constant(net, op):
        return -1
    if op.type not in PRODUCTS:
        return None
    for slot, blob in enumerate(op.inputs):
        source = net.producer.get(blob)
        opaque = source is None or source.type in OPAQUE_SOURCES or source.type in HIDING
        if opaque and net.blobs[blob].bytes:
            return slot
    return None


def _is_constant(net: Net, op: Op) -> bool:
    """Whether a graph optimizer computes the op before any run; what waits would undo that."""
    if op.type == "Const":
        return True
    sources = [net.producer.get(blob) for blob in op.inputs]
    return all(source is not None and _is_constant(net, source) for source in sources)


def _controlled(net: Net, edges: Sequence[Turn]) -> Net:
    """The Net with each waiting op waiting itself: what the gates amount to."""
    waits: dict[str, list[str]] = {}
    for edge in edges:
        waits.setdefault(edge.op, []).append(edge.after)
    ops = (
        op.replace(controls=(*op.controls, *waits[op.name])) if op.name in waits else op
        for op in net.ops
    )
    return net.replace(ops=tuple(ops))


def _slowdown(net: Net, edges: Sequence[Turn], machine: Machine) -> float:
    """Estimated factor of time: a large op uses all cores alone, small ones run side by side."""
    seconds = {op.name: machine.seconds(op, net) for op in net.ops}
    total = sum(seconds.values())
    return _span(_controlled(net, edges), seconds, total) / _span(net, seconds, total)


WIDE_SECONDS = 5e-5
"""An op that takes longer than this keeps all cores busy by itself."""
SIDE_BY_SIDE = 8
"""So many small ops run at once at most."""


def _span(net: Net, seconds: dict[str, float], total: float) -> float:
    """The longest path of small ops, or all their work over the threads, and all large ops."""
    past = history(net)
    longest = [0.0] * len(past.ops)
    small = 0.0
    for index, op in enumerate(past.ops):
        own = seconds[op.name]
        own = 0.0 if own > WIDE_SECONDS else own
        small += own
        longest[index] = own + max((longest[other] for other in past.before[index]), default=0.0)
    return total - small + max(max(longest, default=0.0), small / SIDE_BY_SIDE) + 1e-12
