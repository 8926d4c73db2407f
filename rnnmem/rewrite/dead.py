"""Takes out loop variables that no run needs: nothing is to be saved, or waited for, for them.

TensorFlow's graph optimizer does the same once loops are lowered, so no bit and no byte depends on
it; but what is planned around a variable that nobody needs would keep it alive.
"""

from __future__ import annotations

from rnnmem.net.liveness import needed
from rnnmem.net.nouns import Net, Op
from rnnmem.net.optypes import LOOPS
from rnnmem.net.order import without_dead_ops
from rnnmem.rewrite.editor import LoopEditor, NetEditor


def without_dead_variables(net: Net) -> Net:
    """The Net without loop variables that are computed in vain, here and in every step net.

    A variable that stays what it was costs nothing and is left where it is.

    Args:
      net: a Net without dead ops; all of its outputs are needed.
    """
    variables = needed(net, with_invariants=True).variables
    editor = NetEditor(net)
    for op in net.ops:
        if op.type in LOOPS:
            _prune(editor, op, variables.get(op.name, frozenset()))
    pruned = without_dead_ops(editor.net()) if editor.ops != net.op_by_name else net
    ops = tuple(_with_pruned_nets(op) for op in pruned.ops)
    if all(new is old for new, old in zip(ops, pruned.ops, strict=True)):
        return pruned
    return without_dead_ops(pruned.replace(ops=ops))


def _prune(editor: NetEditor, op: Op, live: frozenset[int]) -> None:
    body = op.nets["body"]
    dead = [blob for index, blob in enumerate(body.inputs) if index not in live]
    if dead:
        changed = LoopEditor(editor, op)
        for blob in dead:
            changed.remove_variable(blob)
        changed.finish()


def _with_pruned_nets(op: Op) -> Op:
    nets = {key: without_dead_variables(inner) for key, inner in op.nets.items()}
    same = all(nets[key] is inner for key, inner in op.nets.items())
    return op if same else op.replace(nets=nets)
