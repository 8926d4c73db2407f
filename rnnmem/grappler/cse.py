"""Equal ops that TensorFlow merges or not, by a race, and sums whose order shows which it did.

TensorFlow's graph optimizer and its runtime take ops for one whose types, attributes, inputs and
control edges are equal (``common_subgraph_elimination.cc``, ``optimizer_cse.cc``). Of constants
with one value it only ever merges those that wait for what the first of them waits for, and which
is the first, of a loop's or of its gradient's, depends on the order in which it walks the whole
graph. So two products by equal constants may be computed apart in one graph and together in another
that only has more ops beside them. That shows where one of them is an addend of three or more: a
sum begins with an addend whose buffer nobody else holds.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Hashable, Iterable, Iterator

from rnnmem.analysis.loops import loops_of
from rnnmem.analysis.shared_rows import whole_buffer
from rnnmem.grappler.summation_order import addends_of, summation_trees
from rnnmem.grappler.summation_races import held_throughout
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import POP, READ, types
from rnnmem.ir.order import topological

_COMMUTE = types("commutes")


def racing_sums(net: Net) -> Iterator[Op]:
    """The sums, in forward step nets, whose order may change with any op that is added elsewhere.

    Args:
      net: a whole Net, inlined and without dead ops. Gradient step nets are not looked at: their
        constants come first in the original as a rule, so equal ops are merged there, and a sum
        of such a one varies by itself.
    """
    loops = {id(loop.body): loop for _, inner in net.walk() for loop in loops_of(inner)}
    for path, inner in net.walk():
        if path and not any(op.type == POP for op in inner.ops):
            loop = loops.get(id(inner))
            yield from _is_racing(inner, set() if loop is None else held_throughout(loop))


def _is_racing(net: Net, held: set[str]) -> Iterator[Op]:
    """Those of one step net, some inputs of which somebody holds all the time."""
    trees = summation_trees(net)
    if not trees:
        return
    values, merged = _Numbers(net, constants=False), _Numbers(net, constants=True)
    apart: dict[str, set[str]] = {}  # first where constants are merged -> those where none is
    for op in net.ops:
        for blob in op.outputs:
            apart.setdefault(merged.of[blob], set()).add(values.of[blob])
    for tree in trees:
        if any(
            _is_held_by_none(net, blob, held) and len(apart[merged.of[blob]]) > 1
            for blob in addends_of(net, tree)
        ):
            yield tree[0]


def _is_held_by_none(net: Net, blob: str, held: set[str]) -> bool:
    """Whether the blob is computed here, not cut from what is held, and a sum alone reads it."""
    op = net.producer.get(blob)
    if op is None or op.type == "Const" or net.fan_out(blob) != 1:
        return False
    if op.type == "Identity":
        return _is_held_by_none(net, op.inputs[0], held)
    return whole_buffer(net, blob) not in held


class Congruent:
    """Which ops TensorFlow merges: those of one type, device, attributes, inputs and control edges.

    Its graph optimizer and its runtime agree: every attribute counts, also those that begin with an
    underscore; the inputs of commutative ops count in any order; an Identity counts for nothing.
    Constants are taken to be merged whatever they wait for, unless asked otherwise.
    """

    def __init__(self, exactly: bool = False):
        """Where asked to, constants count by what they wait for, and inputs in their order."""
        self._exactly = exactly
        self._known: dict[tuple, list[Op]] = {}
        self._into: dict[str, str] = {}  # op -> what it is merged with

    def first(self, op: Op, inputs: Iterable[Hashable]) -> Op:
        """The first of the ops so far that is merged with this one, perhaps itself.

        Args:
          op: the op.
          inputs: what it reads, by names that are equal for what is merged.
        """
        if op.stateful or op.nets:
            return op
        commutes = op.type in _COMMUTE and not self._exactly
        read = sorted(inputs, key=str) if commutes else inputs
        known = self._known.setdefault((op.type, *read), [])
        for other in known:
            if (
                other.attributes == op.attributes
                and other.device == op.device
                and (self._is_free(op) or self._awaited(other) == self._awaited(op))
            ):
                self._into[op.name] = other.name
                return other
        known.append(op)
        return op

    def _awaited(self, op: Op) -> set[str]:
        return {self._into.get(name, name) for name in op.controls}

    def _is_free(self, op: Op) -> bool:
        return op.type == "Const" and not self._exactly


class _Numbers:
    """Stands for each blob of a Net the first that TensorFlow computes with it.

    Attributes:
      of: blob -> the first such.
      merged: pairs of names of ops, the second merged with the first.
    """

    def __init__(self, net: Net, constants: bool, reads: bool = False, exactly: bool = False):
        """Finds them.

        Args:
          net: the Net.
          constants: whether those of one value are one, or each is its own.
          reads: whether those of one variable are one.
          exactly: whether only what the verifier can prove is: no inputs in another order, and no
            constants that wait for something else.
        """
        congruent = Congruent(exactly)
        self.of = {blob: blob for blob in net.inputs}
        self.merged: list[tuple[str, str]] = []
        for op in topological(net.ops):
            if op.type == "Identity" or (reads and op.type == READ):
                self.of[op.outputs[0]] = self.of[op.inputs[0]]
                continue
            apart = op.type == "Const" and not constants
            read = [self.of.get(blob, blob) for blob in op.inputs]
            first = op if apart else congruent.first(op, read)
            self.of.update(zip(op.outputs, first.outputs, strict=True))
            if first is not op:
                self.merged.append((first.name, op.name))


def fan_out(net: Net, blob: str) -> int:
    """How many slots read a blob, or an equal one, once TensorFlow has merged equal ops.

    The gradient of ``x * x`` multiplies twice alike, which is one reader of what both read. What
    Identity hands on is read by its readers. A shape that is asked for to know along which axes a
    gradient is summed up is no reader where TensorFlow knows that before the run.
    """
    numbers, counts = net.once(_slots)
    return counts.get(numbers.get(blob, blob), 0)


def _slots(net: Net) -> tuple[dict[str, str], dict[str, int]]:
    """Blob -> the first that is equal, and of each such how many slots of distinct ops read it."""
    numbers = _Numbers(net, constants=True)
    counts = collections.Counter(numbers.of.get(blob, blob) for blob in net.outputs)
    merged = {second for _, second in numbers.merged}
    for op in net.ops:
        if op.type != "Identity" and op.name not in merged and not _is_known_early(net, op):
            counts.update(numbers.of.get(blob, blob) for blob in op.inputs)
    return numbers.of, counts


def _is_known_early(net: Net, op: Op) -> bool:
    """Whether a shape only tells how a gradient is summed up, and is not asked for in the end.

    TensorFlow takes two unknown sizes for one where the same goes into both, as it does in most
    steps. The axes to sum up along are constants then, and what is summed up has the shape
    (``constant_folding.cc``, ``MaterializeBroadcastGradientArgs``).
    """
    if op.type != "Shape" or op.outputs[0] in net.outputs:
        return False
    readers = net.readers.get(op.outputs[0], ())
    return bool(readers) and all(_sums_up(net, one) for one in readers)


def _sums_up(net: Net, op: Op) -> bool:
    """Whether an op finds the axes that a gradient is summed up along, or has the sum's shape."""
    if op.type == "BroadcastGradientArgs":
        return _has_constant_axes(net, op)
    summed = net.producer.get(op.inputs[0]) if op.type == "Reshape" else None
    axes = None if summed is None or summed.type != "Sum" else net.producer.get(summed.inputs[1])
    return axes is not None and axes.type == "BroadcastGradientArgs"


def _has_constant_axes(net: Net, op: Op) -> bool:
    """Whether the sizes that two values have along an axis are alike, or one of them is 1."""
    asking = [net.producer.get(blob) for blob in op.inputs]
    asked = [one.inputs[0] for one in asking if one is not None and one.type == "Shape"]
    shapes = (net.blobs[blob].shape for blob in asked)
    known = [shape[::-1] for shape in shapes if shape is not None]
    if len(known) < len(op.inputs):
        return False
    sizes = itertools.zip_longest(*known, fillvalue=1)
    return all(one == other or 1 in (one, other) for one, other in sizes)


def congruence_classes(net: Net, exactly: bool = True) -> list[tuple[str, ...]]:
    """Names of ops that TensorFlow merges, those that become one together.

    Args:
      net: the Net.
      exactly: whether those are left out whose inputs stand in another order, or whose constants
        wait for something else; the verifier can prove nothing of these.
    """
    together: dict[str, list[str]] = {}
    for first, other in _Numbers(net, constants=True, exactly=exactly).merged:
        together.setdefault(first, [first]).append(other)
    return list(map(tuple, together.values()))


def congruent_ops(net: Net) -> frozenset[str]:
    """Names of ops that TensorFlow may merge with another of the Net.

    An edge at one of them would keep it apart, and its readers' other readers with it. Nothing is
    staked on TensorFlow reading a variable more than once.
    """
    numbers = _Numbers(net, constants=True, reads=True)
    return frozenset(name for pair in numbers.merged for name in pair)
