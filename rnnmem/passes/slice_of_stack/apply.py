"""Reads rows from lists in place of a stack of all, and puts their gradients into lists alone.

The ops keep their names, which sort sums, and the shapes that they showed.
"""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.ir.builders import Encode, number
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import DType, Net, Op
from rnnmem.ir.op_table import CUT, GET, RESERVE, SET, STACK
from rnnmem.passes.decision import Context, await_no_more, planned_op
from rnnmem.passes.slice_of_stack.decision import SliceOfStack
from rnnmem.passes.slice_of_stack.select import SLICE, SLICE_GRADIENT


def apply(net: Net, slices: Iterable[SliceOfStack], context: Context) -> Net:
    """Applies the decisions of a plan; XLA gives every list room for all of its elements.

    Raises:
      NetError: a decision names an op that the Net does not have, or that is another.
    """
    editor = NetEditor(net)
    for one in slices if context.keeps_alive else ():
        cuts = one.op in editor.ops and editor.ops[one.op].type == CUT
        op = planned_op(editor, one.op, CUT if cuts else SLICE)
        if cuts:
            _put(
                editor, op, planned_op(editor, one.whole, SLICE_GRADIENT), one.row, context.constant
            )
        else:
            _get(editor, op, planned_op(editor, one.whole, STACK), one.row, context.constant)
    return editor.net()


def _get(editor: NetEditor, op: Op, stack: Op, row: int, constant: Encode) -> None:
    """Reads the row from the list."""
    place = number(editor, row, constant)
    editor.ops[op.name] = op.replace(
        type=GET,
        inputs=(stack.inputs[0], place, stack.inputs[1]),
        attributes={"element_dtype": DType(editor.blobs[op.outputs[0]].dtype)},
        controls=tuple(dict.fromkeys((*op.controls, *stack.controls))),
    )
    await_no_more(editor, stack)


def _put(editor: NetEditor, op: Op, zeros: Op, row: int, constant: Encode) -> None:
    """Puts the gradient of the row into a list that has no other element."""
    length = (editor.blobs[zeros.outputs[0]].shape or (None,))[0]
    assert length is not None
    kind = {"element_dtype": DType(editor.blobs[zeros.outputs[0]].dtype)}
    new = editor.add(
        RESERVE,
        (op.inputs[1], number(editor, length, constant)),
        (("variant", ()),),
        {**kind, "shape_type": DType("int32")},
        name=f"{op.name}/rnnmem/reserved",
        controls=zeros.controls,
        device=op.device,
        source=op.source,
    )
    editor.ops[op.name] = op.replace(
        type=SET,
        inputs=(new.outputs[0], number(editor, row, constant), zeros.inputs[4]),
        attributes={**kind, "resize_if_index_out_of_bounds": False},
        controls=tuple(dict.fromkeys((*op.controls, *zeros.controls))),
    )
    await_no_more(editor, zeros)
