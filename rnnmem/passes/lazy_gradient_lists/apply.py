"""Begins lists of gradients without elements: where none is, adding takes the other list's element.

    d ─► SetItem     becomes     d ─► output barrier ─┬─► ZerosLike ─► output barrier ─► AddV2 ─►
    SetItem
                                               └────────────────────────────┘

The zero stands behind an output barrier, or TensorFlow's graph optimizer would see it and add
nothing. The first output barrier keeps what computes the gradient from being fused with the
addition.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from rnnmem.errors import NetError
from rnnmem.grappler.barrier import hidden
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import DType, Net, Op
from rnnmem.passes.decision import Context, planned_op
from rnnmem.passes.lazy_gradient_lists.decision import LazyGradientList


def apply(net: Net, starts: Iterable[LazyGradientList], context: Context) -> Net:
    """Applies the decisions of a plan; XLA gives every list room for all of its elements."""
    editor = NetEditor(net)
    if context.keeps_alive:
        begin_empty(editor, starts)
    return editor.net()


def begin_empty(editor: NetEditor, starts: Iterable[LazyGradientList]) -> None:
    """Applies the empty starts of a plan; edits the Net in place.

    Raises:
      NetError: a start names an op that the Net does not have, or that is another.
    """
    for start in starts:
        zeros, loop = planned_op(editor, start.zeros, "ZerosLike"), planned_op(editor, start.loop)
        body = NetEditor(loop.nets["body"])
        items = [planned_op(body, name, "TensorListSetItem") for name in start.items]
        if not items:
            raise NetError(f"the plan is for another function: no op adds to {start.zeros!r}")
        for item in items:
            body.ops[item.name] = item.replace(inputs=(*item.inputs[:2], _with_zero(body, item)))
        editor.ops[loop.name] = loop.replace(nets={**loop.nets, "body": body.net()})
        editor.ops[zeros.name] = _reserved(editor, zeros, items[0].attributes["element_dtype"])


def _reserved(editor: NetEditor, zeros: Op, dtype: DType) -> Op:
    """The op, making as long a list that has no elements yet."""
    kind = {"shape_type": DType("int32")}
    shape = editor.add(
        "TensorListElementShape",
        zeros.inputs,
        (("int32", (None,)),),
        kind,
        name="rnnmem/element_shape",
        device=zeros.device,
    )
    length = editor.add(
        "TensorListLength",
        zeros.inputs,
        (("int32", ()),),
        {},
        name="rnnmem/length",
        device=zeros.device,
    )
    return zeros.replace(
        type="TensorListReserve",
        inputs=(shape.outputs[0], length.outputs[0]),
        attributes={"element_dtype": dtype, **kind},
    )


def _with_zero(body: NetEditor, item: Op) -> str:
    """What the op puts into the list, with a zero added."""
    given = body.blobs[item.inputs[2]]
    kind = {"T": DType(given.dtype)}
    result = ((given.dtype, given.shape),)
    device, source = item.device, item.source
    behind = functools.partial(hidden, body, name="rnnmem/barrier", optional=True)
    shown = behind(given.name, given.shape, stands_for=f"{item.name}:2")
    add = functools.partial(body.add, results=result, attributes=kind, device=device, source=source)
    zero = add("ZerosLike", (shown,), name="rnnmem/zeros").outputs[0]
    zero = behind(zero, None, stands_for=f"{item.name}:zero")
    return add("AddV2", (zero, shown), name="rnnmem/added").outputs[0]
