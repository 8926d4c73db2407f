"""What ops lay out anew in memory: a transposition, and an einsum around its products.

An einsum's kernel multiplies items of [free, contracted] matrices. An operand whose axes stand
otherwise is transposed first, but for one whose two kinds of axes have only changed places; so is
the result.

    b m f ─► b f m ┐
                   ├─► n b f ─► b n f        of "nm,bmf->bnf"
    n m ───────────┘

Source: TensorFlow's ``einsum_op_impl.h`` (``EinsumHelper``).
"""

from __future__ import annotations

import itertools

from rnnmem.ir.graph import Net, Op, Shape, static
from rnnmem.ir.op_table import einsum_terms
from rnnmem.ir.order import constant_value

_BROADCAST, _BATCH, _FREE, _CONTRACTED, _REDUCED = range(5)
"""Kinds of an einsum's axes, in the order in which its kernel lays them out."""
_FLIPPED = {_FREE: _CONTRACTED, _CONTRACTED: _FREE}
"""The same as a product reads a matrix that lies transposed."""


def moves_only_ones(shape: Shape, order: tuple[int | None, ...]) -> bool:
    """Whether a transposition leaves the elements where they are."""
    axes = static(order)
    if axes is None or shape is None:
        return False
    wide = [axis for axis in axes if shape[axis] != 1]
    return wide == sorted(wide)


def moves_nothing(net: Net, op: Op) -> bool:
    """Whether an op is a transposition of which its Net tells that it leaves the elements there."""
    if op.type != "Transpose":
        return False
    order = _vector(net, op.inputs[1])
    return order is not None and moves_only_ones(net.blobs[op.inputs[0]].shape, order)


def _vector(net: Net, blob: str) -> tuple[int, ...] | None:
    """Whole numbers that a constant gives, or several side by side (``tf.tensordot``)."""
    op = net.producer.get(blob)
    if op is not None and op.type == "ConcatV2":
        joined: tuple[int, ...] = ()
        for part in op.inputs[:-1]:
            if (more := _vector(net, part)) is None:
                return None
            joined += more
        return joined
    found = constant_value(net, blob)
    return found if isinstance(found, tuple) else None


def transposed(op: Op, net: Net) -> list[tuple[str, Shape]]:
    """The operands and the result that an einsum transposes, each with the shape that it has then.

    Args:
      op: an einsum of the Net.
      net: with its shapes; where one of the op's is unknown, nothing is told.
    """
    terms = einsum_terms(op)
    shapes = [net.blobs[blob].shape for blob in (*op.inputs, *op.outputs)]
    if terms is None or any(shape is None for shape in shapes):
        return []
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
    found = [
        (blob, _in_order(shape, own, sorted(own, key=laid_out.index)))
        for blob, own, shape in zip(op.inputs, read, shapes, strict=False)
        if all(own != sorted(own, key=order.index) for order in (laid_out, flipped))
    ]
    shared = [label for label in laid_out if kinds[label] in (_BROADCAST, _BATCH)]
    free = [label for own in read for label in laid_out if label in own and kinds[label] == _FREE]
    is_made_anew = len(read) > 1 or _REDUCED in kinds.values()
    if is_made_anew and [*shared, *free] != made:
        found.append((op.outputs[0], _in_order(shapes[-1], made, [*shared, *free])))
    return found


def _in_order(shape: Shape, labels: list[str], wanted: list[str]) -> Shape:
    """The sizes of a shape, by its labels, in another order."""
    size = dict(zip(labels, shape or (), strict=False))
    return tuple(size[label] for label in wanted if label in size)


def _labels(term: str, rank: int) -> list[str]:
    """The label of each axis; those that an ellipsis stands for are counted from the last one."""
    before, dots, behind = term.partition("...")
    hidden = rank - len(before) - len(behind) if dots else 0
    return [*before, *(f".{-left:05}" for left in range(hidden, 0, -1)), *behind]
