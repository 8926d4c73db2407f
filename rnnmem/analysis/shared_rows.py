"""Ops that hand out whole rows of what they read without a copy: who keeps a row keeps them all.

TensorFlow's kernels share the buffer where rows are cut from the first axis and begin as Eigen
needs it (``strided_slice_op.cc``, ``slice_op.cc``, ``split_op.cc``, ``unpack_op.cc``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rnnmem.analysis.machine import ALIGNMENT
from rnnmem.analysis.trip_count import number_of
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net, Op, static
from rnnmem.ir.handed_on import handed_on
from rnnmem.ir.op_table import slots, types

SLICED = slots("slices")
"""Op type -> the input of whose buffer its outputs may be parts."""
_ALONG_AXIS = types("slices") & types("apart")
"""Types that cut all of their input along one axis."""

Value = Callable[[str], Any]
"""Blob -> its number or numbers; None where they are unknown."""


def source_of_rows(net: Net, op: Op, value: Value) -> str | None:
    """The blob of whose buffer each output of the op is a part; None: outputs have their own.

    Args:
      net: the Net that the op stands in.
      op: of any type.
      value: of the op's other inputs.
    """
    place = SLICED.get(op.type)
    if place is None or not _are_aligned(net, op.inputs[place]):
        return None
    if op.type in _ALONG_AXIS:
        cuts = _axis(op, value) == 0
    else:
        cuts = _cuts_rows(net, op, value)
    return op.inputs[place] if cuts else None


def may_be_rows(net: Net, op: Op) -> bool:
    """Whether an output of the op may be a part of the buffer that it cuts, whatever sizes are."""
    place = SLICED.get(op.type)
    if place is None:
        return False
    read = net.blobs[op.inputs[place]].shape
    if op.type in _ALONG_AXIS:
        axis = _axis(op, lambda one: number_of(net, one))
        return not isinstance(axis, int) or axis == 0 or read is None or axis == -len(read)
    return not (read and any(_are_cut(net, op)[1:]))


def may_be_all(net: Net, op: Op) -> bool:
    """Whether a slice may hand out what it reads as it is."""
    return not any(_are_cut(net, op))


def _are_cut(net: Net, op: Op) -> list[bool]:
    """Of each axis of what is sliced, whether less than all of it is surely handed out."""
    read, written = net.blobs[op.inputs[0]].shape, net.blobs[op.outputs[0]].shape
    if op.type != "Slice" or read is None or written is None or len(read) != len(written):
        return []
    pairs = zip(read, written, strict=True)
    return [a is not None and b is not None and a != b for a, b in pairs]


def whole_buffer(net: Net, blob: str) -> str:
    """The blob whose buffer a blob is a part of; itself where it has its own."""
    while (op := net.producer.get(blob)) is not None:
        source = next((read for read, written in handed_on(op) if written == blob), None)
        if source is None:
            source = source_of_rows(net, op, lambda one: number_of(net, one))
        if source is None or net.blobs[source].dtype == "variant":
            return blob
        blob = source
    return blob


def _axis(op: Op, value: Value) -> Any:
    """The axis along which the op cuts: an attribute, its first input, or behind the sizes."""
    if len(op.inputs) == 1:
        return op.attributes.get("axis", 0)
    return value(op.inputs[2 if len(op.inputs) > 2 else 0])


def _cuts_rows(net: Net, op: Op, value: Value) -> bool:
    """Whether a slice is a row, or a run of rows, of what it reads."""
    read, written = net.blobs[op.inputs[0]].shape, net.blobs[op.outputs[0]].shape
    if not read or written is None:
        return False
    if op.type == "StridedSlice":
        stride = value(op.inputs[3])
        if not isinstance(stride, tuple) or stride[0] != 1:
            return False
        if op.attributes.get("shrink_axis_mask") == 1:
            return read[1:] == written
    return len(read) == len(written) and read[1:] == written[1:]


def _are_aligned(net: Net, blob: str) -> bool:
    """Whether each row of a blob begins where a buffer may."""
    read = net.blobs[blob]
    shape = static((read.shape or ())[1:])
    if not read.shape or shape is None:
        return False
    return math.prod(shape) * BYTES_PER_ELEMENT.get(read.dtype, 1) % ALIGNMENT == 0
