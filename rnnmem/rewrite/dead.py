"""A Net without the ops and the loop variables that nobody needs, as TensorFlow runs it.

TensorFlow prunes loops once they are inlined. What it would prune must not be saved, recomputed or
given another reader here: it would run, and what it reads would have one more reader than before.

    gradient step net   variable k: next = Mul(k, pop) ─► nobody outside        gone, with its pop
"""

from __future__ import annotations

from rnnmem.net.liveness import Needed, needed
from rnnmem.net.nouns import Net, Op
from rnnmem.net.optypes import LOOPS
from rnnmem.net.order import without_dead_ops
from rnnmem.rewrite.editor import LoopEditor, NetEditor


def without_dead_parts(net: Net) -> Net:
    """The Net without pure ops, and variables of loops outside branches, that nobody needs.

    Args:
      net: the whole function, inlined.
    """
    net = without_dead_ops(net)
    return _living(net, needed(net))


def _living(net: Net, live: Needed) -> Net:
    editor = NetEditor(net)
    for name in editor.ops.keys() - {op.name for op in live.ops}:
        editor.remove(name)
    changed = len(editor.ops) < len(net.ops)
    for op in live.ops:
        if op.type in LOOPS:
            changed |= _shorten(editor, op, live)
    return editor.net() if changed else net


def _shorten(outer: NetEditor, op: Op, live: Needed) -> bool:
    """Takes a loop's dead variables out; whether it or its body changed."""
    body = _living(op.nets["body"], live.bodies[op.name])
    dead = sorted(set(range(len(op.inputs))) - live.variables[op.name])
    if not dead and body is op.nets["body"]:
        return False
    outer.ops[op.name] = op.replace(nets={**op.nets, "body": body})
    loop = LoopEditor(outer, outer.ops[op.name])
    for argument in [body.inputs[position] for position in dead]:
        loop.remove_variable(argument)
    if dead:
        loop.finish()
    return True
