"""Narrow ops on the way from one wide op to another: what of them may run in the same loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import MAY_RERUN, types
from rnnmem.ir.order import reached

_MERGED = types("whole", "add", "mul", "sub") | types("divides")
"""Types of which TensorFlow merges two where each has a constant."""


def between(
    net: Net, chosen: set[str], wide: Iterable[str], joins: Callable[[str], bool]
) -> set[str]:
    """Names of the ops behind one wide op and before another, by ops that may join.

    Args:
      net: the Net.
      chosen: names of ops that run by chunks anyway.
      wide: names of those of them that need the logits.
      joins: whether an op, by name, may run with them.
    """

    def readers(name: str) -> Iterator[str]:
        made = net.op_by_name[name].outputs
        found = (op.name for blob in made for op in net.readers.get(blob, ()))
        return (one for one in found if one in chosen or joins(one))

    def makers(name: str) -> Iterator[str]:
        read = net.op_by_name[name].inputs
        found = (net.producer[blob].name for blob in read if blob in net.producer)
        return (one for one in found if one in chosen or joins(one))

    ends = list(wide)
    after, before = set(reached(ends, readers)), set(reached(ends, makers))
    return (after & before) - chosen


def merges_constants(net: Net, op: Op) -> bool:
    """Whether TensorFlow makes one constant of two, which a loop that cuts one has not.

    It makes (c * d) * x of c * (d * x).
    """
    mine = _constants(net, op)
    makers = (net.producer.get(one) for one in op.inputs if one not in mine)
    pairs = [(*mine, *_constants(net, one)) for one in makers if one and _constants(net, one)]
    return bool(mine) and any(net.blobs[blob].shape for pair in pairs for blob in pair)


def _constants(net: Net, op: Op) -> list[str]:
    """What a sum or a product reads that constants alone make."""
    return [one for one in op.inputs if op.type in _MERGED and _is_constant(net, one)]


def _is_constant(net: Net, blob: str) -> bool:
    """Whether constants alone make the blob, so that TensorFlow makes a constant of it."""
    op = net.producer.get(blob)
    return (
        op is not None and op.type in MAY_RERUN and all(_is_constant(net, one) for one in op.inputs)
    )
