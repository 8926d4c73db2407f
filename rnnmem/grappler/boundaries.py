"""Boundaries of inlined calls: where the name of an argument says how a sum adds up.

TensorFlow's graph optimizer sorts what sums and products read by name. What a loop's step net or a
branch is given is named after the op that the loop or the branch reads (``lower_while_op.cc``).
Where that is an argument of an inlined call, TensorFlow's own inliner puts an Identity there, under
a name that begins with ``Func`` wherever the call stands (``inline_function_utils.cc``). TensorFlow
wraps loops and branches in calls under a persistent tape, or under two. So a Net that is handed
back has such an argument pass a call again, one that only hands it on.
"""

from __future__ import annotations

from rnnmem.ir.graph import BYTES_PER_ELEMENT, Blob, DType, FunctionRef, Net, Op
from rnnmem.ir.marks import GIVEN


def with_boundaries(net: Net) -> Net:
    """The Net with a call in front of each loop that read arguments of one, here and inside."""
    changed, taken = False, {op.name for op in net.ops}
    blobs, ops = dict(net.blobs), []
    for op in net.ops:
        inner = {label: with_boundaries(one) for label, one in op.nets.items()}
        now = op
        if any(inner[label] is not op.nets[label] for label in inner):
            now = op.replace(nets=inner)
        if GIVEN in op.attributes:
            attributes = {key: value for key, value in op.attributes.items() if key != GIVEN}
            now = now.replace(attributes=attributes)
            for prefix, indices in _calls(net, op).items():
                call = _call(net, op, _free(prefix, taken), indices)
                ops.append(call)
                blobs |= {
                    new: Blob(new, net.blobs[old].dtype, net.blobs[old].shape)
                    for old, new in zip(call.inputs, call.outputs, strict=True)
                }
                inputs = list(now.inputs)
                for place, blob in zip(indices, call.outputs, strict=True):
                    inputs[place] = blob
                now = now.replace(inputs=tuple(inputs))
        changed |= now is not op
        ops.append(now)
    return net.replace(ops=tuple(ops), blobs=blobs) if changed else net


def _calls(net: Net, loop: Op) -> dict[str, list[int]]:
    """Call -> the loop's variables that it gave, numbers only, in the order of its arguments."""
    found: dict[str, list[tuple[int, int]]] = {}
    for place, given in enumerate(loop.attributes[GIVEN]):
        if given and net.blobs[loop.inputs[place]].dtype in BYTES_PER_ELEMENT:
            prefix, _, argument = given.decode().rpartition(":")
            found.setdefault(prefix, []).append((int(argument), place))
    return {prefix: [place for _, place in sorted(some)] for prefix, some in found.items()}


def _free(name: str, taken: set[str]) -> str:
    """A name that is not taken, and is from now on."""
    free, number = name, 0
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    taken.add(free)
    return free


def _call(net: Net, loop: Op, name: str, indices: list[int]) -> Op:
    """A call that hands on what the loop begins with in these places."""
    given = [net.blobs[loop.inputs[place]] for place in indices]
    passed = [Blob(f"given_{number}", one.dtype, one.shape) for number, one in enumerate(given)]
    names = tuple(one.name for one in passed)
    kinds = tuple(DType(one.dtype) for one in given)
    return Op(
        name,
        "PartitionedCall",
        tuple(one.name for one in given),
        tuple(f"{name}:{number}" for number in range(len(given))),
        {"Tin": kinds, "Tout": kinds, "_name_of/f": FunctionRef("rnnmem_given", b"")},
        nets={"f": Net("rnnmem_given", names, names, (), {one.name: one for one in passed})},
        device=loop.device,
        source=loop.source,
    )
