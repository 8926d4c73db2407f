"""Which projections run by chunks of tokens, how long the chunks are, and whether that pays."""

from __future__ import annotations

import dataclasses

from rnnmem.analysis.machine import Machine
from rnnmem.analysis.row_rules import Partial, Rows, product
from rnnmem.analysis.shapes import KnownNet, filled, known_net
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net
from rnnmem.passes.chunked_loss.decision import ChunkedLoss
from rnnmem.passes.chunked_loss.region import NoRegion, Region, find, projections

CHUNK_BYTES = 4 * 2**20
"""Bytes of logits that a chunk is to have, about; each chunk needs a few times as much."""
FEWEST, MOST = 256, 1024
"""Tokens that a chunk has at least, for products to be fast, and at most."""

_ONE_CHUNK = "all tokens fit in one chunk"


def losses_of(net: Net, machine: Machine) -> tuple[ChunkedLoss, ...]:
    """What may be decided for each projection with a softmax loss, closed where nothing can be.

    Args:
      net: the whole step, inlined.
      machine: what estimates of time assume.
    """
    known = known_net(net)
    found, taken = [], set()
    for op in projections(net):
        kind = known.net.blobs[op.outputs[0]]
        loss = ChunkedLoss(
            projection=op.name,
            blob=kind.name,
            dtype=kind.dtype,
            shape=kind.shape,
            bytes=kind.bytes,
            line=str(op.source),
        )
        try:
            region = find(known, op.name)
            if not taken.isdisjoint(region.ops):
                raise NoRegion("another projection's chunks hold some of its ops")
            loss = _opened(loss, known, region, machine)
            taken |= region.ops if not loss.closed else set()
        except NoRegion as error:
            loss = dataclasses.replace(loss, closed=str(error))
        found.append(loss)
    return tuple(found)


def _opened(loss: ChunkedLoss, known: KnownNet, region: Region, machine: Machine) -> ChunkedLoss:
    logits = region.values[loss.blob]
    assert isinstance(logits, Rows)
    columns = logits.shape[-1].number
    if columns is None:
        raise NoRegion("the size of the vocabulary is known only at run time")
    size = BYTES_PER_ELEMENT[loss.dtype]
    tokens = min(MOST, max(FEWEST, CHUNK_BYTES // (columns * size)))
    # Tokens in a row whose number only a run can tell are taken for 64.
    per_row = product(logits.shape[:-1]).factor * 64 ** (
        len(product(logits.shape[:-1]).symbols) - 1
    )
    length = max(1, tokens // max(1, per_row))
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
