"""Puts a delayed input in front of a factor, which waits for the gradient.

    s ─► delayed input ─► Mul ─► RealDiv by 8      runs as  s ─► delayed input ─► Mul 1/8 ─► Mul
               ▲           ▲                                           ▲                      ▲
               └──── d ────┘                                           └────────── d ─────────┘

The constant moves to the factor as before, which is there only once the gradient d is. The delayed
input sorts among the factors as what it hands on, and has its shape also where that is known by
name only: TensorFlow multiplies small factors first, and compares the shapes for that. Where no
axis is known, it has not: then the constant moves to the factor that sorts last, so it does.
"""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.errors import NetError
from rnnmem.grappler.constant_products import sorted_as
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import Net
from rnnmem.passes.decision import Context, planned_op
from rnnmem.passes.late_products.decision import LateProduct
from rnnmem.passes.schedule.apply import completion_proxy, delay_input

LATE = "rnnmem/late"
"""Behind a name: the same value once the gradient is there, which is sorted as the op is."""


def apply(net: Net, products: Iterable[LateProduct], _: Context) -> Net:
    """The Net with these products made late.

    Raises:
      NetError: a decision names an op or a blob that the Net does not have.
    """
    editor = NetEditor(net)
    proxies: dict[str, str] = {}
    for one in products:
        op = planned_op(editor, one.product, "Mul")
        if one.awaited not in net.producer or one.slot not in range(len(op.inputs)):
            raise NetError(f"the plan is for another function: no blob {one.awaited!r}")
        if one.awaited not in proxies:
            proxies[one.awaited] = completion_proxy(editor, net.producer[one.awaited])
        factor = op.inputs[one.slot]
        sorts_as = factor if _knows_an_axis(net, factor) else max(op.inputs, key=sorted_as)
        name = f"{_stem(net, sorts_as)}/{LATE}"
        delay_input(editor, op.name, one.slot, name, after=proxies[one.awaited])
    return editor.net()


def _knows_an_axis(net: Net, blob: str) -> bool:
    """Whether a shape is handed on as it is, with the names of the sizes that only a run tells."""
    shape = net.blobs[blob].shape
    return not shape or any(size is not None for size in shape)


def _stem(net: Net, blob: str) -> str:
    """The name by which factors are sorted."""
    producer = net.producer.get(blob)
    return blob.partition(":")[0] if producer is None else producer.name
