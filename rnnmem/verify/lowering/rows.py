"""What is known of blobs outside of a loop over chunks, from the rows of what it cuts."""

from __future__ import annotations

from rnnmem.analysis.row_rules import ROW, Given, Rows, Sizes, Value, apply_outside, rows_of
from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.order import topological

LABELLED = (
    "GatherV2",
    "InTopKV2",
    "SoftmaxCrossEntropyWithLogits",
    "SparseSoftmaxCrossEntropyWithLogits",
)
"""Types that take one label, or as many, for each row of their first input."""


def with_plain_sizes(net: Net, source: str) -> Net:
    """The Net with every size that follows from the source's rows told by one op of its own."""
    values = known_from(net, known_net(net), source)
    ops = []
    for op in net.ops:
        found = [values.get(blob) for blob in op.outputs]
        if not found or not all(isinstance(one, Sizes) and _follows(one) for one in found):
            ops.append(op)
            continue
        for place, (blob, sizes) in enumerate(zip(op.outputs, found, strict=True)):
            dtype = net.blobs[blob].dtype
            ops.append(
                Op(
                    name=op.name if not place else f"{op.name}/{place}",
                    type="Shape",
                    inputs=(source,),
                    outputs=(blob,),
                    attributes={"of": repr(sizes.value), "as": dtype},
                    controls=op.controls,
                )
            )
    return net.replace(ops=tuple(ops))


def _follows(sizes: Sizes) -> bool:
    dims = sizes.value if isinstance(sizes.value, tuple) else (sizes.value,)
    return all(set(dim.symbols) <= {"n"} for dim in dims)


def known_from(net: Net, known: KnownNet, source: str, but: str = "") -> dict[str, Value]:
    """Blob -> what is known of it, where that follows from the source's rows."""
    shape = known.facts[source].shape
    if not shape:
        return {}
    found: dict[str, Value] = {source: rows_of(source, shape, ROW)}
    for op in topological(net.ops):
        if not any(blob in found for blob in op.inputs) or op.name == but:
            continue
        values = [found.get(one) or Given(known.facts[one]) for one in op.inputs]
        if op.type in LABELLED and isinstance(values[0], Rows):
            labels = known.facts[op.inputs[1]].shape
            if isinstance(values[1], Given) and labels:
                values[1] = rows_of(op.inputs[1], labels, values[0].shape[0])
        given = apply_outside(op, values)
        if given is None and shape[0] is not None:
            given = apply_outside(op, _with_as_many(op, values, shape[0]))
        if given is not None:
            found.update(zip(op.outputs, given, strict=True))
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
        alike = shape is not None and len(shape) == rank and shape[0] == first.at(whole) != 1
        found.append(rows_of(name, shape, first) if alike else value)
    return found
