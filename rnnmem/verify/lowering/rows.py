"""What is known of blobs outside of a loop over chunks, from the rows of what it cuts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from rnnmem.analysis.flat_tokens import with_flat_tokens
from rnnmem.analysis.row_rules import (
    ROW,
    Dim,
    Given,
    Rows,
    Sizes,
    Value,
    apply_outside,
    as_many,
    product,
    resolved,
    rows_of,
    whole_numbers,
)
from rnnmem.analysis.row_views import as_rows
from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.ir.builders import Encode
from rnnmem.ir.graph import Constant, Net, Op
from rnnmem.ir.marks import FLAT, LEAD
from rnnmem.ir.op_table import is_pure
from rnnmem.ir.order import topological
from rnnmem.verify.lowering.early_sizes import with_first_sources
from rnnmem.verify.lowering.patterns import number

LABELLED = (
    "GatherV2",
    "InTopKV2",
    "SoftmaxCrossEntropyWithLogits",
    "SparseSoftmaxCrossEntropyWithLogits",
)
"""Types that take one label, or as many, for each row of their first input."""


_STAY = ("Const", "TensorListLength")
"""A list's length is one, whether it is asked for in a step net, where all stays, or outside."""
_LONGEST = 8
"""Whole numbers that a shape has at most; longer vectors are data."""
Constants = Mapping[tuple[object, str], Mapping[str, object]]
"""Whole number, or several, and their dtype -> attributes of an op that holds them."""


def whole_numbers_of(net: Net) -> Constants:
    """The whole numbers that constants of a Net hold."""
    found: dict[tuple[object, str], Mapping[str, object]] = {}
    for op in net.ops:
        held = number(net, op.outputs[0]) if op.type == "Const" else None
        if held is not None and net.blobs[op.outputs[0]].dtype in ("int32", "int64"):
            found.setdefault((held, net.blobs[op.outputs[0]].dtype), op.attributes)
    return found


def with_plain_sizes(net: Net, source: str, constants: Constants) -> Net:
    """The Net with every size that follows from the source's rows told by one op of its own.

    Where it is known how many these are, so is every other whole number that is known.

    Args:
      net: the Net.
      source: the blob whose rows are counted.
      constants: what holds sizes where it is known how many rows there are.
    """
    known = known_net(net)
    values = known_from(net, known, source)
    (rows, *_) = known.facts[source].shape or (None,)
    ops = []
    for op in net.ops:
        told = [_told(blob, known, values, rows) for blob in op.outputs]
        stays = op.type in _STAY or not is_pure(op)
        if not told or None in told or stays:
            ops.append(op)
            continue
        for place, (blob, value) in enumerate(zip(op.outputs, told, strict=True)):
            name = op.name if not place else f"{op.name}/{place}"
            held = constants.get((value, dtype := net.blobs[blob].dtype))
            if held is not None:
                ops.append(Op(name, "Const", (), (blob,), held, op.controls))
                continue
            plain = {"of": repr(value), "as": dtype}
            given = () if rows is not None else (source,)
            ops.append(Op(name, "Shape", given, (blob,), plain, op.controls))
    return net.replace(ops=tuple(ops))


def _told(
    blob: str, known: KnownNet, values: Mapping[str, Value], rows: int | None
) -> object | None:
    """Sizes that a blob holds: as numbers where it is known how many rows there are."""
    sizes, fact = values.get(blob), known.facts[blob]
    if isinstance(sizes, Sizes) and _follows(sizes):
        if rows is None:
            return sizes.value
        found = sizes.value
        return tuple(one.at(rows) for one in found) if isinstance(found, tuple) else found.at(rows)
    whole = known.net.blobs[blob].dtype in ("int32", "int64")
    numbers = fact.value if isinstance(fact.value, tuple) else (fact.value,)
    if (
        not whole
        or rows is None
        or not numbers
        or len(numbers) > _LONGEST
        or not all(isinstance(one, int) for one in numbers)
    ):
        return None
    return fact.value


def _follows(sizes: Sizes) -> bool:
    dims = sizes.value if isinstance(sizes.value, tuple) else (sizes.value,)
    return all(set(dim.symbols) <= {"n"} for dim in dims)


def known_from(
    net: Net,
    known: KnownNet,
    source: str,
    but: str = "",
    told: Mapping[str, Value] = MappingProxyType({}),
) -> dict[str, Value]:
    """Blob -> what is known of it, where that follows from the source's rows.

    Args:
      net: the Net.
      known: the same with its shapes.
      source: the blob whose rows are counted.
      but: name of an op that is not looked into.
      told: what is known of other blobs already.
    """
    shape = known.facts[source].shape
    if not shape:
        return {}
    found: dict[str, Value] = {**told, source: rows_of(source, shape, ROW)}
    labels: dict[str, Value] = {}
    for op in topological(net.ops):
        if op.name == but or not any(blob in found for blob in op.inputs):
            continue
        values = [found.get(one) or Given(known.facts[one]) for one in op.inputs]
        told_here = {} if shape[0] is not None else as_many(op, values)
        values = [told_here.get(at, one) for at, one in enumerate(values)]
        if op.type in LABELLED and isinstance(values[0], Rows):
            given = known.facts[op.inputs[1]].shape
            if isinstance(values[1], Given) and given:
                values[1] = rows_of(op.inputs[1], given, values[0].shape[0])
        made = apply_outside(op, values)
        if made is None and shape[0] is not None:
            made = apply_outside(op, _with_as_many(op, values, shape[0]))
        if made is not None:
            found.update(zip(op.outputs, made, strict=True))
            labels.update((op.inputs[at], one) for at, one in told_here.items())
    if labels:  # they tell of what else is made of them, by ops before this one, too
        return known_from(net, known, source, but, {**told, **labels})
    return found


def _with_as_many(op: Op, values: list[Value], whole: int) -> list[Value]:
    """The values, with whole blobs of as many rows as another input has told as rows."""
    rows = [value for value in values if isinstance(value, Rows)]
    if not rows:
        return values
    first, rank = rows[0].shape[0], max(len(value.shape) for value in rows)
    found = []
    for name, value in zip(op.inputs, values, strict=True):
        shape = value.fact.shape if isinstance(value, Given) else None
        if shape is not None and len(shape) == rank and shape[0] == first.at(whole) != 1:
            value = rows_of(name, shape, first)
        found.append(value)
    return found


def lead_of(loop: Op) -> tuple[int, ...]:
    """The sizes that together count the rows of a loop over chunks; none where one size does.

    A mark says so, and is where to look only: both Nets are seen by such rows, and whichever op
    works on them one by one is the same then.
    """
    mark = loop.attributes.get(LEAD)
    found = re.fullmatch(rb"\d+(,\d+)+", mark) if isinstance(mark, bytes) else None
    return () if found is None else tuple(map(int, found[0].split(b",")))


def flat_of(loop: Op) -> list[str]:
    """The flat view of logits that all read, where a loop over chunks has a mark that names one."""
    mark = loop.attributes.get(FLAT)
    return [mark.decode()] if isinstance(mark, bytes) else []


def all_seen_alike(
    original: Net, net: Net, sources: Mapping[str, tuple[int, ...]], flat: Iterable[str]
) -> tuple[Net, Net]:
    """Both Nets, with what they know of several sources told alike, and seen by their rows.

    Args:
      original: the Net as it was.
      net: the Net without loops over chunks.
      sources: blobs whose rows a loop cut -> the sizes that together count them, if several do.
      flat: views of logits of several axes, which all that read these read in both Nets.
    """
    for view in dict.fromkeys(flat):
        held = whole_numbers_of(net)
        original, net = (with_flat_tokens(one, view, _like(held)) for one in (original, net))
    if sources:
        original, net = (with_first_sources(one, sources) for one in (original, net))
    for source, lead in sources.items():
        original, net = seen_alike(original, net, source, lead)
    return original, net


def seen_alike(original: Net, net: Net, source: str, lead: tuple[int, ...]) -> tuple[Net, Net]:
    """Both Nets, with what they know of the number of rows told alike, and seen by such rows.

    Args:
      original: the Net as it was.
      net: the Net without loops over chunks.
      source: the blob whose rows a loop cut.
      lead: the sizes that together count them; none where one size does.
    """
    if lead and source in net.producer:
        source = net.producer[source].inputs[0]
        held = whole_numbers_of(net)
        original, net = (as_rows(one, lead, _like(held)) for one in (original, net))
        source = next((one for one in (f"{source}/rows", source) if one in net.blobs), "")
    if source in original.blobs and source in net.blobs:
        held = whole_numbers_of(net)
        original, net = (with_plain_sizes(one, source, held) for one in (original, net))
    return original, net


def _like(constants: Constants) -> Encode:
    """Whole numbers as constants hold them already; others as both Nets have them, compared."""

    def held(value: object, dtype: str) -> Constant:
        numbers = tuple(value) if isinstance(value, list) else value
        known = constants.get((numbers, dtype), {}).get("value")
        if isinstance(known, Constant):
            return known
        assert isinstance(numbers, int | tuple)
        shape = (len(numbers),) if isinstance(numbers, tuple) else ()
        return Constant(dtype, shape, repr(numbers).encode(), numbers)

    return held


def picked_by(known: KnownNet, stands_for: Mapping[str, str]) -> set[tuple[str, Dim]]:
    """Labels by which a gather outside of a loop picks of so many columns, as the body has them.

    A loop before this one may have run it; a label out of range ends the whole function.

    Args:
      known: the Net around the loop.
      stands_for: blob of the loop's body -> the outer blob of which it is a part.
    """
    found: set[tuple[str, Dim]] = set()
    net = known.net
    for op in net.ops:
        shape = known.facts[op.inputs[0]].shape if op.type == "GatherV2" else None
        if not shape or op.attributes.get("batch_dims") != len(shape) - 1:
            continue
        last = number(net, op.inputs[2]) in (len(shape) - 1, -1)
        columns = shape[-1] if last and not set(shape[1:-1]) - {1} else None
        if columns is not None and net.fan_out(op.outputs[0]):
            labels = (body for body, one in stands_for.items() if one == op.inputs[1])
            found.update((one, Dim(columns)) for one in labels)
    return found


def are_of_whole(op: Op, part: Value | None, given: Value, rows: int | None) -> bool:
    """Whether numbers given to a loop are, for all rows, those that its op has of a part."""
    whole = whole_numbers(given)
    if not isinstance(part, Sizes) or whole is None or rows is None:
        return False
    if isinstance(part.value, Dim):
        return isinstance(whole, Dim) and part.value.at(rows) == whole.number
    numbers = [dim.at(rows) for dim in part.value]
    if not isinstance(whole, tuple):
        return False
    wanted, here = [dim for dim in whole if dim], [one for one in numbers if one is not None]
    if len(wanted) < len(whole) or len(here) < len(numbers):
        return False
    sizes = tuple(wanted)
    if op.type == "Reshape":
        sizes = resolved(product([Dim(one) for one in here]), sizes) or ()
    return [dim.number for dim in sizes] == here
