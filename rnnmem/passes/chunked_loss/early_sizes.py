"""Shapes of losses that are asked of what they are made of, so that nobody waits for the losses."""

from __future__ import annotations

from rnnmem.analysis.shape_sources import ShapeSources
from rnnmem.analysis.shapes import known_net
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import DType, Net, Op
from rnnmem.ir.marks import SIZES
from rnnmem.ir.order import all_waiting_for
from rnnmem.passes.chunked_loss.exact import makers_of_logits


def asked_earlier(net: Net, projection: str) -> Net:
    """The Net with shapes that only a run can tell asked of the first blobs that have them.

    Args:
      net: the Net.
      projection: name of the product that makes logits, which tell theirs themselves.
    """
    known, editor = known_net(net), NetEditor(net)
    makers = makers_of_logits(net, net.op_by_name[projection])
    logits = [op.outputs[0] for op in makers]
    sources = ShapeSources(known, logits)
    behind = all_waiting_for(net, [op.name for op in makers])  # others wait for no loss
    for op in net.ops:
        asks = op.type == "Shape" and op.name in behind and not op.name.startswith(SIZES)
        shape = known.facts[op.inputs[0]].shape if asks else None
        if shape is None or None not in shape:
            continue
        found = sorted(sources.of(op.inputs[0]))
        if found != [op.inputs[0]] and not set(logits).intersection(found):
            _ask(editor, op, found)
    return editor.net()


def _ask(editor: NetEditor, op: Op, sources: list[str]) -> None:
    """Asks the sources for the shape instead of the blob."""
    first = sources[0]
    if len(sources) == 1:
        held = DType(editor.blobs[first].dtype)
        editor.ops[op.name] = op.replace(inputs=(first,), attributes={**op.attributes, "T": held})
        return
    kind = editor.blobs[op.outputs[0]].dtype
    (*joined, last) = (_shape(editor, op, blob, kind) for blob in sources)
    found = joined[0]
    for one in joined[1:]:
        found = _broadcast(editor, op, found, one, kind)
    editor.ops[op.name] = op.replace(
        type="BroadcastArgs", inputs=(found, last), attributes={"T": DType(kind)}
    )


def _shape(editor: NetEditor, op: Op, blob: str, kind: str) -> str:
    shape = editor.blobs[blob].shape
    length = None if shape is None else len(shape)
    attributes = {"T": DType(editor.blobs[blob].dtype), "out_type": DType(kind)}
    return editor.add(
        "Shape",
        (blob,),
        ((kind, (length,)),),
        attributes,
        name="rnnmem/early",
        device=op.device,
        controls=op.controls,
    ).outputs[0]


def _broadcast(editor: NetEditor, op: Op, one: str, other: str, kind: str) -> str:
    return editor.add(
        "BroadcastArgs",
        (one, other),
        ((kind, (None,)),),
        {"T": DType(kind)},
        name="rnnmem/early",
        device=op.device,
    ).outputs[0]
