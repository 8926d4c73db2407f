"""Edges in place of leads: what ran ahead of a sum, or behind it, does so when rewritten too."""

from __future__ import annotations

from collections.abc import Mapping

from rnnmem.errors import RaceError
from rnnmem.grappler.keepalive import is_lifetime_extension
from rnnmem.grappler.leads import Lead, head_starts, leads, way
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import LOOPS
from rnnmem.ir.order import all_needed_by
from rnnmem.passes.rematerialise.clone import AGAIN
from rnnmem.passes.schedule.apply import completion_proxy


def with_leads(original: Net, rewritten: Net) -> Net:
    """The rewritten Net, in whose step nets edges stand for the leads that the original's had.

    Args:
      original: the Net before the rewrite.
      rewritten: the Net after it.

    Raises:
      RaceError: no edge can do so for a lead over iterations without the loss of a fusion; a head
        start within one is no worse than it was.
    """
    nets = [(path[-1], net) for path, net in original.walk() if path and path[-1] != "cond"]
    known = {lead: False for _, net in nets for lead in head_starts(net)}
    known.update({lead: True for label, net in nets if label == "body" for lead in leads(net)})
    return _edited(original, rewritten, known) if known else rewritten


def _edited(original: Net, rewritten: Net, known: Mapping[Lead, bool]) -> Net:
    ops = []
    for op in rewritten.ops:
        old = original.op_by_name.get(op.name)
        ops.append(op if not op.nets or old is op else _with_edges_inside(op, old, known))
    return rewritten.replace(ops=tuple(ops))


def _with_edges_inside(op: Op, old: Op | None, known: Mapping[Lead, bool]) -> Op:
    """The op with edges in its step nets; a loop keeps its lead where no edge can stand for it."""
    nets = {}
    for label, net in op.nets.items():
        before = None if old is None else old.nets.get(label)
        nets[label], left = _ordered(net, before, known)
        if left and (old is None or not _may_keep_parallel_iterations(op, old)):
            first, second = left[0]
            raise RaceError(
                f"which of {first!r} and {second!r} runs first decides how a sum adds up, "
                "and no plan may settle it as it was"
            )
        if left and old is not None:
            op = op.replace(attributes={**op.attributes, **_parallel_iterations(old)})
    return op.replace(nets=nets)


def _may_keep_parallel_iterations(op: Op, old: Op) -> bool:
    """Whether a loop's lead is its own: nothing makes it wait, and it extends no lifetime."""
    if op.type not in LOOPS or op.controls != old.controls:
        return False
    return not any(is_lifetime_extension(one) for one in op.nets["body"].ops)


def _parallel_iterations(op: Op) -> dict[str, object]:
    known = op.attributes.get("parallel_iterations")
    return {} if known is None else {"parallel_iterations": known}


def _ordered(net: Net, old: Net | None, known: Mapping[Lead, bool]) -> tuple[Net, list[Lead]]:
    """The step net with edges inside and for its own leads, and the leads that none stands for."""
    ops = [
        _with_edges_inside(op, None if old is None else old.op_by_name.get(op.name), known)
        if op.nets
        else op
        for op in net.ops
    ]
    net = net.replace(ops=tuple(ops))
    left = []
    for (first, second), decides in known.items():
        for before in ("", f"{AGAIN}/"):
            lead = before + first, before + second
            if all(name in net.op_by_name for name in lead):
                edited = _with_edge(net, lead)
                left += [lead] if edited is None and decides else []
                net = edited or net
    return net, left


def _with_edge(net: Net, lead: Lead) -> Net | None:
    """The step net with an edge for a lead, if it needs one; None where none can stand for it."""
    first, second = lead
    if first in all_needed_by(net, [second]):
        return net
    edge = way(net, lead)
    if edge is None or second in all_needed_by(net, [first]):
        return None
    editor = NetEditor(net)
    after = edge.after
    if edge.by_proxy:
        after = completion_proxy(editor, editor.ops[after])
    waiting = editor.ops[edge.op]
    editor.ops[edge.op] = waiting.replace(controls=(*waiting.controls, after))
    return editor.net()
