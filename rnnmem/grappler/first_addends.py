"""What a sum may begin with: the first addend that nobody else holds, as the addends are sorted.

``AddN`` adds the others to that (:mod:`rnnmem.grappler.summation_order`). A graph optimizer sorts
addends by name (``CanonicalizeNode``), or leaves them as they are written.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable

from rnnmem.grappler.cse import congruent_ops
from rnnmem.grappler.summation_order import computes_with_all, is_addition, sums_of
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import TAKES, Work, facts
from rnnmem.ir.order import all_needed_by

_MAKES_ITS_OWN = (Work.READS, Work.POINTWISE, Work.PRODUCT)


def begins_alone(body: Net, tree: list[Op]) -> bool:
    """Whether a sum begins with what nobody else reads, sorted by a graph optimizer or not."""
    addends = tree[0].inputs
    first = addends[0], min(addends, key=_sorted_by)
    return stays(body, tree) and all(body.fan_out(blob) == 1 for blob in first)


def _sorted_by(blob: str) -> str:
    """What a graph optimizer sorts addends by (``CanonicalizeNode``)."""
    return blob.removesuffix(":0")


def stays(body: Net, tree: list[Op]) -> bool:
    """Whether the tree is one AddN that no graph optimizer makes another of; it may be sorted."""
    (last, *others) = tree
    return not others and last.type == "AddN" and not has_factors_only(body, last)


def first_addends(body: Net, tree: list[Op]) -> list[str]:
    """What the tree may begin with: an AddN takes the first addend that nobody else holds.

    What it reads twice it holds itself. Which of the first two it takes is all the same: they trade
    places, and what is added first is added to the other either way.
    """
    (adding, *_), addends = tree, [blob for op in tree for blob in op.inputs]
    if not stays(body, tree):
        return list(dict.fromkeys(addends))
    once = [blob for blob in addends if addends.count(blob) == 1]
    before = all_needed_by(body, [adding.name])
    free = {blob for blob in once if _is_free(body, blob, adding, before)}

    def in_front(order: Iterable[str]) -> list[str]:
        return list(itertools.takewhile(lambda blob: blob not in free, order))

    listed, by_name = in_front(addends), in_front(sorted(addends, key=_sorted_by))
    anywhere = (blob for blob in addends if blob not in free and not _keeps_name(body, blob))
    by_name += (blob for blob in anywhere if blob not in by_name)
    found = {blob for order in (listed, by_name) if len(order) > 1 for blob in order}
    return [blob for blob in once if blob in found]


def _keeps_name(body: Net, blob: str) -> bool:
    """Whether no graph optimizer makes another op of the one that writes the blob."""
    op = body.producer.get(blob)
    if op is None or len(set(op.inputs)) < len(op.inputs):
        return False
    return op.type in TAKES or computes_with_all(body, op)


def _is_free(body: Net, blob: str, adding: Op, before: Collection[str]) -> bool:
    """Whether surely nobody holds an addend when its sum begins.

    It is made anew, and for the sum alone or for ops that are done before and hand none of it on.
    """
    op = body.producer.get(blob)
    if op is None or op.type in TAKES or op.name in body.once(congruent_ops):
        return False
    if len(op.outputs) != 1 or not _keeps_name(body, blob):
        return False
    others = [one for one in body.readers[blob] if one.name != adding.name]
    if len(others) + 1 != body.fan_out(blob) or len(sums_of(body).sharing(blob)) > 1:
        return False
    return all(_lets_go(body, one, before) for one in others)


def _lets_go(body: Net, op: Op, before: Collection[str]) -> bool:
    """Whether the op makes something of its own of what it reads, and is done before."""
    known = facts(op)
    if known is None or known.view or is_addition(op) or known.work not in _MAKES_ITS_OWN:
        return False
    return _is_done(body, op, before)


def _is_done(body: Net, op: Op, before: Collection[str]) -> bool:
    """Whether the op is among those before, and so is whoever may read in its stead."""
    if op.name not in before:
        return False
    handed = folds(op) and not set(op.outputs).isdisjoint(body.outputs)
    readers = [one for made in op.outputs for one in body.readers.get(made, ())]
    return not handed and (not folds(op) or all(_is_done(body, one, before) for one in readers))


def has_factors_only(body: Net, adding: Op) -> bool:
    """Whether each addend is a product, of which a graph optimizer may take a common factor out."""
    makers = [body.producer.get(blob) for blob in adding.inputs]
    return all(one is not None and one.type == "Mul" for one in makers)


def folds(op: Op) -> bool:
    """Whether the graph optimizer may look through the op."""
    known = facts(op)
    return known is None or known.folds
