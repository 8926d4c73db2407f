"""Edges in place of leads: what ran ahead of a sum, or behind it, does so in a rewritten loop too."""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.errors import NetError
from rnnmem.net.ahead import Lead, ancestors, leads, way
from rnnmem.net.nouns import Net
from rnnmem.rewrite.editor import NetEditor
from rnnmem.rewrite.gates import witness
from rnnmem.rewrite.materialise import AGAIN


def with_leads(original: Net, rewritten: Net) -> Net:
    """The rewritten Net, in whose step nets edges stand for the leads that the original's had.

    Args:
      original: the Net before the rewrite.
      rewritten: the Net after it.

    Raises:
      NetError: no edge can do so without the loss of a fusion.
    """
    known = {
        lead: None
        for path, body in original.walk()
        if path[-1:] == ("body",)
        for lead in leads(body)
    }
    return _edited(original, rewritten, known) if known else rewritten


def _edited(original: Net, rewritten: Net, known: Iterable[Lead]) -> Net:
    ops = []
    for op in rewritten.ops:
        old = original.op_by_name.get(op.name)
        if op.nets and old is not op:
            op = op.replace(nets={label: _ordered(net, known) for label, net in op.nets.items()})
        ops.append(op)
    return rewritten.replace(ops=tuple(ops))


def _ordered(net: Net, known: Iterable[Lead]) -> Net:
    """The step net with its edges, and with those of the step nets inside it."""
    if any(op.nets for op in net.ops):
        ops = [
            op.replace(nets={label: _ordered(inner, known) for label, inner in op.nets.items()})
            if op.nets
            else op
            for op in net.ops
        ]
        net = net.replace(ops=tuple(ops))
    for first, second in known:
        for before in ("", f"{AGAIN}/"):
            lead = before + first, before + second
            if all(name in net.op_by_name for name in lead):
                net = _with_edge(net, lead)
    return net


def _with_edge(net: Net, lead: Lead) -> Net:
    first, second = lead
    if first in ancestors(net, [second]):
        return net
    edge = way(net, lead)
    if edge is None or second in ancestors(net, [first]):
        raise NetError(f"a sum is a race that nothing may order: {first!r} and {second!r}")
    editor = NetEditor(net)
    after = edge.after
    if edge.witnessed:
        after = witness(editor, editor.ops[after])
    waiting = editor.ops[edge.op]
    editor.ops[edge.op] = waiting.replace(controls=(*waiting.controls, after))
    return editor.net()
