"""Lists and optionals: what all elements are, and how many there are."""

from __future__ import annotations

import dataclasses

from rnnmem.analysis.facts import (
    SHAPES,
    UNKNOWN,
    Fact,
    changed,
    common,
    merged,
    to_shape,
    vector,
)
from rnnmem.ir.graph import Op, Shape, static


@SHAPES.of("EmptyTensorList")
def _empty_list(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact((), None, Fact(_asked(ins[0]), unset=True), 0, asked=ins[0].shape)]


@SHAPES.of("TensorListReserve")
def _reserve(op: Op, ins: list[Fact]) -> list[Fact]:
    length = ins[1].value if isinstance(ins[1].value, int) else None
    return [Fact((), None, Fact(_asked(ins[0]), unset=True), length, asked=ins[0].shape)]


def _asked(fact: Fact) -> Shape:
    """The shape of elements that an op is given as a vector, or as another list's."""
    return to_shape(fact.value) if fact.element is None else fact.element.shape


@SHAPES.of("TensorListFromTensor")
def _from_tensor(op: Op, ins: list[Fact]) -> list[Fact]:
    shape = ins[0].shape
    if not shape:
        return [Fact(())]
    return [Fact((), None, Fact(shape[1:]), shape[0], asked=ins[1].shape)]


def _with_item(held: Fact, item: Fact) -> Fact | None:
    """What is known of a list's elements, now that it has this one too."""
    known = held.element
    if known is None:
        return None
    return merged(Fact(known.shape), item) if known.unset else common((known, item))


def _item(held: Fact) -> Fact:
    """What is known of an element that is taken out."""
    if held.element is None or not held.element.unset:
        return held.element or UNKNOWN
    return dataclasses.replace(held.element, unset=False)


@SHAPES.of("TensorListPushBack")
def _push(op: Op, ins: list[Fact]) -> list[Fact]:
    before, element = changed(ins[0]), _with_item(ins[0], ins[1])
    length = None if before.length is None else before.length + 1
    pushed = before, ins[1]
    return [Fact(before.shape, before.value, element, length, before.unset, pushed, before.asked)]


@SHAPES.of("TensorListPopBack")
def _pop(op: Op, ins: list[Fact]) -> list[Fact]:
    if ins[0].pushed is not None:
        return list(ins[0].pushed)
    length = None if ins[0].length is None else ins[0].length - 1
    element = _item(ins[0])
    shape = merged(element, Fact(_asked(ins[1]))).shape
    if shape != element.shape:
        element = dataclasses.replace(element, shape=shape)
    return [changed(ins[0], length=length), element]


RESIZES = "resize_if_index_out_of_bounds"
"""The attribute of a set that lengthens a list where it must: a TensorArray of dynamic size."""


@SHAPES.of("TensorListSetItem")
def _set_item(op: Op, ins: list[Fact]) -> list[Fact]:
    length = ins[0].length
    if op.attributes.get(RESIZES) and length is not None:
        index = ins[1].value
        length = max(length, index + 1) if isinstance(index, int) and index >= 0 else None
    return [changed(ins[0], element=_with_item(ins[0], ins[2]), length=length)]


@SHAPES.of("TensorListGetItem")
def _get_item(op: Op, ins: list[Fact]) -> list[Fact]:
    return [_item(ins[0])]


@SHAPES.of("TensorListStack")
def _stack(op: Op, ins: list[Fact]) -> list[Fact]:
    element = _shape_of_items(ins[0], ins[1])
    return [] if element is None else [Fact((ins[0].length, *element))]


@SHAPES.of("TensorListConcatV2")
def _concat(op: Op, ins: list[Fact]) -> list[Fact]:
    element, length = _shape_of_items(ins[0], ins[1]), ins[0].length
    if not element:
        return []
    # Where lengths are given they count for elements that nobody set.
    rows = element[0] if ins[2].shape == (0,) else None
    joined = None if length is None or rows is None else length * rows
    return [Fact((joined, *element[1:])), Fact((length,))]


@SHAPES.of("TensorListSplit")
def _split(op: Op, ins: list[Fact]) -> list[Fact]:
    whole, asked = ins[0].shape, _asked(ins[1])
    if not whole:
        return [Fact(())]
    rows = asked[0] if asked else None
    length = ins[2].shape[0] if ins[2].shape else None
    return [Fact((), None, Fact((rows, *whole[1:])), length, asked=ins[1].shape)]


def _shape_of_items(held: Fact, asked: Fact) -> Shape:
    """The shape of a list's elements, or else the one that they are asked for in."""
    shape = held.element.shape if held.element else None
    return _asked(asked) if shape is None else shape


def scattered(op: Op) -> str:
    """The tensor whose rows a scatter makes elements of."""
    return op.inputs[0 if op.type == "TensorListScatterV2" else 1]


@SHAPES.of("TensorListScatterIntoExistingList")
def _scatter_into(op: Op, ins: list[Fact]) -> list[Fact]:
    places, length = vector(ins[2]), ins[0].length
    if length is not None:  # a place behind its end lengthens a list
        known = static(places)
        length = None if known is None else max((length, *(one + 1 for one in known)))
    return [changed(ins[0], element=_with_item(ins[0], _row(ins[1])), length=length)]


@SHAPES.of("TensorListScatterV2")
def _scatter(op: Op, ins: list[Fact]) -> list[Fact]:
    length = ins[3].value if isinstance(ins[3].value, int) and ins[3].value >= 0 else None
    return [Fact((), None, _row(ins[0]), length, asked=ins[2].shape)]


def _row(tensor: Fact) -> Fact:
    return Fact(tensor.shape[1:] if tensor.shape else None)


@SHAPES.of("TensorListGather")
def _gather_items(op: Op, ins: list[Fact]) -> list[Fact]:
    element = _shape_of_items(ins[0], ins[2])
    return [] if element is None or not ins[1].shape else [Fact((ins[1].shape[0], *element))]


@SHAPES.of("TensorListLength")
def _list_length(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact((), ins[0].length)]


@SHAPES.of("TensorListElementShape")
def _element_shape(op: Op, ins: list[Fact]) -> list[Fact]:
    # A run has the shape that the list was made with here, which may say less of its elements.
    told = None if ins[0].element is None else Fact(ins[0].element.shape)
    return [Fact(ins[0].asked, None, told)]


@SHAPES.of("OptionalFromValue")
def _wrap(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact((), None, ins[0] if len(ins) == 1 else None)]


@SHAPES.of("OptionalGetValue")
def _unwrap(op: Op, ins: list[Fact]) -> list[Fact]:
    return [_item(ins[0])] if len(op.outputs) == 1 else []


@SHAPES.of("OptionalNone")
def _nothing(op: Op, ins: list[Fact]) -> list[Fact]:
    return [Fact((), None, Fact(unset=True))]


@SHAPES.of("TensorListResize")
def _resize(op: Op, ins: list[Fact]) -> list[Fact]:
    return [changed(ins[0], length=ins[1].value if isinstance(ins[1].value, int) else None)]
