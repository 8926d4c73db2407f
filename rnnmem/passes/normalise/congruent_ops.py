"""Ops that compute the same are merged as TensorFlow merges them, under the names that it keeps.

Of congruent ops TensorFlow's graph optimizer keeps the one that it comes to first, which depends on
every op beside them, and sorts the addends of a sum by their names. So a rewrite elsewhere may let
a sum add up in another order:

    original     AddN(a/Neg, a/Select, b/y)       c/Neg and c/Select merged into a/Neg, a/Select
    rewritten    AddN(b/y, c/Neg, c/Select)       the other way round: another order

Where that was found to happen, the rewritten function has none but the ops that the original runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from rnnmem.errors import NetError
from rnnmem.grappler.cse import congruence_classes
from rnnmem.grappler.listing import name_in_net
from rnnmem.grappler.summation_order import rounds
from rnnmem.ir.editor import NetEditor, edit_step_nets
from rnnmem.ir.graph import Net
from rnnmem.passes.normalise.decision import CongruentOps


def merged_in(net: Net, optimized: Iterable[str]) -> tuple[CongruentOps, ...]:
    """The ops that TensorFlow merged with others, and with which.

    Args:
      net: a whole Net, inlined.
      optimized: names of the ops that its graph optimizer left of the function.
    """
    left = set(map(name_in_net, optimized))
    found = ((path, tuple(_merged(inner, path, left))) for path, inner in net.walk())
    return tuple(
        CongruentOps(tuple(path), *zip(*pairs, strict=True)) for path, pairs in found if pairs
    )


def _merged(net: Net, path: tuple[str, ...], left: Collection[str]) -> Iterator[tuple[str, str]]:
    """Pairs of an op that is gone and the one congruent to it that is left."""
    for names in congruence_classes(net):
        first = net.op_by_name[names[0]]
        if not first.outputs or not rounds(net, first):
            continue  # assertions and sums of integers show no order
        kept = [name for name in names if "/".join((*path, name)) in left]
        if len(kept) == 1:
            yield from ((name, kept[0]) for name in names if name != kept[0])


def apply(net: Net, merged: Iterable[CongruentOps]) -> Net:
    """The Net without the ops that are merged.

    Raises:
      NetError: a decision names an op that the Net does not have, or ops that are not congruent.
    """
    editor = NetEditor(net)
    here = edit_step_nets(editor, merged, apply)
    together = {
        name: names for names in (congruence_classes(net) if here else ()) for name in names
    }
    for one in here:
        for gone, into in zip(one.ops, one.into, strict=True):
            if into not in together.get(gone, ()):
                raise NetError(f"the plan is for another function: {gone!r} is not {into!r}")
            outputs = editor.ops[gone].outputs, editor.ops[into].outputs
            for old, new in zip(*outputs, strict=True):
                editor.rename(old, new)
            editor.swap(gone, into)
            editor.control_outputs = [
                into if name == gone else name for name in editor.control_outputs
            ]
    return editor.net()
