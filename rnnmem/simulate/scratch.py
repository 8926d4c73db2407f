"""Bytes that a kernel asks for while it runs, beside its results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rnnmem.analysis.layouts import transposed
from rnnmem.analysis.machine import PATCHES_BYTES, SHARED_WORK_BYTES, rounded
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net, Op, static
from rnnmem.ir.marks import ON_GPU, OWN_KERNEL
from rnnmem.ir.op_table import REDUCES

SINGLE = 4
"""Bytes of a number in single precision."""


def scratch_bytes(op: Op, net: Net, value_of: Callable[[str], Any], threads: int) -> int:
    """Bytes that a run of the op asks for and gives back; 0 where nobody knows.

    Args:
      op: of the Net.
      net: with its shapes.
      value_of: the numbers of a blob where they are known, else None.
      threads: among which the kernel shares its work.
    """
    if op.attributes.get(OWN_KERNEL):
        return _of_patches(op, net, threads)
    if op.attributes.get(ON_GPU):
        return _of_rows(op, net)
    if op.type == "Einsum":
        return sum(rounded(net.blobs[blob].bytes or 0) for blob, _ in transposed(op, net))
    return _of_transposition(op, net, value_of) if op.type in REDUCES and op.inputs else 0


def _of_transposition(op: Op, net: Net, value_of: Callable[[str], Any]) -> int:
    """A reduction whose axes are apart transposes what it reads first."""
    read, axes = net.blobs[op.inputs[0]], value_of(op.inputs[1])
    axes = (axes,) if isinstance(axes, int) else axes
    if read.bytes is None or not isinstance(axes, tuple) or None in axes or not read.shape:
        return 0
    dropped = {axis % len(read.shape) for axis in axes}
    runs: list[bool] = []
    for axis, size in enumerate(read.shape):
        if size != 1 and (not runs or runs[-1] != (axis in dropped)):
            runs.append(axis in dropped)
    return rounded(read.bytes) if len(runs) > 3 else 0


def _of_rows(op: Op, net: Net) -> int:
    """A GPU's softmax asks for the largest number and for the sum of each row at its result's size.

    Sums of half precision are single (``softmax_op_gpu.cu.cc``).
    """
    made = net.blobs[op.outputs[0]]
    if made.bytes is None:
        return 0
    item = BYTES_PER_ELEMENT[made.dtype]
    return rounded(made.bytes) + rounded(made.bytes // item * max(item, SINGLE))


def _of_patches(op: Op, net: Net, threads: int) -> int:
    """A convolution's gradient lays out what the filter sees, of as many images as fit a cache.

    However few there are (``conv_grad_filter_ops.cc``, ``conv_grad_input_ops.h``).
    """
    of_filter = op.type.endswith("Filter")
    filters = static(net.blobs[op.outputs[0] if of_filter else op.inputs[1]].shape)
    results = static(net.blobs[op.inputs[2]].shape)
    if filters is None or results is None or 0 in (*filters, *results):
        return 0
    *window, deep = filters
    images, *size, _ = results
    seen, pixels = math.prod(window), math.prod(size)
    item = BYTES_PER_ELEMENT[net.blobs[op.outputs[0]].dtype]
    unit = (seen * pixels + pixels * deep + seen * deep) * item
    together = -(-PATCHES_BYTES // unit)
    if not of_filter and (images == 1 or unit // threads >= SHARED_WORK_BYTES):
        together = 1
    return rounded(together * pixels * seen * item)
