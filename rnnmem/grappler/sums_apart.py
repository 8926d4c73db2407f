"""Additions of a tree that TensorFlow's graph optimizer leaves apart, so that no order shows.

It makes one ``AddN`` of a tree only where it can tell that all addends have one shape. Of a batch
that is unknown it often cannot, in a loop above all: what is read of a list has the batch of that
list, the state its own. What it made of the function tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rnnmem.grappler.summation_order import APART, adders_of, summation_trees
from rnnmem.ir.graph import Net, Op, Path, static


def with_sums_apart(net: Net, types_left: Callable[[], Mapping[str, str]]) -> Net:
    """The Net, and every step net in it, with the names of the additions that are left apart.

    Args:
      net: a whole Net, inlined.
      types_left: gives the types of the ops that the graph optimizer left of the function, by their
        paths in the Net; asked where a tree of additions has an unknown size.
    """
    doubtful = [
        (path, trees)
        for path, inner in net.walk()
        if (trees := [tree for tree in summation_trees(inner) if _has_unknown_size(inner, tree)])
    ]
    left = types_left() if doubtful else {}
    for path, trees in doubtful:
        inner = path.at(net)
        if apart := tuple(name for tree in trees for name in _apart(inner, path, tree, left)):
            attributes = {**inner.attributes, APART: apart}
            net = path.put(net, inner.replace(attributes=attributes))
    return net


def _has_unknown_size(net: Net, tree: list[Op]) -> bool:
    return static(net.blobs[tree[0].outputs[0]].shape) is None


def _apart(net: Net, path: Path, tree: list[Op], left: Mapping[str, str]) -> list[str]:
    """Names of the additions of a tree, last first, that neither added up another nor are in one.

    A sum that was taken into a later one may be left beside it, for those who ask for its shape.
    """
    inside = {op.name for op in tree}
    apart: list[str] = []
    for op in tree:
        later = (one.name for one in adders_of(net, op.outputs[0]) if one.name in inside)
        is_left = len(op.inputs) == 2 and left.get(path.child(op.name).text) == op.type
        if is_left and all(name in apart for name in later):
            apart.append(op.name)
    return apart
