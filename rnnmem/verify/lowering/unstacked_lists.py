"""Lowering of unstacked lists: the original as if its loops read what their lists were made of.

    x ─► Transpose ─► FromTensor ─► GetItem of t          is      x ─► Gather of t along axis 1
    list ─► Stack ─► Transpose ─► Transpose ─► FromTensor ─► other list, of which elements are read
                                                          is      list

Cutting a tensor into a list moves its items, and stacking moves them back. An element that is
missing is read as zeros where the whole shape is asked for, and stacked as zeros; whoever makes
zeros like a list needs one in which no element is missing: a loop has set them all. Where the
rewritten Net does so is only a hint, which says where to look. Lowerings run by their names: lists
that begin without elements (`lazy_gradient_lists`) are lowered before this one looks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from rnnmem.analysis.shapes import with_known_shapes
from rnnmem.ir.graph import Blob, Net, Op
from rnnmem.ir.marks import TRIPS
from rnnmem.ir.op_table import LOOPS
from rnnmem.verify.lowering.patterns import (
    Variable,
    behind,
    made_by,
    maker,
    number,
    steps_by_one,
    variables,
)

_CUT, _STACK, _RESERVE = "TensorListFromTensor", "TensorListStack", "TensorListReserve"
_GET, _SET, _GATHER = "TensorListGetItem", "TensorListSetItem", "GatherV2"
_ASKS = ("TensorListElementShape", "TensorListLength", "ZerosLike")


@dataclasses.dataclass(frozen=True)
class _Source:
    """What a list was made of: a tensor along an axis, from its end perhaps; or a list."""

    blob: str
    axis: int | None
    last: int | None


def lower_original(original: Net, rewritten: Net) -> Net:
    """The original, with rows read from tensors and other lists where the rewritten Net does so.

    Args:
      original: the Net as imported.
      rewritten: what a rewrite made of it.
    """
    hinted = {
        op.name: other
        for op in original.ops
        if op.type in LOOPS
        and (other := rewritten.op_by_name.get(op.name)) is not None
        and other.type in LOOPS
        and other is not op
        and any(made_by(original, blob, _CUT) for blob in set(op.inputs) - set(other.inputs))
    }
    if not hinted:
        return original
    known = with_known_shapes(original)
    ops = list(original.ops)
    blobs = dict(original.blobs)
    for place, op in enumerate(ops):
        if op.name in hinted:
            ops[place] = _lowered(known, op, hinted[op.name], blobs)
    return original.replace(ops=tuple(ops), blobs=blobs)


def _lowered(net: Net, loop: Op, other: Op, blobs: dict[str, Blob]) -> Op:
    """The loop with what the other one reads in place of lists, where that is the same."""
    for variable in variables(loop):
        cut = made_by(net, variable.start, _CUT)
        source = None if cut is None else _source(net, cut)
        if cut is None or source is None or source.blob not in other.inputs:
            continue
        if source.axis is None:
            if _holds_the_same(net, loop, variable, cut, source.blob):
                inputs = (*loop.inputs[: variable.position], source.blob)
                loop = loop.replace(inputs=(*inputs, *loop.inputs[variable.position + 1 :]))
        elif behind(loop.nets["body"], variable.following) == variable.argument:
            loop = _gathering(net, loop, variable, source, other.nets["body"], blobs)
    return loop


def _source(net: Net, cut: Op) -> _Source | None:
    """What the items of the tensor are that the op cuts; None where that is not shown."""
    blob, shape = cut.inputs[0], net.blobs[cut.inputs[0]].shape
    if not shape:
        return None
    axes, backwards = tuple(range(len(shape))), False
    while (op := net.producer.get(blob)) is not None:
        held = _axes(net, op.inputs[1]) if len(op.inputs) == 2 else None
        if op.type == "Transpose" and isinstance(held, tuple):
            axes = tuple(held[axis] for axis in axes)
        elif op.type == "ReverseV2" and held == axes[:1]:
            backwards = not backwards
        elif op.type == _STACK and axes == tuple(range(len(shape))) and not backwards:
            return _Source(behind(net, op.inputs[0]), None, None)
        elif op.type != "Identity":
            break
        blob = op.inputs[0]
    if axes[1:] != tuple(sorted(axes[1:])) or (backwards and shape[0] is None):
        return None
    return _Source(blob, axes[0], (shape[0] or 0) - 1 if backwards else None)


def _axes(net: Net, blob: str) -> object:
    """Axes that a constant gives, or the way back from such a turn."""
    op = made_by(net, blob, "InvertPermutation")
    turned = number(net, blob if op is None else op.inputs[0])
    if op is None or not isinstance(turned, tuple):
        return turned if op is None else None
    return tuple(turned.index(axis) for axis in range(len(turned)))


def _gathering(
    net: Net, loop: Op, variable: Variable, source: _Source, other: Net, blobs: dict[str, Blob]
) -> Op:
    """The loop with the tensor as one more variable, of which it takes the rows."""
    nets, argument = dict(loop.nets), f"{variable.argument}/direct"
    kind = net.blobs[source.blob]
    for label, inner in nets.items():
        held = {**inner.blobs, argument: dataclasses.replace(kind, name=argument)}
        nets[label] = inner.replace(inputs=(*inner.inputs, argument), blobs=held)
    body = nets["body"]
    body = body.replace(outputs=(*body.outputs, argument))
    made: dict[str, list[Op]] = {}
    for op in body.readers.get(variable.argument, ()):
        hint = _gathered(other, op.name)
        if op.type == _GET and hint is not None:
            made[op.name] = _row(op, argument, source, other, hint)
    ops = (one for op in body.ops for one in made.get(op.name) or (op,))
    more = {
        one.outputs[0]: Blob(one.outputs[0], "int32", ())
        for some in made.values()
        for one in some[:-1]
    }
    nets["body"] = body.replace(ops=tuple(ops), blobs={**body.blobs, **more})
    result = f"{variable.final}/direct"
    blobs[result] = dataclasses.replace(kind, name=result)
    return loop.replace(
        inputs=(*loop.inputs, source.blob), outputs=(*loop.outputs, result), nets=nets
    )


def _gathered(net: Net, name: str) -> Op | None:
    """The op that gathers what an op of that name gives, out of an optional."""
    op = net.op_by_name.get(name)
    held = None if op is None or not op.inputs else made_by(net, op.inputs[0], "OptionalFromValue")
    return None if held is None else made_by(net, held.inputs[0], _GATHER)


def _row(item: Op, tensor: str, source: _Source, other: Net, hint: Op) -> list[Op]:
    """The ops that take the row out of the tensor; none where the other Net takes another."""
    axis, place = made_by(other, hint.inputs[2], "Const"), item.inputs[1]
    made = []
    along_one = axis is not None and number(other, hint.inputs[2]) == source.axis
    if axis is None or not along_one or hint.attributes.get("batch_dims"):
        return []
    if source.last is not None:
        mirrored = made_by(other, hint.inputs[1], "Sub")
        last = None if mirrored is None else made_by(other, mirrored.inputs[0], "Const")
        if mirrored is None or last is None or number(other, mirrored.inputs[0]) != source.last:
            return []
        stem = f"{item.name}/place"
        made = [
            last.replace(name=f"{stem}/last", outputs=(f"{stem}/last",)),
            mirrored.replace(
                name=stem, inputs=(f"{stem}/last", place), outputs=(stem,), controls=()
            ),
        ]
        place = stem
    along = f"{item.name}/axis"
    made.append(axis.replace(name=along, outputs=(along,)))
    row = item.replace(
        type=_GATHER, inputs=(tensor, place, along), attributes=hint.attributes, device=hint.device
    )
    return [*made, row]


def _holds_the_same(net: Net, loop: Op, variable: Variable, cut: Op, source: str) -> bool:
    """Whether the loop, and who reads what it gives, find in the source what the list holds."""
    body, cond = loop.nets["body"], loop.nets["cond"]
    whole = _is_whole(net, source, number(net, cut.inputs[1]))
    asked = net.readers.get(variable.final, ())
    if cond.fan_out(cond.inputs[variable.position]) or variable.final in net.outputs:
        return False
    if asked and not (whole and all(op.type in _ASKS for op in asked)):
        return False
    lists = [behind(body, variable.following)]
    while (put := made_by(body, lists[-1], _SET)) is not None:
        lists.append(behind(body, put.inputs[0]))
    handed = [at for at, blob in enumerate(body.outputs) if behind(body, blob) in lists]
    if lists[-1] != variable.argument or handed != [variable.position]:
        return False
    return all(
        (op.type in _ASKS and whole)
        or (op.type == _GET and (whole or _is_known(number(body, op.inputs[2]))))
        or (op.type == _SET and op.outputs[0] in lists and behind(body, op.inputs[2]) not in lists)
        for blob in lists
        for op in _readers(body, blob)
    )


def _readers(body: Net, blob: str) -> Iterator[Op]:
    """The ops that read a blob, behind those that hand it on."""
    for op in body.readers.get(blob, ()):
        if op.type == "Identity":
            yield from _readers(body, op.outputs[0])
        else:
            yield op


def _is_known(shape: object) -> bool:
    """Whether a shape that is asked for is known entirely."""
    return isinstance(shape, tuple) and min(shape, default=0) >= 0


def _is_whole(net: Net, source: str, shape: object) -> bool:
    """Whether a loop has set every element of a list that knows their whole shape."""
    loop = net.producer.get(source)
    if loop is None or loop.type not in LOOPS:
        return False
    body, around = loop.nets["body"], variables(loop)
    held = around[loop.outputs.index(source)]
    start, put = maker(net, held.start), maker(body, held.following)
    if start is None or start.type != _RESERVE or put is None or put.type != _SET:
        return False
    counters = [one for one in around if one.argument == behind(body, put.inputs[1])]
    return (
        behind(body, put.inputs[0]) == held.argument
        and number(net, start.inputs[0]) == shape
        and TRIPS in loop.attributes
        and number(net, start.inputs[1]) == loop.attributes[TRIPS]
        and len(counters) == 1
        and number(net, behind(net, counters[0].start)) == 0
        and steps_by_one(body, counters[0], "AddV2")
    )
