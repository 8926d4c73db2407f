"""Applies turns: control edges, and gates on what an op reads."""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.errors import NetError
from rnnmem.grappler.barrier import SHOWN
from rnnmem.ir.edges import Edge
from rnnmem.ir.editor import NetEditor, edit_step_nets
from rnnmem.ir.graph import DType, Net, Op, ShapeValue

GATE = "EnsureShape"
"""The op that waits: it hands on what it reads, and no graph optimizer looks through it."""


def with_turns(net: Net, turns: Iterable[Edge]) -> Net:
    """The Net with the control edges of a plan, in its step nets too.

    Raises:
      NetError: an edge names an op or an input that the Net does not have.
    """
    editor = NetEditor(net)
    here = edit_step_nets(editor, turns, with_turns)
    gates: dict[tuple[str, int], str] = {}
    witnesses: dict[str, str] = {}
    for turn in here:
        _check(net, turn)
        waiting = turn.op
        if turn.slot is not None:
            place = (turn.op, turn.slot)
            if place not in gates:
                gates[place] = _gate(editor, *place)
            waiting = gates[place]
        after = turn.after
        if turn.witnessed:
            if after not in witnesses:
                witnesses[after] = witness(editor, editor.ops[after])
            after = witnesses[after]
        op = editor.ops[waiting]
        if after not in op.controls:
            editor.ops[waiting] = op.replace(controls=(*op.controls, after))
    return editor.net()


def witness(editor: NetEditor, op: Op) -> str:
    """Adds an op that reads what another one writes, and is done once it is."""
    kind = editor.blobs[op.outputs[0]]
    return editor.add(
        SHOWN,
        (kind.name,),
        ((kind.dtype, kind.shape),),
        {"dtype": DType(kind.dtype), "shape": ShapeValue(None)},
        name="rnnmem/there",
        device=op.device,
    ).name


def _gate(editor: NetEditor, name: str, slot: int) -> str:
    op = editor.ops[name]
    blob = editor.blobs[op.inputs[slot]]
    gate = editor.add(
        GATE,
        (blob.name,),
        [(blob.dtype, blob.shape)],
        {"T": DType(blob.dtype), "shape": ShapeValue(blob.shape)},
        name=f"{name}/turn",
        device=op.device,
        source=op.source,
    )
    inputs = (*op.inputs[:slot], gate.outputs[0], *op.inputs[slot + 1 :])
    editor.ops[name] = op.replace(inputs=inputs)
    return gate.name


def _check(net: Net, turn: Edge) -> None:
    for name in (turn.op, turn.after):
        if name not in net.op_by_name:
            raise NetError(f"the plan is for another function: no op {name!r}")
    inputs = net.op_by_name[turn.op].inputs
    if turn.slot is not None and turn.slot >= len(inputs):
        raise NetError(f"the plan is for another function: {turn.op!r} has {len(inputs)} inputs")
