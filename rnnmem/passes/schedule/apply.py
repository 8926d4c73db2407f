"""Applies turns: control edges, and delayed inputs on what an op reads."""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.errors import NetError
from rnnmem.grappler.barrier import SHOWN
from rnnmem.ir.edges import Edge
from rnnmem.ir.editor import NetEditor, edit_step_nets
from rnnmem.ir.graph import DType, Net, Op, ShapeValue

DELAYED_INPUT = "EnsureShape"
"""The op that waits: it hands on what it reads, and no graph optimizer looks through it."""


def with_edges(net: Net, scheduling_edges: Iterable[Edge]) -> Net:
    """The Net with the control edges of a plan, in its step nets too.

    Raises:
      NetError: an edge names an op or an input that the Net does not have.
    """
    editor = NetEditor(net)
    here = edit_step_nets(editor, scheduling_edges, with_edges)
    delayed_inputs: dict[tuple[str, int], str] = {}
    completion_proxies: dict[str, str] = {}
    for edge in here:
        _check(net, edge)
        waiting = edge.op
        if edge.slot is not None:
            place = (edge.op, edge.slot)
            if place not in delayed_inputs:
                delayed_inputs[place] = delay_input(editor, *place, f"{edge.op}/turn")
            waiting = delayed_inputs[place]
        after = edge.after
        if edge.by_proxy:
            if after not in completion_proxies:
                completion_proxies[after] = completion_proxy(editor, editor.ops[after])
            after = completion_proxies[after]
        op = editor.ops[waiting]
        if after not in op.controls:
            editor.ops[waiting] = op.replace(controls=(*op.controls, after))
    return editor.net()


def completion_proxy(editor: NetEditor, op: Op) -> str:
    """Adds an op that reads what another one writes, and is done once it is.

    What runs step nets is rewritten by no graph optimizer, so it is waited for itself.
    """
    if op.nets:
        return op.name
    kind = editor.blobs[op.outputs[0]]
    return editor.add(
        SHOWN,
        (kind.name,),
        ((kind.dtype, kind.shape),),
        {"dtype": DType(kind.dtype), "shape": ShapeValue(None)},
        name="rnnmem/there",
        device=op.device,
    ).name


def delay_input(editor: NetEditor, op_name: str, slot: int, name: str, after: str = "") -> str:
    """Puts a delayed input of that name before an op, which waits for another one where told.

    It shows no size, so that TensorFlow takes those of what it hands on.
    """
    op = editor.ops[op_name]
    blob = editor.blobs[op.inputs[slot]]
    shape = None if blob.shape is None else (None,) * len(blob.shape)
    delayed_input = editor.add(
        DELAYED_INPUT,
        (blob.name,),
        [(blob.dtype, blob.shape)],
        {"T": DType(blob.dtype), "shape": ShapeValue(shape)},
        name=name,
        device=op.device,
        source=op.source,
        controls=(after,) if after else (),
    )
    inputs = (*op.inputs[:slot], delayed_input.outputs[0], *op.inputs[slot + 1 :])
    editor.ops[op_name] = op.replace(inputs=inputs)
    return delayed_input.name


def _check(net: Net, edge: Edge) -> None:
    for name in (edge.op, edge.after):
        if name not in net.op_by_name:
            raise NetError(f"the plan is for another function: no op {name!r}")
    inputs = net.op_by_name[edge.op].inputs
    if edge.slot is not None and edge.slot >= len(inputs):
        raise NetError(f"the plan is for another function: {edge.op!r} has {len(inputs)} inputs")
