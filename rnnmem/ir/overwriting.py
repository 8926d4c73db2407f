"""Who reads a buffer that is written over, and what such a write must wait for."""

from __future__ import annotations

from collections.abc import Iterator

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import ASKS_SHAPE, OVERWRITES, types
from rnnmem.ir.order import reached

_WORDS = ("view", "slices", "skips", "repeats", "folds", "reorders")
_MAY_SHOW = frozenset().union(*map(types, _WORDS))
"""Types whose results may be their input's buffer, or a part of it."""


def is_mask(net: Net, op: Op, blob: str) -> bool:
    """Whether an input tells which numbers an op takes, so that no result is made in its buffer."""
    return net.blobs[blob].dtype == "bool" != net.blobs[op.outputs[0]].dtype


def may_be_made_in(net: Net, op: Op, blob: str) -> bool:
    """Whether an op that finishes its input in place may make a matrix in the blob's buffer."""
    shape = net.blobs[blob].shape
    return not is_mask(net, op, blob) and (shape is None or len(shape) > 1)


def readers_of_buffer(net: Net, buffer: str) -> Iterator[Op]:
    """The ops that read a blob or what may show its buffer, but for what writes over it."""

    def shown(blob: str) -> Iterator[str]:
        for op in net.readers.get(blob, ()):
            if op.type in _MAY_SHOW and op.type != OVERWRITES:
                yield from op.outputs

    for blob in reached([buffer], shown):
        for op in net.readers.get(blob, ()):
            if op.type != OVERWRITES and op.type not in ASKS_SHAPE:
                yield op


def awaited_by_write(net: Net, buffer: str, written: str) -> set[str]:
    """Names of the ops that a write over the buffer must wait for, beside those it needs anyway."""

    def read(blob: str) -> tuple[str, ...]:
        op = net.producer.get(blob)
        return () if op is None else op.inputs

    needed = set(reached([written], read))
    return {op.name for op in readers_of_buffer(net, buffer) if needed.isdisjoint(op.outputs)}
