"""Of which ops' results TensorFlow's graph optimizer takes the unknown sizes for new ones.

Two unknown sizes are equal for it where the same goes into both (``graph_properties.cc``). What a
pointwise op makes of one unknown shape has that; of two it has one of its own:

    x[a,b,8] ─► Mean ─► m[a,b,1]      x * m has a, b        x[a,b,8] + y[c,d,8] has e, f
"""

from __future__ import annotations

from collections.abc import Mapping

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import types
from rnnmem.ir.order import topological

_POINTWISE, _REDUCES = types("pointwise"), types("reduces")


def makes_new_sizes(net: Net) -> frozenset[str]:
    """Names of the pointwise ops whose results have unknown sizes that nothing else has.

    Args:
      net: with the shapes that the graph optimizer knows.
    """
    return net.once(_makes_new_sizes)


def _makes_new_sizes(net: Net) -> frozenset[str]:
    whose: dict[str, str] = {}  # blob of unknown sizes -> the blob that has had them first
    found = set()
    for op in net.of_ops(topological):
        for blob in op.outputs:
            if None in (net.blobs[blob].shape or ()):
                whose[blob] = _first_with(net, op, whose) or blob
                if whose[blob] == blob and op.type in _POINTWISE:
                    found.add(op.name)
    return frozenset(found)


def _first_with(net: Net, op: Op, whose: Mapping[str, str]) -> str | None:
    """The blob whose unknown sizes the results of an op have; None: they are new, or not known."""
    if op.type in _POINTWISE:
        read = {whose.get(blob, blob) for blob in op.inputs if _is_open(net, blob)}
        return read.pop() if len(read) == 1 else None
    if op.type in _REDUCES and op.attributes.get("keep_dims"):
        return whose.get(op.inputs[0], op.inputs[0])
    if op.type == "BroadcastTo" or op.type == "Reshape":
        asked = net.producer.get(op.inputs[1])
        if asked is not None and asked.type == "Shape":
            return whose.get(asked.inputs[0], asked.inputs[0])
    return None


def _is_open(net: Net, blob: str) -> bool:
    shape = net.blobs[blob].shape
    return shape is None or None in shape
