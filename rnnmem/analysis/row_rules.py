"""Which ops work on rows one by one: what of a result a part of the rows gives.

A program is run on some of the rows (axis 0) of its inputs instead of on all of them. What each of
its blobs is then (:mod:`rnnmem.analysis.row_values`) a rule per op type says
(:mod:`rnnmem.analysis.rules`); a test holds the rules against TensorFlow's kernels. Where no rule
says anything, the op must see all rows. Rows are rows of memory: a Reshape that keeps whole rows
together keeps them in order.

    h [n, 32, 256] ─► Reshape ─► [n*32, 256] ─► MatMul(w) ─► [n*32, V] ─► softmax loss ─► [n*32]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rnnmem.analysis.facts import MALFORMED, Dim, possible, results_of
from rnnmem.analysis.row_values import (
    ONE,
    ROW,
    Given,
    Partial,
    Rows,
    RowValue,
    Sizes,
    as_float,
    followed,
    has_rows,
    numbers,
    product,
    resolved,
    rows_of,
    settled,
    whole_numbers,
)
from rnnmem.analysis.rules import ROWS
from rnnmem.ir.graph import Op
from rnnmem.ir.op_table import is_pure, types

__all__ = ["ONE", "ONE_EACH", "ROW", "RULES", "Partial", "Value", "as_many", "rows_of"]

RULES = ROWS
ONE_EACH = types("labelled", "")
"""Types that fail where there are not as many labels as rows."""
_ALIKE = types("alike")
Value = RowValue


def as_many(op: Op, values: Sequence[Value]) -> dict[int, Rows]:
    """Inputs that only a run can count, and that the op fails by unless they have others' rows.

    Args:
      op: the op.
      values: of its inputs.
    """
    if op.type in ONE_EACH and _in_each_row(op):
        rows, slots = values[:1], [1]
    elif op.type in _ALIKE:
        rows, slots = values, list(range(len(values)))
    else:
        return {}
    first = next((one.shape[0] for one in rows if isinstance(one, Rows)), None)
    if first is None:
        return {}
    shapes = {at: one.fact.shape for at in slots if isinstance(one := values[at], Given)}
    return {
        at: rows_of(op.inputs[at], shape, first)
        for at, shape in shapes.items()
        if shape and shape[0] is None
    }


def apply(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    """What an op gives for parts; None where it must see all rows.

    Args:
      op: the op.
      values: of its inputs.
    """
    if op.nets or not is_pure(op):
        return None
    if any(isinstance(value, Partial) for value in values):
        return None
    if all(isinstance(value, Given) for value in values):
        known = results_of(op, [value.fact for value in values])
        return [Given(possible(one)) for one in known]
    rule = RULES.get(op.type)
    if rule is None:
        return None
    try:
        cut = any(isinstance(value, Rows) for value in values)
        found = (None if cut else followed(op, values)) or rule(op, values)
    except MALFORMED:
        return None
    if found is None or not all(map(_is_understood, found)):
        return None
    return [settled(one) for one in found]


def _in_each_row(op: Op) -> bool:
    """Whether an op picks in each row by labels of that row."""
    return op.type != "GatherV2" or (op.attributes.get("batch_dims") or 0) > 0


def _is_understood(value: Value) -> bool:
    if isinstance(value, Partial):
        return None not in value.shape
    return not isinstance(value, Rows) or has_rows(value.shape)


def apply_outside(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    """What an op of the whole program, which is given all rows, has of so many rows.

    More is known there than of a part: a number made of sizes is what it is, and what is shaped
    after the rows has them, whatever it was before.

    Args:
      op: the op.
      values: of its inputs; Rows stand for all rows.
    """
    found = apply(op, values)
    if found is not None:
        return found
    try:
        return _of_all_rows(op, values)
    except MALFORMED:
        return None


def _of_all_rows(op: Op, values: Sequence[Value]) -> Sequence[Value] | None:
    if op.type == "Cast" and isinstance(values[0], Sizes):
        return as_float(values[0])
    if op.type == "Reshape" and isinstance(values[0], Given) and isinstance(values[1], Sizes):
        shape = values[1].value
        if isinstance(shape, tuple) and Dim(-1) not in shape and has_rows(shape):
            return [Rows(shape)]
    if op.type == "Reshape" and isinstance(values[0], Rows) and isinstance(values[1], Given):
        wanted = whole_numbers(values[1])
        if isinstance(wanted, tuple) and wanted and None not in wanted[1:]:
            rest = (Dim(-1), *wanted[1:])
            shape = resolved(product(values[0].shape), rest) if Dim(-1) not in wanted[1:] else None
            if shape is not None and has_rows(shape):
                return [Rows(shape)]
    return None


def segments_stay_in_rows(
    ops: Sequence[Op],
    values: Mapping[str, Value],
    elsewhere: Collection[tuple[str, Dim]] = (),
) -> bool:
    """Whether each sum into places of rows has labels that picked a column of each row before.

    A label out of range is refused by that gather (on a GPU it gives zeros there), so no sum
    reaches into another row.

    Args:
      ops: of the program.
      values: of its blobs.
      elsewhere: labels, and how many columns a gather has that picks by them outside of the ops.
    """
    picked = set(elsewhere)
    for op in ops:
        if op.type == "GatherV2" and isinstance(held := values.get(op.inputs[0]), Rows):
            axis = numbers(values[op.inputs[2]])
            last, shared = len(held.shape) - 1, op.attributes.get("batch_dims")
            if axis is not None and shared == last > 0 and product(held.shape[1:-1]) == ONE:
                picked.add((op.inputs[1], held.shape[-1]))
    for op in ops:
        if op.type == "UnsortedSegmentSum":
            ids = values[op.inputs[1]]
            if isinstance(ids, Rows) and (ids.base, ids.ramp) not in picked:
                return False
    return True
