"""Sums whose order shows: which blobs TensorFlow may, or may not, add up in place.

``AddN`` puts the first addend whose buffer nobody else holds in front and adds the others to it.
With three addends or more that is another order of summation, so the result's last bits depend on
who holds an addend: an accumulator that it was pushed into does, and what is dropped no longer
does. Grappler makes an ``AddN`` of every tree of additions, so a tree counts as a sum here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rnnmem.analysis.branches import given_inside
from rnnmem.analysis.shared_rows import may_be_all
from rnnmem.ir.graph import Net, Op, Shape, may_be_one_shape, static
from rnnmem.ir.handed_on import handed_on
from rnnmem.ir.op_table import (
    ADDS,
    BRANCHES,
    BROADCASTS,
    FILLERS,
    LOOPS,
    REDUCES,
    Work,
    facts,
    types,
)
from rnnmem.ir.order import all_needed_by, all_waiting_for, through_identities

_REORDERS = types("reorders")
APART = "rnnmem_apart"
"""The attribute of a Net that names its additions which the graph optimizer leaves apart."""
_COMPUTES = (Work.POINTWISE, Work.PRODUCT)
_MAY_DO_NOTHING = types("skips") | BROADCASTS | _REORDERS


def is_addition(op: Op) -> bool:
    """Whether the op adds values up."""
    return op.type in ADDS


class Sums:
    """What the sums of a Net, at any depth, may add up.

    Attributes:
      addends: blobs of the Net in whose buffer an addend of three or more may stand.
      unsteady: blobs in whose buffer stands what one branch keeps for its gradient, and another
        lets go of: whether somebody holds it is only known in a run.
    """

    def __init__(self, net: Net, carried: bool = False, merged: bool = False):
        """Looks at the Net; a ``carried`` one is a loop's body that runs again and again.

        A graph optimizer adds a sum up with its reader only where that is the only one; in a
        ``merged`` Net readers stay, so that no other trees of additions count.
        """
        self._parent: dict[str, str] = {}
        self._unsteady: set[str] = set()
        trees = merged_trees(net) if merged else summation_trees(net)
        found = {blob for tree in trees for op in tree for blob in op.inputs}
        if carried:
            for argument, result in zip(net.inputs, net.outputs, strict=True):
                self.join(argument, result)
        for op in net.ops:
            for read, written in handed_on(op):
                self.join(read, written)
            if op.inputs and _may_do_nothing(net, op):
                self.join(op.inputs[0], op.outputs[0])
            if op.nets:
                found |= self._look(op)
        groups: dict[str, list[str]] = {}
        for blob in {*self._parent, *self._parent.values()}:  # all others are alone
            groups.setdefault(self.root(blob), []).append(blob)
        self._groups = {root: tuple(sorted(blobs)) for root, blobs in groups.items()}
        self.addends = self._with_shared(found)
        self.unsteady = self._with_shared(self._unsteady)

    def share(self, one: str, other: str) -> bool:
        """Whether two blobs may stand in one buffer."""
        return self.root(one) == self.root(other)

    def sharing(self, blob: str) -> tuple[str, ...]:
        """The blobs of the Net that may stand in the buffer of this one, itself among them."""
        return self._groups.get(self.root(blob), (blob,))

    def _with_shared(self, blobs: set[str]) -> frozenset[str]:
        """The blobs, and those that may stand in a buffer with one of them."""
        apart = {self.root(blob): blob for blob in blobs}
        return frozenset(one for blob in apart.values() for one in self.sharing(blob))

    def _look(self, op: Op) -> set[str]:
        """Joins what shares a buffer through the op's Nets; returns the addends of their sums."""
        given = given_inside(op)
        found = set()
        held: dict[str, set[tuple]] = {}  # result -> in each branch, who else has its buffer
        for label, inner in op.nets.items():
            is_cond = op.type in LOOPS and label == "cond"
            below = (
                inner.once(_carried_sums) if op.type in LOOPS and not is_cond else sums_of(inner)
            )
            links = list(zip(inner.inputs, given, strict=True))
            if not is_cond:
                links += zip(inner.outputs, op.outputs, strict=True)
            if op.type in BRANCHES:
                for blob, outer in zip(inner.outputs, op.outputs, strict=True):
                    held.setdefault(outer, set()).add(below._kept_with(inner, blob))
            outside: dict[str, str] = {}
            for blob, outer in links:
                first = outside.setdefault(below.root(blob), outer)
                if first != outer:
                    self.join(outer, first)
                if blob in below.addends:
                    found.add(outer)
                if blob in below.unsteady:
                    self._unsteady.add(outer)
        self._unsteady |= {blob for blob, ways in held.items() if len(ways) > 1}
        return found

    def _kept_with(self, net: Net, blob: str) -> tuple:
        """Whether an optional that the Net hands out holds a blob, and which input it is."""
        shared = set(self.sharing(blob))
        optional = any(one in shared and net.blobs[one].dtype == "variant" for one in net.outputs)
        return optional, *(place for place, one in enumerate(net.inputs) if one in shared)

    def root(self, blob: str) -> str:
        """One of the blobs that may stand in the buffer of this one, the same for all of them."""
        while (parent := self._parent.get(blob, blob)) != blob:
            blob = parent
        return blob

    def join(self, one: str, other: str) -> None:
        """Lets two blobs stand in one buffer, and all that may stand in one with either."""
        self._parent[self.root(one)] = self.root(other)


def sums_of(net: Net) -> Sums:
    """What the sums of the Net may add up in one run; of a loop's body, in one iteration."""
    return net.once(Sums)


def _carried_sums(body: Net) -> Sums:
    return Sums(body, carried=True)


def summation_trees(net: Net) -> list[list[Op]]:
    """The trees of additions whose order shows: of three values or more of one shape, rounded."""
    return net.once(_summing_trees)


def merged_trees(net: Net) -> list[list[Op]]:
    """Those of them in which every sum has its reader in the tree alone."""
    return net.once(_merged_trees)


def lasting_trees(net: Net) -> list[list[Op]]:
    """Those of them that may be there in the Net itself, whatever of it is no longer saved.

    A sum that one of its results needs elsewhere, too, is never added up with a later one. What is
    recomputed from the Net may do without the other reader.
    """
    return net.once(_lasting_trees)


def merged_sums(net: Net) -> Sums:
    """What the sums of the Net may add up in one run, where no blob loses its readers."""
    return net.once(_merged_sums)


def _merged_sums(net: Net) -> Sums:
    return Sums(net, merged=True)


def _merged_trees(net: Net) -> list[list[Op]]:
    return _summing_trees(net, lambda blob: net.fan_out(blob) <= 1)


def _lasting_trees(net: Net) -> list[list[Op]]:
    makers = [
        net.producer[blob].name
        for blob in net.outputs
        if blob in net.producer and net.blobs[blob].dtype != "variant"
    ]
    lasting = all_needed_by(net, makers)

    def merges(blob: str) -> bool:
        readers = net.readers.get(blob, ())
        return not any(one.name in lasting and _stays_reader(net, one) for one in readers)

    return _summing_trees(net, merges)


def _varying(net: Net) -> set[str]:
    """Names of the ops that wait for what another iteration may have changed."""
    return all_waiting_for(net, _readers_of_states(net))


def _readers_of_states(net: Net) -> set[str]:
    """Names of the ops that read what another iteration may have changed."""
    handed_on = zip(net.inputs, net.outputs, strict=False)
    states = [blob for blob, given in handed_on if through_identities(net, given) != blob]
    return {op.name for blob in states for op in net.readers.get(blob, ())}


def computes_with_all(net: Net, op: Op) -> bool:
    """Whether the op computes with all that it reads, of which no optimizer knows any."""
    known = facts(op)
    if op.type in ADDS or known is None or known.folds or known.work not in _COMPUTES:
        return False
    return all(_varies(net, blob) for blob in op.inputs)


def _stays_reader(net: Net, op: Op) -> bool:
    """Whether something reads what the op reads whatever a graph optimizer makes of the op.

    A reduction along axes of one element is made a Reshape, or goes, and its own readers read that.
    """
    if op.type not in REDUCES:
        return computes_with_all(net, op)
    return _varies(net, op.inputs[0])


def _varies(net: Net, blob: str) -> bool:
    """Whether what the blob holds is new in each iteration, and not known to be all one number."""
    made = net.producer.get(blob)
    return made is not None and made.name in net.once(_varying) and made.type not in FILLERS


def _summing_trees(net: Net, merges: Callable[[str], bool] = lambda blob: True) -> list[list[Op]]:
    """The trees, where a sum may be added up with its reader if it ``merges``."""
    trees: dict[str, list[Op]] = {}  # last op of a tree -> its ops
    last: dict[str, str] = {}
    apart = net.attributes.get(APART, ())
    for op in reversed(net.ops):
        if op.type not in ADDS or op.name in apart:
            continue
        adders = adders_of(net, op.outputs[0]) if merges(op.outputs[0]) else []
        above = {last[one.name] for one in adders if one.name in last}
        top = min(above, default=op.name)
        trees.setdefault(top, []).append(op)
        for other in sorted(above - {top}):
            trees[top] += trees.pop(other)
        last.update(dict.fromkeys((one.name for one in trees[top]), top))
    return [ops for ops in trees.values() if rounds(net, ops[0]) and _leaves(net, ops) > 2]


def rounds(net: Net, op: Op) -> bool:
    """Whether a sum's bits depend on its order; those of whole numbers do not."""
    return not net.blobs[op.outputs[0]].dtype.startswith(("int", "uint"))


def _leaves(net: Net, ops: list[Op]) -> int:
    """How many values of the sum's own shape go into it; what is broadcast is added by itself."""
    return len(addends_of(net, ops))


def addends_of(net: Net, tree: list[Op]) -> list[str]:
    """The values of its own shape that a tree of additions adds up."""
    inside = {blob for op in tree for blob in op.outputs}
    shape = net.blobs[tree[0].outputs[0]].shape
    return [
        blob
        for op in tree
        for blob in op.inputs
        if through_identities(net, blob) not in inside
        and may_be_one_shape(net.blobs[blob].shape, shape)
    ]


def _may_do_nothing(net: Net, op: Op) -> bool:
    """Whether the kernel hands on its input where sizes turn out to be such: a batch of one."""
    if op.type not in _MAY_DO_NOTHING or not op.outputs:
        return False
    read, written = net.blobs[op.inputs[0]], net.blobs[op.outputs[0]]
    if read.dtype != written.dtype:
        return False
    if op.type in _REORDERS:  # axes of one element may stand anywhere
        return read.shape is None or any(size in (None, 1) for size in read.shape)
    if op.type in REDUCES and _undoes_a_broadcast(net, op):
        return False
    return _may_be_one_size(read.shape, written.shape) and may_be_all(net, op)


def _undoes_a_broadcast(net: Net, op: Op) -> bool:
    """Whether a gradient adds up elements for which an operand had one, whatever the batch is."""
    axes = net.producer.get(op.inputs[1])
    if axes is None or axes.type != "BroadcastGradientArgs":
        return False
    asked = net.producer.get(axes.inputs[axes.outputs.index(op.inputs[1])])
    if asked is None or asked.type != "Shape":
        return False
    own, read = net.blobs[asked.inputs[0]].shape, net.blobs[op.inputs[0]].shape
    if own is None or read is None or len(own) > len(read):
        return False
    aligned = (1,) * (len(read) - len(own)) + own
    return any(one == 1 and size not in (None, 1) for one, size in zip(aligned, read, strict=True))


def _may_be_one_size(one: Shape, other: Shape) -> bool:
    """Whether two shapes may turn out to have as many elements."""
    if one is None or other is None or (None in one and None in other):
        return True
    if None in one:
        one, other = other, one
    known = math.prod(size for size in other if size is not None)
    size = math.prod(static(one) or ())
    return size == known if None not in other else not known or size % known == 0


def adders_of(net: Net, blob: str) -> list[Op]:
    """The additions that read the blob, itself or through Identity."""
    found = []
    for op in net.readers.get(blob, ()):
        if op.type in ADDS:
            found.append(op)
        elif op.type == "Identity":
            found += adders_of(net, op.outputs[0])
    return found
