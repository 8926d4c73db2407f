"""Lowering of slices of stacks: the original as if the same rows came from lists, and went there.

    list ─► Stack ─► StridedSlice of row t      is      list ─► GetItem of t
    d ─► StridedSliceGrad of row t ─► FromTensor ─► list, of which elements are read
                                                is      d ─► SetItem(Reserve, t) ─► the same list

Stacking moves elements, and a slice of one row moves one of them back. An element that is missing
is read as zeros where the list knows the whole shape of its elements. Where the rewritten Net does
so is only a hint, which says where to look; what is shown is shown by the original alone.
"""

from __future__ import annotations

from rnnmem.analysis.shapes import with_known_shapes
from rnnmem.ir.graph import REAL_DTYPES, Blob, DType, Net, Op, Shape
from rnnmem.verify.lowering.patterns import behind, finds_zeros, made_by, number

_SLICE, _SLICE_GRADIENT = "StridedSlice", "StridedSliceGrad"
_GET, _SET, _CUT = "TensorListGetItem", "TensorListSetItem", "TensorListFromTensor"
_WAYS = {_SLICE: _GET, _CUT: _SET}
"""Op type of the original -> that of the op of the same name in the rewritten Net."""


def lower_original(original: Net, rewritten: Net) -> Net:
    """The original, with rows read from lists and put there where the rewritten Net does so.

    Args:
      original: the Net as imported.
      rewritten: what a rewrite made of it.
    """
    hinted = [
        (op, other)
        for op in original.ops
        if (other := rewritten.op_by_name.get(op.name)) is not None
        and _WAYS.get(op.type) == other.type
    ]
    if not hinted:
        return original
    known = with_known_shapes(original)
    changed: dict[str, list[Op]] = {}
    for op, other in hinted:
        changed[op.name] = (_got if op.type == _SLICE else _put)(known, op, rewritten, other)
    ops = (one for op in original.ops for one in changed.get(op.name) or (op,))
    made = (one for some in changed.values() for one in some[:-1])
    blobs = {one.outputs[0]: _result(one) for one in made}
    return original.replace(ops=tuple(ops), blobs={**original.blobs, **blobs})


def _result(op: Op) -> Blob:
    return Blob(op.outputs[0], *(("int32", ()) if op.type == "Const" else ("variant", ())))


def _got(net: Net, op: Op, rewritten: Net, other: Op) -> list[Op]:
    """The ops that read the row from the list; none where that is not shown to be the same."""
    stack = made_by(net, op.inputs[0], "TensorListStack")
    row = _row(net, op, net.blobs[op.inputs[0]].shape)
    if stack is None or row is None:
        return []
    place = _constant(rewritten, other.inputs[1], row, f"{op.name}/row")
    dtype = DType(net.blobs[op.outputs[0]].dtype)
    inputs = (stack.inputs[0], f"{op.name}/row", stack.inputs[1])
    got = op.replace(type=_GET, inputs=inputs, attributes={"element_dtype": dtype})
    return [place, got] if place is not None else []


def _put(net: Net, op: Op, rewritten: Net, other: Op) -> list[Op]:
    """The ops that put the gradient into a list; none where that is not shown to be the same."""
    zeros = made_by(net, op.inputs[0], _SLICE_GRADIENT)
    shape = net.blobs[op.inputs[0]].shape
    row = None if zeros is None else _row(net, zeros, shape)
    new = made_by(rewritten, other.inputs[0], "TensorListReserve")
    if zeros is None or row is None or shape is None or new is None:
        return []
    dtype = net.blobs[zeros.inputs[4]].dtype
    knows = number(net, behind(net, op.inputs[1])) == shape[1:] == net.blobs[zeros.inputs[4]].shape
    if not knows or dtype not in REAL_DTYPES or not finds_zeros(net, op.outputs[0]):
        return []
    stem, kind = f"{op.name}/reserved", {"element_dtype": DType(dtype)}
    place = _constant(rewritten, other.inputs[1], row, f"{op.name}/row")
    length = _constant(rewritten, new.inputs[1], shape[0] or 0, f"{op.name}/length")
    if place is None or length is None:
        return []
    attributes = {**kind, "shape_type": DType("int32")}
    inputs = (op.inputs[1], f"{op.name}/length")
    reserved = Op(stem, new.type, inputs, (stem,), attributes, device=op.device)
    put = op.replace(
        type=_SET,
        inputs=(stem, f"{op.name}/row", zeros.inputs[4]),
        attributes={**kind, "resize_if_index_out_of_bounds": False},
    )
    return [place, length, reserved, put]


def _constant(rewritten: Net, blob: str, value: int, name: str) -> Op | None:
    """The rewritten Net's constant under another name, if it is the number."""
    op = made_by(rewritten, blob, "Const")
    return (
        op.replace(name=name, outputs=(name,)) if op and number(rewritten, blob) == value else None
    )


def _row(net: Net, op: Op, shape: Shape) -> int | None:
    """The row of a tensor of that shape which the op takes alone, or whose gradient it gives."""
    others = ("begin_mask", "new_axis_mask", "ellipsis_mask")
    one = op.attributes.get("shrink_axis_mask") == 1
    if not one or not shape or any(op.attributes.get(mask) != 0 for mask in others):
        return None
    begin, strides = (number(net, behind(net, op.inputs[slot])) for slot in (1, 3))
    if None in shape or not isinstance(begin, tuple) or len(begin) != 1 or strides != (1,):
        return None
    row = begin[0] % shape[0] if shape[0] and -shape[0] <= begin[0] < shape[0] else None
    return row
