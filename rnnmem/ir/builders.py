"""Whole numbers and lists that a rewrite adds to a Net."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rnnmem.ir.editor import LoopEditor, NetEditor
from rnnmem.ir.graph import Constant, DType, Op, Shape
from rnnmem.ir.op_table import EMPTY, POP, PUSH

Encode = Callable[[object, str], Constant]
"""Encodes a number as the exporter wants it: (value, dtype) -> Constant."""
INT = "int32"
"""Of all whole numbers that a rewrite adds."""


def made(
    net: NetEditor,
    op_type: str,
    inputs: Iterable[str],
    dtype: str,
    shape: Shape = (),
    /,
    name: str = "rnnmem/count",
    **attributes: object,
) -> str:
    """What a new op of one result makes; an attribute that is a text is the name of a dtype."""
    kinds = {key: DType(one) if isinstance(one, str) else one for key, one in attributes.items()}
    return net.add(op_type, inputs, ((dtype, shape),), kinds, name=name).outputs[0]


def number(
    net: NetEditor,
    value: object,
    constant: Encode,
    name: str = "rnnmem/number",
    dtype: str = INT,
    controls: Iterable[str] = (),
) -> str:
    """A constant, or a short vector of them."""
    encoded = constant(value, dtype)
    kinds = {"dtype": DType(dtype), "value": encoded}
    shape = ((dtype, encoded.shape),)
    return net.add("Const", (), shape, kinds, name=name, controls=controls).outputs[0]


def handed_on(net: NetEditor, blob: str, name: str, controls: Iterable[str] = ()) -> Op:
    """An op that hands a blob on as it is, once it has waited for others."""
    known = net.blobs[net.resolve(blob)]
    kinds = {"T": DType(known.dtype)}
    shape = ((known.dtype, known.shape),)
    return net.add("Identity", (blob,), shape, kinds, name=name, controls=controls)


def integer(net: NetEditor, type: str, first: str, second: str, *, name="rnnmem/count") -> str:
    """What an op ("AddV2", "Sub", "Minimum", ...) makes of two whole numbers."""
    return made(net, type, (first, second), INT, (), name, T=INT)


def element(net: NetEditor, numbers: str, place: str, constant: Encode) -> str:
    """The number that stands at a place of a vector of whole numbers."""
    read = (numbers, place, number(net, 0, constant))
    kinds = {"Tparams": INT, "Tindices": INT, "Taxis": INT}
    return made(net, "GatherV2", read, INT, (), "rnnmem/at", **kinds, batch_dims=0)


def element_shape(net: NetEditor, shape: Shape, constant: Encode) -> str:
    """A constant that holds an element shape, -1 where it is unknown."""
    value = -1 if shape is None else [-1 if size is None else size for size in shape]
    return number(net, value, constant, "rnnmem/element_shape")


def empty_list(
    net: NetEditor,
    dtype: str,
    shape: Shape,
    constant: Encode,
    *,
    name: str,
    most: str | None = None,
    behind: str = "",
    device: str = "",
) -> str:
    """An empty list for elements of a dtype and shape.

    Args:
      net: where it is made.
      dtype: of the elements.
      shape: of the elements.
      constant: encodes numbers.
      name: of the op.
      most: the blob that says how many elements there may be; any number where there is none.
      behind: a list of elements of the same shape, which must be made first; empty: none.
      device: where the op runs.
    """
    size = most or number(net, -1, constant)
    if behind:
        known = made(net, "TensorListElementShape", (behind,), INT, None, shape_type=INT)
    else:
        known = element_shape(net, shape, constant)
    op = net.add(
        EMPTY,
        (known, size),
        (("variant", ()),),
        {"element_dtype": DType(dtype), "shape_type": DType("int32")},
        name=name,
        device=device,
    )
    return op.outputs[0]


def push(net: NetEditor, held: str, blob: str, *, name: str, **fields: Any) -> str:
    """The list with one more element; ``fields`` are further ones of the op."""
    attributes = {"element_dtype": DType(net.blobs[blob].dtype)}
    results = (("variant", ()),)
    return net.add(PUSH, (held, blob), results, attributes, name=name, **fields).outputs[0]


def pop(
    net: NetEditor,
    held: str,
    dtype: str,
    shape: Shape,
    wanted_shape: str,
    *,
    name: str,
    **fields: Any,
) -> tuple[str, str]:
    """The list without its last element, and the element.

    Args:
      net: where it is popped.
      held: the list.
      dtype: of the element.
      shape: of the element.
      wanted_shape: the blob that holds the same shape, or -1.
      name: of the op.
      fields: further ones of the op.
    """
    op = net.add(
        POP,
        (held, wanted_shape),
        (("variant", ()), (dtype, shape)),
        {"element_dtype": DType(dtype)},
        name=name,
        **fields,
    )
    return op.outputs[0], op.outputs[1]


def awaited_by(net: NetEditor, popping: Op) -> list[str]:
    """Names of the ops that a pop of the original Net, its shape or its list waits for."""
    ops = (*_popping_ops(net, popping), *_handing_on(net, popping))
    return [name for op in ops for name in op.controls]


def remove_pop(net: NetEditor, popping: Op) -> None:
    """Takes a pop out, with the constant that only it read, and what handed its list on."""
    for op in _handing_on(net, popping):
        if op.controls:  # what nobody reads and waits for nothing is pruned later
            net.remove(op.name)
    for op in _popping_ops(net, popping):
        if op.type == POP or net.original.fan_out(op.outputs[0]) == 1:
            net.remove(op.name)


def pop_freely(net: NetEditor, popping: Op) -> None:
    """Takes control edges off a pop: it may wait for what will be computed from it now."""
    for op in _popping_ops(net, popping):
        net.ops[op.name] = op.replace(controls=())


def pop_ahead(loop: LoopEditor, argument: str, popping: Op) -> None:
    """Takes control edges off a pop, and has the next iteration's pop wait instead.

    TensorFlow's graph optimizer leaves a sum alone that somebody waits for: somebody still does.
    """
    body = loop.body
    awaited = [name for op in _popping_ops(body, popping) for name in body.ops[op.name].controls]
    if not awaited:
        return
    pop_freely(body, popping)
    handed_on = body.add(
        "Identity",
        (body.outputs[body.inputs.index(argument)],),
        (("variant", ()),),
        {"T": DType("variant")},
        name="rnnmem/rest",
        controls=dict.fromkeys(awaited),
    )
    loop.set_next(argument, handed_on.outputs[0])


def _handing_on(net: NetEditor, popping: Op) -> list[Op]:
    """The Identities through which a pop hands the rest of its list to the next iteration."""
    found, pending = [], [popping.outputs[0]]
    for blob in pending:
        for op in net.original.readers.get(blob, ()):
            if op.type == "Identity":
                found.append(op)
                pending.append(op.outputs[0])
    return found


def _popping_ops(net: NetEditor, popping: Op) -> list[Op]:
    found = (popping, net.original.producer.get(popping.inputs[1]))
    return [op for op in found if op is not None and op.type in (POP, "Const")]
