"""Shapes that only a run can tell, each written as that of the first blobs that have it."""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.analysis.shape_sources import ShapeSources
from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import DType, Net, Op

_ASKS = ("Shape", "BroadcastArgs")


def with_first_sources(net: Net, last: Iterable[str]) -> Net:
    """The Net with each shape asked of the first blobs that have it, whoever was asked.

    Args:
      net: the Net.
      last: blobs that tell theirs themselves.
    """
    known, editor = known_net(net), NetEditor(net)
    sources = ShapeSources(known, last)
    for op in net.ops:
        found = _asked_of(op.outputs[0], known, sources) if op.type in _ASKS else None
        if found is not None:
            _ask(editor, op, sorted(found))
    return editor.net()


def _asked_of(
    blob: str, known: KnownNet, sources: ShapeSources, *, within: bool = False
) -> set[str] | None:
    """The blobs whose shapes, broadcast to each other, a blob holds; None where it holds others.

    A shape that is known is as well one of those that are broadcast to each other.
    """
    op = known.net.producer.get(blob)
    if op is None or op.type not in _ASKS:
        return None
    if op.type == "Shape":
        shape = known.facts[op.inputs[0]].shape
        wanted = shape is not None and (within or None in shape)
        return set(sources.of(op.inputs[0])) if wanted else None
    found = [_asked_of(one, known, sources, within=True) for one in op.inputs]
    return None if None in found else set().union(*found)  # type: ignore[arg-type]


def _ask(editor: NetEditor, op: Op, sources: list[str]) -> None:
    kind = editor.blobs[op.outputs[0]].dtype
    if len(sources) == 1:
        attributes = _attributes(editor, sources[0], kind)
        editor.ops[op.name] = op.replace(type="Shape", inputs=tuple(sources), attributes=attributes)
        return
    asked = [
        editor.add(
            "Shape", (one,), ((kind, (None,)),), _attributes(editor, one, kind), name="asked"
        ).outputs[0]
        for one in sources
    ]
    editor.ops[op.name] = op.replace(
        type="BroadcastArgs", inputs=tuple(asked), attributes={"T": DType(kind)}
    )


def _attributes(editor: NetEditor, blob: str, kind: str) -> dict[str, DType]:
    return {"T": DType(editor.blobs[blob].dtype), "out_type": DType(kind)}
