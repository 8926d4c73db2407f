"""Which projections run by chunks of tokens, how long the chunks are, and whether that pays."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from rnnmem.analysis.flat_tokens import flat_view, with_flat_tokens
from rnnmem.analysis.machine import Machine
from rnnmem.analysis.row_rules import Dim, Partial, Rows, product
from rnnmem.analysis.shapes import KnownNet, filled, known_net
from rnnmem.analysis.shared_rows import whole_buffer
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net, Op
from rnnmem.passes.chunked_loss.decision import ChunkedLoss
from rnnmem.passes.chunked_loss.early_sizes import asked_earlier
from rnnmem.passes.chunked_loss.exact import makers_of_logits
from rnnmem.passes.chunked_loss.products import BY_HAND, projections
from rnnmem.passes.chunked_loss.region import NoRegion, Region, find
from rnnmem.passes.chunked_loss.tokens import by_tokens, leads, plain
from rnnmem.passes.rematerialise.requests import ops_kept

CHUNK_BYTES = 4 * 2**20
"""Bytes of logits that a chunk is to have, about; each chunk needs a few times as much.

An exact chunk, in which no matrices are multiplied, has a quarter, one that XLA compiles half.
"""
FEWEST, MOST = 256, 1024
"""Tokens that a chunk has at least, for products to be fast, and at most."""
MOST_EXACT = 8192
"""The same of an exact chunk: of few columns it has many, for ops to be worth other threads."""
ALIGNED = 64
"""Tokens of which an exact chunk has a multiple, so that kernels round each as among all."""

_SHORTEST = 8
"""How many times shorter than wanted chunks of one size may be at most."""
_ONE_CHUNK = "all tokens fit in one chunk"


def losses_of(
    net: Net,
    machine: Machine,
    exact: bool = False,
    compiled: bool = False,
    refused: Mapping[str, str] = MappingProxyType({}),
) -> tuple[ChunkedLoss, ...]:
    """What may be decided for each projection with a softmax loss, closed where nothing can be.

    Args:
      net: the whole step, inlined.
      machine: what estimates of time assume.
      exact: whether nothing is added up in another order; of logits that all fit in a chunk,
        nothing is said then.
      compiled: whether XLA compiles it.
      refused: projection -> why it does not run by chunks, of those of which that is known.
    """
    known = known_net(net)
    found: list[ChunkedLoss] = []
    taken: set[str] = set()
    named = {op.name for op in projections(net)}
    for op in projections(net, BY_HAND) if exact else projections(net):
        kind = known.net.blobs[op.outputs[0]]
        if exact and kind.bytes is not None and kind.bytes <= CHUNK_BYTES:
            continue
        loss = ChunkedLoss(
            projection=op.name,
            blob=kind.name,
            dtype=kind.dtype,
            shape=kind.shape,
            bytes=kind.bytes,
            line=str(op.source),
            exact=exact,
            compiled=compiled,
        )
        if op.name in refused:
            found.append(dataclasses.replace(loss, closed=refused[op.name]))
            continue
        tried = [_seen(known, one, taken, machine) for one in _views(known, op, loss)]
        best = min(tried, key=lambda one: one.cost)
        taken |= best.ops
        if op.name in named or not best.loss.closed:
            found.append(best.loss)
    return tuple(found)


def _views(known: KnownNet, op: Op, loss: ChunkedLoss) -> Iterator[ChunkedLoss]:
    """The loss by the rows that its logits have and, where these count no tokens, by tokens."""
    yield loss
    if loss.exact and loss.bytes is None and not loss.compiled:
        yield dataclasses.replace(loss, early=True)
        views = (flat_view(known, one.outputs[0]) for one in makers_of_logits(known.net, op))
        view = next(filter(None, views), "")
        if view and with_flat_tokens(known.net, view, plain) is not known.net:
            yield dataclasses.replace(loss, flat=view)
            yield dataclasses.replace(loss, flat=view, early=True)
    if loss.exact and not loss.compiled:
        for lead in leads(known, op):
            yield dataclasses.replace(loss, lead=lead)


@dataclasses.dataclass(frozen=True)
class _Tried:
    """A way to run a loss by chunks: the ops that do, and the bytes that they are given whole."""

    loss: ChunkedLoss
    ops: frozenset[str] = frozenset()
    given: int = 0

    @property
    def cost(self) -> tuple[bool, int, int, float]:
        """Of several ways, the least is taken; of such as are alike, the shortest chunks."""
        part = self.loss.length / self.loss.rows if self.loss.rows else 0.0
        return bool(self.loss.closed), self.given, self.loss.loops, part


def _seen(known: KnownNet, loss: ChunkedLoss, taken: set[str], machine: Machine) -> _Tried:
    """The loss as it may be decided."""
    try:
        if loss.flat:
            known = known_net(with_flat_tokens(known.net, loss.flat, plain))
        known = known_net(asked_earlier(known.net, loss.projection)) if loss.early else known
        seen, region = _found(known, loss)
        if not taken.isdisjoint(region.ops):
            raise NoRegion("another projection's chunks hold some of its ops")
        if not ops_kept(known.net).isdisjoint(region.ops):
            raise NoRegion("you asked to keep a value that would never exist whole")
        loss = _opened(loss, seen, region, machine)
    except NoRegion as error:
        loss = dataclasses.replace(loss, closed=str(error))
    if loss.closed:
        return _Tried(loss)
    if loss.lead:  # the source is a view that the Net does not have yet
        last = next(one for one in reversed(region.owned) if one in known.net.op_by_name)
        loss = dataclasses.replace(loss, source=known.net.op_by_name[last].outputs[0])
    given = (one for one in region.given(seen.net) if not _is_argument(seen.net, one))
    sizes = [_bytes(seen.net, one) for one in given]
    least = min(CHUNK_BYTES, _bytes(seen.net, loss.blob)) // 4
    large = sum(size for size in sizes if size > least)
    return _Tried(loss, region.ops & known.net.op_by_name.keys(), large)


def _is_argument(net: Net, blob: str) -> bool:
    """Whether a blob is a view of what the step is given, which is there anyway."""
    return whole_buffer(net, blob) in net.inputs


def _bytes(net: Net, blob: str) -> int:
    """Bytes of a blob; of sizes that only a run tells a few are assumed."""
    kind = net.blobs[blob]
    shape = [64 if size is None else size for size in kind.shape or ()]
    return math.prod(shape) * BYTES_PER_ELEMENT.get(kind.dtype, 0)


def _found(known: KnownNet, loss: ChunkedLoss) -> tuple[KnownNet, Region]:
    if not loss.lead:
        return known, find(known, loss.projection, exact=loss.exact, compiled=loss.compiled)
    seen, region = by_tokens(known.net, loss.projection, loss.lead, plain)
    return known_net(seen), region


def _opened(loss: ChunkedLoss, known: KnownNet, region: Region, machine: Machine) -> ChunkedLoss:
    in_place = loss.exact and not loss.compiled
    logits = region.values[region.source if in_place else loss.blob]
    assert isinstance(logits, Rows)
    columns = logits.shape[-1].number
    if columns is None:
        raise NoRegion("the size of the vocabulary is known only at run time")
    size = BYTES_PER_ELEMENT[loss.dtype]
    fewest, many, most = FEWEST, MOST, CHUNK_BYTES
    if in_place:
        fewest, many, most = ALIGNED, MOST_EXACT, CHUNK_BYTES // 4
    if loss.compiled:
        fewest, most = fewest // 2, most // 2
    tokens = min(many, max(fewest, most // (columns * size)))
    # Tokens in a row whose number only a run can tell are taken for 64.
    per_row = product(logits.shape[:-1]).factor * 64 ** (
        len(product(logits.shape[:-1]).symbols) - 1
    )
    length = max(1, tokens // max(1, per_row))
    if in_place:
        length = _aligned(tokens, product(logits.shape[:-1]))
    if loss.compiled:
        length = _dividing(length, region.whole)
    if region.whole is not None and length >= region.whole:
        return dataclasses.replace(loss, closed=_ONE_CHUNK)
    opened = dataclasses.replace(
        loss,
        source=region.source,
        length=length,
        rows=region.whole,
        loops=len(region.phases),
    )
    return dataclasses.replace(opened, seconds=_seconds(opened, known, region, machine))


def _aligned(tokens: int, row: Dim) -> int:
    """Rows of about so many tokens, whose tokens are a multiple of what kernels round at once."""
    if len(row.symbols) > 1:
        raise NoRegion("how many tokens a row has, only a run can tell")
    unit = ALIGNED // math.gcd(ALIGNED, row.factor)
    return max(1, tokens // (row.factor * unit)) * unit


def _dividing(length: int, rows: int | None) -> int:
    """At most so many rows, of which all rows are a multiple."""
    if rows is None:
        raise NoRegion("how many rows there are, only a run can tell, and XLA compiles one number")
    found = next(one for one in range(min(length, rows), 0, -1) if not rows % one)
    if found * _SHORTEST < min(length, rows):
        raise NoRegion(f"XLA compiles chunks of one size, and {rows} rows have no such parts")
    return found


def _seconds(loss: ChunkedLoss, known: KnownNet, region: Region, machine: Machine) -> float:
    """Time for what runs in both loops, for adding sums up, and for starting ops once a chunk."""
    net = filled(known)
    chunks = -(-(64 if loss.rows is None else loss.rows) // loss.length)
    seen: set[str] = set()
    again = 0.0
    for phase in region.phases:
        again += sum(
            machine.seconds(net.op_by_name[name], net) for name in phase.ops if name in seen
        )
        again += (chunks - 1) * len(phase.ops) * machine.launch_seconds
        seen.update(phase.ops)
        for blob in phase.sums:
            value = region.values[blob]
            assert isinstance(value, Partial)
            elements = product(value.shape).factor
            again += chunks * 12.0 * elements / machine.bytes_per_second
    return again
