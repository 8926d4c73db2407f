"""A branch op that takes what its variables hold in place of their handles."""

from __future__ import annotations

from collections.abc import Mapping

from rnnmem.analysis.branches import BranchRead
from rnnmem.ir.graph import Blob, DType, Net, Op
from rnnmem.ir.marks import GIVEN
from rnnmem.ir.op_table import READ


def with_values(op: Op, reads: Mapping[str, BranchRead]) -> Op:
    """The branch op without its reads: the same inputs, but values where handles were.

    Args:
      op: the branch op, whose inputs are still the handles.
      reads: what it reads, by handle (`branch_reads`).
    """
    places = {place: reads[blob] for place, blob in enumerate(op.inputs[1:]) if blob in reads}
    given = list(op.attributes["Tin"])
    for place, read in places.items():
        given[place] = DType(read.blob.dtype)
    dropped = ("_read_only_resource_inputs", "_class", GIVEN)
    attributes = {key: value for key, value in op.attributes.items() if key not in dropped}
    return op.replace(
        type=f"Stateless{op.type.removeprefix('Stateless')}",
        attributes={**attributes, "Tin": tuple(given)},
        nets={label: _without_reads(net, places) for label, net in op.nets.items()},
    )


def _without_reads(net: Net, places: Mapping[int, BranchRead]) -> Net:
    values = {net.inputs[place]: read.blob for place, read in places.items()}
    gone = {one.name: one for one in net.ops if one.type == READ and one.inputs[0] in values}
    names = {one.outputs[0]: one.inputs[0] for one in gone.values()}
    blobs = {name: blob for name, blob in net.blobs.items() if name not in names}
    blobs.update({name: Blob(name, kind.dtype, kind.shape) for name, kind in values.items()})
    described = list(net.attributes.get("argument_attributes", ()))
    for place in places:
        if place < len(described):
            described[place] = {}
    return net.replace(
        ops=tuple(
            one.replace(
                inputs=tuple(names.get(blob, blob) for blob in one.inputs),
                controls=tuple(name for name in one.controls if name not in gone),
            )
            for one in net.ops
            if one.name not in gone
        ),
        outputs=tuple(names.get(blob, blob) for blob in net.outputs),
        blobs=blobs,
        control_outputs=tuple(name for name in net.control_outputs if name not in gone),
        attributes={**net.attributes, "argument_attributes": tuple(described)},
    )
