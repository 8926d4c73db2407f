"""Lets loops read rows from what a list was made of, in place of the list.

A variable that held the list holds the tensor from then on, in each step net that it goes through;
what took an element takes the same row of the tensor, under its own name, which sorts sums.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from rnnmem.analysis.branches import given_inside
from rnnmem.errors import NetError
from rnnmem.ir.builders import INT, Encode, integer, number
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import Blob, DType, Net, Op, Shape, ShapeValue
from rnnmem.ir.marks import STANDS_FOR
from rnnmem.ir.op_table import BRANCHES, GET, LOOPS, UNWRAP, WRAP
from rnnmem.ir.order import constant_value
from rnnmem.passes.decision import Context, await_no_more
from rnnmem.passes.unstacked_lists.decision import UnstackedList


@dataclasses.dataclass(frozen=True)
class _Rows:
    """A tensor, and which of its rows are the elements of a list."""

    kind: Blob
    axis: int
    backwards: int
    constant: Encode


def apply(net: Net, lists: Iterable[UnstackedList], context: Context) -> Net:
    """Applies the decisions of a plan; XLA gives every list room for all of its elements.

    Raises:
      NetError: a decision names a blob that the Net does not have.
    """
    for one in lists if context.keeps_alive else ():
        missing = {one.list, one.source} - net.blobs.keys()
        if missing or one.list not in net.producer:
            raise NetError(f"the plan is for another function: no {one.list!r} or {one.source!r}")
        editor = NetEditor(net)
        if one.axis is not None:
            if not _only_rows(net, one.list):
                continue
            rows = _Rows(net.blobs[one.source], one.axis, one.backwards, context.constant)
            _hold_rows(editor, one.list, rows)
            editor.blobs[one.list] = net.blobs[one.list]
        editor.rename(one.list, one.source)
        _let_go(editor, one)
        net = editor.net()
    return net


def _let_go(editor: NetEditor, one: UnstackedList) -> None:
    """Nobody waits any more for the ops that made the list and nothing else."""
    net, blob = editor.original, one.list
    gone: set[str] = set()
    while blob != one.source and (op := net.producer.get(blob)) is not None:
        readers = {reader.name for reader in net.readers.get(blob, ())}
        if blob in net.outputs or blob != one.list and not readers <= gone:
            return
        gone.add(op.name)
        await_no_more(editor, op)
        blob = op.inputs[0]


def _only_rows(net: Net, held: str, in_loop: bool = False) -> bool:
    """Whether whoever reads the list takes elements by their number, in step nets too."""
    if held in net.outputs and not in_loop:
        return False
    for op in net.readers.get(held, ()):
        if op.type in LOOPS | BRANCHES:
            inside = (_only_rows(*one, op.type in LOOPS) for one in _arguments(op, held))
            handed = (_only_rows(net, blob, in_loop) for blob in _handed_out(op, held))
            if not (all(inside) and all(handed)):
                return False
        elif op.type == "Identity":
            if not _only_rows(net, op.outputs[0], in_loop):
                return False
        elif op.type != GET:
            return False
    return True


def _arguments(op: Op, held: str) -> Iterator[tuple[Net, str]]:
    """The step nets of an op with what holds there what the op is given."""
    given = given_inside(op)
    for inner in op.nets.values():
        yield from (
            (inner, it) for it, blob in zip(inner.inputs, given, strict=True) if blob == held
        )


def _handed_out(op: Op, held: str) -> list[str]:
    """What a loop gives of a variable that stays what it was given."""
    pairs = zip(op.outputs, op.inputs, strict=True) if op.type in LOOPS else ()
    return [result for result, blob in pairs if blob == held]


def _hold_rows(editor: NetEditor, held: str, rows: _Rows) -> None:
    """From a blob on, the Net holds the tensor in place of the list."""
    pending = [held]
    for blob in pending:
        editor.blobs[blob] = dataclasses.replace(rows.kind, name=blob)
        for name in dict.fromkeys(op.name for op in editor.original.readers.get(blob, ())):
            op = editor.ops[name]
            if op.type == GET:
                editor.ops[name] = _row(editor, op, rows)
            elif op.type == "Identity":
                editor.ops[name] = op.replace(attributes={"T": DType(rows.kind.dtype)})
                pending += op.outputs
            else:
                editor.ops[name] = _holding(op, blob, rows)
                pending += _handed_out(op, blob)


def _holding(op: Op, held: str, rows: _Rows) -> Op:
    """The loop, or the branch, given the tensor where it was given the list."""
    nets = dict(op.nets)
    for key, inner in op.nets.items():
        editor = NetEditor(inner)
        for one, argument in _arguments(op, held):
            if one is inner:
                _hold_rows(editor, argument, rows)
        places = [at for at, blob in enumerate(op.inputs[-len(inner.inputs) :]) if blob == held]
        editor.attributes = _without(editor.attributes, places)
        nets[key] = editor.net()
    attributes = dict(op.attributes)
    for name, value in (
        ("T", DType(rows.kind.dtype)),
        ("output_shapes", ShapeValue(rows.kind.shape)),
    ):
        if op.type in LOOPS and name in attributes:
            attributes[name] = tuple(
                value if blob == held else one
                for blob, one in zip(op.inputs, attributes[name], strict=False)
            )
    if op.type in BRANCHES:
        kinds = zip(op.inputs[1:], attributes["Tin"], strict=True)
        dtype = DType(rows.kind.dtype)
        attributes["Tin"] = tuple(dtype if blob == held else one for blob, one in kinds)
    return op.replace(nets=nets, attributes=attributes)


def _without(attributes, places: list[int]):
    """A step net's attributes, less what they tell of these arguments."""
    function = {**attributes.get("attributes", {})}
    function.pop("_input_shapes", None)
    told = attributes.get("argument_attributes") or ()
    kept = {
        "argument_attributes": tuple({} if at in places else one for at, one in enumerate(told))
    }
    return {**attributes, **(kept if told else {}), "attributes": function}


def _row(editor: NetEditor, item: Op, rows: _Rows) -> Op:
    """Takes out of the tensor what the op took out of the list, and shows as much of its shape.

    A list's element has sizes of its own: behind the barrier none is known to be the tensor's.
    """
    held, place, wanted = item.inputs
    if rows.backwards:
        last = number(editor, rows.backwards - 1, rows.constant)
        place = integer(editor, "Sub", last, place, name="rnnmem/row")
    kinds = {"Tparams": DType(rows.kind.dtype), "Tindices": DType(INT), "Taxis": DType(INT)}
    row = editor.add(
        "GatherV2",
        (held, place, number(editor, rows.axis, rows.constant)),
        ((rows.kind.dtype, _row_shape(rows)),),
        {**kinds, "batch_dims": 0},
        name="rnnmem/row",
        device=item.device,
        source=item.source,
    )
    asked = constant_value(editor.original, wanted)
    seen = tuple(None if one < 0 else one for one in asked) if isinstance(asked, tuple) else None
    dtypes, stands_for = (DType(rows.kind.dtype),), {STANDS_FOR: item.name.encode()}
    wrapped = editor.add(
        WRAP,
        row.outputs,
        (("variant", ()),),
        {"Toutput_types": dtypes, **stands_for},
        name="rnnmem/wrapped",
        device=item.device,
    )
    kept = {name: one for name, one in item.attributes.items() if name.startswith("_")}
    shown = {"output_types": dtypes, "output_shapes": (ShapeValue(seen),)}
    return item.replace(
        type=UNWRAP, inputs=wrapped.outputs, attributes={**kept, **shown, **stands_for}
    )


def _row_shape(rows: _Rows) -> Shape:
    sizes = rows.kind.shape
    return None if sizes is None else (*sizes[: rows.axis], *sizes[rows.axis + 1 :])
