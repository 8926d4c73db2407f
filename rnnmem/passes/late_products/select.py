"""Which products by a constant are made when the gradient arrives: large ones of what waits anyway.

    forward     s ─► softmax's readers                  TensorFlow makes s / 8 here, and holds both
    gradient    d ─► (d * s) / 8, which runs as d * (s / 8)

A factor that another op of the gradient reads, too, or that is an argument, is there until then
anyway, so that its product need not wait beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from rnnmem.analysis.shapes import MANY, known_net
from rnnmem.analysis.tape import takes_gradient
from rnnmem.grappler.constant_products import constants_moved
from rnnmem.grappler.fusion import NEAR, may_have_proxy
from rnnmem.ir.graph import Blob, Net, Op
from rnnmem.ir.op_table import ASKS_SHAPE
from rnnmem.ir.order import needed_by, reached
from rnnmem.passes.decision import Step
from rnnmem.passes.late_products.decision import LateProduct
from rnnmem.passes.schedule.gradient_start import LARGE
from rnnmem.passes.straight_line.segments import Line


def decide(step: Step) -> tuple[LateProduct, ...]:
    """The products of a step that are to wait for the gradient; XLA moves no constants."""
    return late_products(step.shaped, step.sizes)


def late_products(net: Net, in_call: Mapping[str, Blob] | None = None) -> tuple[LateProduct, ...]:
    """The products of a Net that are to wait for the gradient.

    Args:
      net: the whole step, inlined, with all shapes that are known.
      in_call: its blobs with the shapes of a call, where the Net does not tell its own.
    """
    factors = net.once(constants_moved).factors
    if not factors or not takes_gradient(net):
        return ()
    open_size = any(net.blobs[net.op_by_name[one].outputs[0]].bytes is None for one in factors)
    line = Line(net, in_call or (known_net(net, None, MANY).net.blobs if open_size else None))
    ops = sorted((net.op_by_name[one] for one in factors), key=lambda op: line.place[op.name])
    return tuple(one for op in ops for one in _decided(line, op, factors[op.name]))


def _decided(line: Line, op: Op, slot: int) -> Iterator[LateProduct]:
    size = line.sizes[op.outputs[0]].bytes or 0
    if size < LARGE:
        return
    factor, other = op.inputs[slot], op.inputs[1 - slot]
    if not _is_early(line, factor) or not _is_held(line, op, factor):
        return
    after = _arriving(line, other)
    if after is not None:
        yield LateProduct(op.name, slot, after, size, str(op.source or ""))


def _is_early(line: Line, blob: str) -> bool:
    """Whether the forward part makes a blob, or nothing does."""
    producer = line.net.producer.get(blob)
    return producer is None or blob in line.given or line.position(producer) is not None


def _is_held(line: Line, op: Op, blob: str) -> bool:
    """Whether a blob waits for the gradient also where the op does not read it."""
    if blob in line.given:
        return True
    readers = line.net.readers.get(blob, ())
    return any(_is_of_gradient(line, one) for one in readers if one.name != op.name)


def _is_of_gradient(line: Line, op: Op) -> bool:
    """Whether the op cannot run before the forward part is done."""
    from_where = line.available[line.place[op.name]]
    return from_where >= line.last and line.position(op) is None and op.type not in ASKS_SHAPE


def _arriving(line: Line, blob: str) -> str | None:
    """What arrives of the gradient, as near before a blob as another reader of it may stand."""
    net = line.net
    start = net.producer.get(blob)
    if start is None:
        return None
    near = itertools.islice(reached([start.name], lambda name: needed_by(net, name)), NEAR)
    made = (one for name in near for one in net.op_by_name[name].outputs)
    arriving = (one for one in made if _is_of_gradient(line, net.producer[one]))
    return next((one for one in arriving if may_have_proxy(net, one)), None)
