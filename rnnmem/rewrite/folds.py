"""Applies folds: ops read what a blob was repeated from, and broadcast it themselves.

Between the two stands a curtain, so that TensorFlow's graph optimizer finds no pattern in ops that
a Tile kept apart. It shows as little of the shape as was seen of what was made. Each reader has its
own, at which it may be made to wait.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from rnnmem.errors import NetError
from rnnmem.net.nouns import Net, Op, Shape
from rnnmem.plan import Fold
from rnnmem.rewrite.curtains import hidden
from rnnmem.rewrite.editor import NetEditor

BROADCASTS = frozenset({"BroadcastTo", "Tile"})


def with_folds(net: Net, folds: Iterable[Fold]) -> Net:
    """The Net with the folds of a plan, in its step nets.

    Raises:
      NetError: a fold names an op or an input that is not what a Tile or BroadcastTo made.
    """
    inside: dict[str, list[Fold]] = {}
    editor = NetEditor(net)
    for fold in folds:
        if fold.path:
            inside.setdefault(fold.path[0], []).append(fold)
            continue
        op, maker = _found(net, fold)
        inputs = list(editor.ops[op.name].inputs)
        inputs[fold.slot] = hidden(
            editor,
            maker.inputs[0],
            _seen(net, maker),
            name="rnnmem/unrepeated",
            stands_for=f"{op.name}:{fold.slot}",
            optional=True,
        )
        editor.ops[op.name] = editor.ops[op.name].replace(inputs=tuple(inputs))
    for name, some in inside.items():
        if name not in editor.ops:
            raise NetError(f"the plan is for another function: no op {name!r}")
        editor.ops[name] = _inside(editor.ops[name], some)
    return editor.net()


def _found(net: Net, fold: Fold) -> tuple[Op, Op]:
    """The op that is to broadcast, and the one that makes what it reads."""
    op = net.op_by_name.get(fold.op)
    blob = op.inputs[fold.slot] if op is not None and fold.slot < len(op.inputs) else None
    maker = net.producer.get(blob)
    if maker is None or maker.type not in BROADCASTS:
        raise NetError(
            f"the plan is for another function: input {fold.slot} of {fold.op!r} is not repeated"
        )
    return op, maker


def _seen(net: Net, maker: Op) -> Shape:
    """The shape that may be seen: no more than its rank where only a run tells how often."""
    shape = net.blobs[maker.inputs[0]].shape
    often = net.producer.get(maker.inputs[1])
    if shape is None or often is not None and often.type == "Const":
        return shape
    return (None,) * len(shape)


def _inside(op: Op, folds: list[Fold]) -> Op:
    nets = dict(op.nets)
    for key in dict.fromkeys(fold.path[1] for fold in folds):
        if key not in nets:
            raise NetError(f"the plan is for another function: {op.name!r} has no {key!r}")
        deeper = [
            dataclasses.replace(fold, path=fold.path[2:]) for fold in folds if fold.path[1] == key
        ]
        nets[key] = with_folds(nets[key], deeper)
    return op.replace(nets=nets)
