"""A branch, loop or lookup that takes what its variables hold in place of their handles."""

from __future__ import annotations

from collections.abc import Mapping

from rnnmem.analysis.branches import ReadInside, given_inside
from rnnmem.ir.graph import Blob, DType, Net, Op, ShapeValue
from rnnmem.ir.marks import GIVEN
from rnnmem.ir.op_table import BRANCHES, LOOKUP, LOOPS, READ


def with_values(op: Op, reads: Mapping[str, ReadInside]) -> Op:
    """The op without its reads: the same inputs, but values where handles were.

    Args:
      op: the branch, loop or lookup, whose inputs are still the handles.
      reads: what it reads, by handle (`reads_in_step`).
    """
    if op.type == LOOKUP:
        return _rows_taken(op, reads[op.inputs[0]].blob)
    return _given_values(op, {handle: read.blob for handle, read in reads.items()})


def kinds_with_values(op: Op, net: Net, reads: Mapping[str, ReadInside]) -> tuple[Blob, ...]:
    """What the op gives then: a loop hands on the values as it did their handles.

    Args:
      op: the branch, loop or lookup as it was.
      net: the Net around it.
      reads: what it reads, by handle.
    """
    given = op.inputs if op.type in LOOPS else ("",) * len(op.outputs)
    return tuple(
        reads[source].blob if source in reads else net.blobs[blob]
        for source, blob in zip(given, op.outputs, strict=True)
    )


def _given_values(op: Op, values: Mapping[str, Blob]) -> Op:
    """The op, given values in place of those of its inputs."""
    places = {place: values[one] for place, one in enumerate(given_inside(op)) if one in values}
    listed = "Tin" if op.type in BRANCHES else "T"
    dtypes = list(op.attributes[listed])
    for place, kind in places.items():
        dtypes[place] = DType(kind.dtype)
    dropped = ("_read_only_resource_inputs", "_class", GIVEN)
    attributes = {key: value for key, value in op.attributes.items() if key not in dropped}
    if op.type in LOOPS and "output_shapes" in attributes:
        shapes = list(attributes["output_shapes"])
        for place, kind in places.items():
            shapes[place] = ShapeValue(kind.shape)
        attributes["output_shapes"] = tuple(shapes)
    return op.replace(
        type=f"Stateless{op.type.removeprefix('Stateless')}",
        attributes={**attributes, listed: tuple(dtypes)},
        nets={label: _without_reads(net, places) for label, net in op.nets.items()},
    )


def _without_reads(net: Net, places: Mapping[int, Blob]) -> Net:
    """The Net, given values where handles were, at any depth."""
    values = {net.inputs[place]: kind for place, kind in places.items()}
    gone = {one.name: one for one in net.ops if one.type == READ and one.inputs[0] in values}
    names = {one.outputs[0]: one.inputs[0] for one in gone.values()}
    blobs = {name: blob for name, blob in net.blobs.items() if name not in names}
    blobs.update({name: Blob(name, kind.dtype, kind.shape) for name, kind in values.items()})
    ops = []
    for one in net.ops:
        if one.name in gone:
            continue
        if one.type == LOOKUP and one.inputs[0] in values:
            one = _rows_taken(one, values[one.inputs[0]])
        if one.nets and not values.keys().isdisjoint(one.inputs):
            if one.type in LOOPS:
                blobs.update(_handed_on(one, values))
            one = _given_values(one, values)
        ops.append(
            one.replace(
                inputs=tuple(names.get(blob, blob) for blob in one.inputs),
                controls=tuple(name for name in one.controls if name not in gone),
            )
        )
    attributes = dict(net.attributes)
    if described := list(attributes.get("argument_attributes", ())):
        attributes["argument_attributes"] = tuple(
            {} if place in places else one for place, one in enumerate(described)
        )
    return net.replace(
        ops=tuple(ops),
        outputs=tuple(names.get(blob, blob) for blob in net.outputs),
        blobs=blobs,
        control_outputs=tuple(name for name in net.control_outputs if name not in gone),
        attributes=attributes,
    )


def _rows_taken(lookup: Op, kind: Blob) -> Op:
    """Takes the same rows of what the variable holds."""
    indices = lookup.attributes["Tindices"]
    attributes = {"Tparams": DType(kind.dtype), "Tindices": indices, "validate_indices": True}
    return lookup.replace(type="Gather", attributes=attributes, stateful=False, stateless=True)


def _handed_on(loop: Op, values: Mapping[str, Blob]) -> dict[str, Blob]:
    """What a loop gives in place of the handles that it handed on."""
    return {
        blob: Blob(blob, values[given].dtype, values[given].shape)
        for given, blob in zip(loop.inputs, loop.outputs, strict=True)
        if given in values
    }
