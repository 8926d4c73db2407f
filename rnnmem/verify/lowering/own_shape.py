"""Lowering of what is broadcast to the shape that it has: it is what it was.

    b ─► Shape ─► s        v ─► BroadcastTo(v, s) ─► y        is        v ─► y, where v is b

Of sizes that only a run tells, TensorFlow's graph optimizer sees none behind an optional, and
others behind a Reshape that runs again; what is broadcast so has those of ``b`` for it. That ``v``
always is ``b`` is what `SAME` claims.
"""

from __future__ import annotations

from collections.abc import Iterator

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.marks import OWN_SHAPE
from rnnmem.verify.lowering.replay import SAME


def lower_own_shapes(net: Net) -> Net:
    """The Net in which such values are handed on, with the claims that they may be.

    Args:
      net: what a rewrite made.
    """
    shapes = {op.name: blob for op in net.ops if (blob := _shape_of(net, op)) is not None}
    if not shapes:
        return net
    return net.replace(
        ops=tuple(one for op in net.ops for one in _lowered(op, shapes.get(op.name)))
    )


def _shape_of(net: Net, op: Op) -> str | None:
    """The blob whose shape such a value has; None of any other op."""
    marked = op.type == "BroadcastTo" and OWN_SHAPE in op.attributes
    asked = net.producer.get(op.inputs[1]) if marked else None
    return None if asked is None or asked.type != "Shape" else asked.inputs[0]


def _lowered(op: Op, blob: str | None) -> Iterator[Op]:
    if blob is None:
        yield op
        return
    (value, _) = op.inputs
    yield op.replace(type="Identity", inputs=(value,), attributes={"T": op.attributes["T"]})
    yield Op(f"{op.name}/same", SAME, (value, blob), ())
