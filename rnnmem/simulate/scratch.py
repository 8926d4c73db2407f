"""Bytes that a kernel asks for while it runs, beside its results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from rnnmem.analysis.machine import PATCHES_BYTES, SHARED_WORK_BYTES, rounded
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net, Op, static
from rnnmem.ir.marks import ON_GPU, OWN_KERNEL
from rnnmem.ir.op_table import REDUCES, einsum_terms

SINGLE = 4
"""Bytes of a number in single precision."""

_BROADCAST, _BATCH, _FREE, _CONTRACTED, _REDUCED = range(5)
"""Kinds of an einsum's axes, in the order in which its kernel lays them out."""
_FLIPPED = {_FREE: _CONTRACTED, _CONTRACTED: _FREE}
"""The same as a product reads a matrix that lies transposed."""


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
        return _of_einsum(op, net)
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


def _of_einsum(op: Op, net: Net) -> int:
    """An einsum multiplies matrices: what lies otherwise in memory is transposed before and behind.

    Axes of an operand go by kind, then by where their label is first met (``einsum_op_impl.h``);
    those that are summed may stand before those that stay, for a product reads either way.
    """
    terms = einsum_terms(op)
    shapes = [net.blobs[blob].shape for blob in (*op.inputs, *op.outputs)]
    if terms is None or any(shape is None for shape in shapes):
        return 0
    *read, made = (
        _labels(term, len(shape or ()))
        for term, shape in zip((*terms[0], terms[1]), shapes, strict=True)
    )
    met = sorted(dict.fromkeys(itertools.chain(*read)), key=lambda label: label[0] == ".")
    at_once = set.intersection(*map(set, read)) if len(read) > 1 else set()

    def kind(label: str) -> int:
        if label[0] == ".":
            return _BROADCAST
        if label in made:
            return _BATCH if label in at_once else _FREE
        return _CONTRACTED if label in at_once else _REDUCED

    kinds = {label: kind(label) for label in met}
    laid_out = sorted(met, key=kinds.__getitem__)
    flipped = sorted(met, key=lambda label: _FLIPPED.get(kinds[label], kinds[label]))
    moved = [
        blob
        for blob, own in zip(op.inputs, read, strict=True)
        if all(own != sorted(own, key=order.index) for order in (laid_out, flipped))
    ]
    shared = (label for label in laid_out if kinds[label] in (_BROADCAST, _BATCH))
    free = (label for own in read for label in laid_out if label in own and kinds[label] == _FREE)
    is_made_anew = len(read) > 1 or _REDUCED in kinds.values()
    moved += op.outputs if is_made_anew and [*shared, *free] != made else ()
    return sum(rounded(net.blobs[blob].bytes or 0) for blob in moved)


def _labels(term: str, rank: int) -> list[str]:
    """The label of each axis; those that an ellipsis stands for are counted from the last one."""
    before, dots, behind = term.partition("...")
    hidden = rank - len(before) - len(behind) if dots else 0
    return [*before, *(f".{-left:05}" for left in range(hidden, 0, -1)), *behind]


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
