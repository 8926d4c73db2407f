"""Which elementwise ops may run by chunks of rows: whole chains of them, to what is read whole.

    Conv2D ─► x ─► Mul ─► m ───► Mul ─► y ─► Conv2D             whole: x and y
              └──► Mul ─► Erfc ──┘                              by chunks: what lies between

A *root* is what an elementwise op makes and something else reads as a whole. Its *chain* are the
elementwise ops that make it, back to what is there as a whole: roots, and what other ops make.
What several chains need runs in each of them, so it need not be held from one to the other. Chains
that share ops go together, for what is left of a chain outside would have fewer readers, and a
graph optimizer would fuse it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping

from rnnmem.analysis.machine import Machine
from rnnmem.analysis.row_rules import ROW, Given, Rows, Value, apply, rows_of
from rnnmem.analysis.row_values import product
from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.analysis.tape import is_float
from rnnmem.grappler.cse import fan_out
from rnnmem.grappler.summation_order import merged_sums, merged_trees
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import (
    MAY_RERUN,
    Work,
    facts,
    may_fuse,
    types,
)
from rnnmem.ir.order import popped_at_once, reached
from rnnmem.passes.chunked_loss.exact import COLUMNS, keeps_bits
from rnnmem.passes.elementwise_chunks.decision import ElementwiseChain
from rnnmem.passes.rematerialise.requests import ops_kept

LEAST = 4 * 2**20
"""Bytes of a blob from which on it is cut."""
CHUNK_BYTES = 2 * 2**20
"""Bytes that a chunk of one blob has, about."""
PART, MOST_PART = 1 / 8, 1 / 4
"""Part of all rows that a chunk has, about, and at most, where rows are large."""
OWN_COST = 2.0
"""How much longer chains take than the sum of what their ops do, as measured: cutting, counting."""
ALIGNED = 64
"""Numbers of which a chunk has a multiple, so that kernels round each as among all."""

_REPEATS = types("repeats")


@dataclasses.dataclass(frozen=True)
class Cut:
    """A chain on some of the rows.

    Attributes:
      ops: in order.
      values: what each blob that they read or make is.
      sliced: ``(op, input)`` of what is cut, which others make.
    """

    ops: tuple[Op, ...]
    values: Mapping[str, Value]
    sliced: frozenset[tuple[str, int]]


def chains_of(net: Net, machine: Machine) -> tuple[tuple[ElementwiseChain, ...], ...]:
    """Chains that may run by chunks, those that share ops together, in the order of the Net.

    Args:
      net: the whole step, inlined. What its trace does not tell the size of is not cut.
      machine: what estimates of time assume.
    """
    return _Finder(net, machine).found()


def cut_of(known: KnownNet, names: tuple[str, ...]) -> Cut | None:
    """What becomes of ops on some rows of what they read; None where one must see all.

    Args:
      known: the Net that they are in, with its shapes.
      names: of the ops, in order.
    """
    net, sliced = known.net, set()
    values: dict[str, Value] = {}
    ops = tuple(net.op_by_name[name] for name in names)
    made = {blob for op in ops for blob in op.outputs}
    for op in ops:
        shape = net.blobs[op.outputs[0]].shape
        for slot, blob in enumerate(op.inputs):
            if blob in made:
                continue
            there = known.facts[blob].shape
            if shape and there and len(there) == len(shape) and there[0] == shape[0]:
                values[blob] = rows_of(blob, there, ROW)
                sliced.add((op.name, slot))
            else:
                values[blob] = Given(known.facts[blob])
        found = apply(op, [values[blob] for blob in op.inputs])
        if found is None or not all(map(_is_a_row_of_each, found)):
            return None
        values.update(zip(op.outputs, found, strict=True))
    return Cut(ops, values, frozenset(sliced))


def is_keepalive(net: Net, op: Op) -> bool:
    """Whether the op puts a blob into a list that it is taken out of at once, read by nobody."""
    pop = popped_at_once(net, op)
    return pop is not None and not net.fan_out(pop.outputs[1])


def _is_a_row_of_each(value: Value) -> bool:
    return isinstance(value, Rows) and value.ramp is None and value.shape[0] == ROW


class _Finder:
    def __init__(self, net: Net, machine: Machine):
        self.known, self.net, self.machine = known_net(net), net, machine
        sums = merged_sums(self.net)
        self.racing = sums.addends
        self.in_sums = {op.name for tree in merged_trees(self.net) for op in tree}
        self.kept = ops_kept(self.net)
        self.run: set[str] = set()  # ops of chains that were found
        self.eligible: dict[str, Op] = {}
        for op in self.net.ops:
            if self._may_be_cut(op):
                self.eligible[op.name] = op

    def found(self) -> tuple[tuple[ElementwiseChain, ...], ...]:
        chains = [one for op in self.net.ops if (one := self._chain(op)) is not None]
        return tuple(some for some in _families(chains) if self._is_all(some))

    def _may_be_cut(self, op: Op) -> bool:
        known = facts(op)
        if op.type not in MAY_RERUN or known is None or op.nets or len(op.outputs) != 1:
            return False
        blob = self.net.blobs[op.outputs[0]]
        elementwise = known.work is Work.POINTWISE or op.type in _REPEATS or op.type == "AddN"
        large = blob.bytes is not None and blob.bytes >= LEAST and len(blob.shape or ()) > 1
        return (
            elementwise
            and large
            and self._keeps_bits(op)
            and op.name not in self.kept
            and op.name not in self.in_sums
            and self.racing.isdisjoint((*op.inputs, *op.outputs))
            and not any(self._is_one_with(blob, op) for blob in op.inputs)
        )

    def _keeps_bits(self, op: Op) -> bool:
        """Whether an op gives by chunks of rows the bits that it gives of all."""
        shapes = [self.net.blobs[blob].shape for blob in (*op.inputs, *op.outputs)]
        wide = [shape for shape in shapes if shape is None or len(shape) > 1]
        lasts = [None if shape is None else shape[-1] for shape in wide]
        aligned = all(last is not None and (last == 1 or not last % COLUMNS) for last in lasts)
        return keeps_bits(self.net, op, aligned)

    def _is_one_with(self, blob: str, op: Op) -> bool:
        """Whether a graph optimizer might make one of the op and what is no elementwise op."""
        maker = self.net.producer.get(blob)
        if maker is None or maker.name in self.eligible or maker.type == "Const":
            return False
        return op.type not in _REPEATS and fan_out(self.net, blob) == 1 and may_fuse(maker, op)

    def _is_root(self, op: Op) -> bool:
        (blob,) = op.outputs
        return blob in self.net.outputs or any(
            one.name not in self.eligible and not is_keepalive(self.net, one)
            for one in self.net.readers.get(blob, ())
        )

    def _chain(self, root: Op) -> ElementwiseChain | None:
        """The chain of a root; None where it is none, or nothing would be gained."""
        if root.name not in self.eligible or not self._is_root(root):
            return None
        blob = self.net.blobs[root.outputs[0]]
        if blob.name in self.net.outputs or not is_float(blob):
            return None

        def makers(name: str) -> Iterator[str]:
            for one in self.net.op_by_name[name].inputs:
                maker = self.net.producer.get(one)
                if maker is not None and maker.name in self.eligible and not self._is_root(maker):
                    yield maker.name

        names = set(reached([root.name], makers))
        ops = [op for op in self.net.ops if op.name in names]
        alone = names.issuperset(name for op in ops for name in op.controls)
        if len(ops) < 2 or not alone or len({op.device for op in ops}) > 1:
            return None
        return self._measured(root, tuple(op.name for op in ops))

    def _measured(self, root: Op, names: tuple[str, ...]) -> ElementwiseChain | None:
        cut = cut_of(self.known, names)
        if cut is None or not cut.sliced:
            return None
        blob = self.net.blobs[root.outputs[0]]
        rows, size = (blob.shape or (0,))[0] or 0, blob.bytes or 0
        length = self._length(cut, rows, size)
        if not length:
            return None
        name, slot = min(cut.sliced, key=lambda one: (names.index(one[0]), one[1]))
        return ElementwiseChain(
            result=blob.name,
            ops=names,
            source=self.net.op_by_name[name].inputs[slot],
            rows=rows,
            length=length,
            bytes=size,
            between=len(names) - 1,
            seconds=self._seconds(cut, rows // length),
            line=str(root.source),
        )

    def _length(self, cut: Cut, rows: int, size: int) -> int:
        """Rows of a chunk, of which all are a multiple; 0: there is no such number."""
        wide = [product(one.shape).at(1) for one in cut.values.values() if isinstance(one, Rows)]
        unit = math.lcm(*(ALIGNED // math.gcd(ALIGNED, one or 1) for one in wide))
        fitting = [one for one in range(unit, int(MOST_PART * rows) + 1, unit) if not rows % one]
        small = [one for one in fitting if one * size <= CHUNK_BYTES * rows and one <= PART * rows]
        return max(small, default=min(fitting, default=0))

    def _seconds(self, cut: Cut, chunks: int) -> float:
        copied = {self.net.op_by_name[name].inputs[slot] for name, slot in cut.sliced}
        moved = sum(self.net.blobs[blob].bytes or 0 for blob in copied)
        moved += self.net.blobs[cut.ops[-1].outputs[0]].bytes or 0
        names = {op.name for op in cut.ops}
        again = sum(
            self.machine.seconds(self.net.op_by_name[name], self.net) for name in names & self.run
        )
        self.run |= names
        launched = chunks * (len(cut.ops) + 3 * len(copied)) * self.machine.launch_seconds
        copying = 2 * moved / self.machine.bytes_per_second
        return OWN_COST * (again + launched + copying)

    def _is_all(self, family: tuple[ElementwiseChain, ...]) -> bool:
        """Whether nobody outside of the chains needs what lies between, or waits for it."""
        inside = {name for chain in family for name in chain.ops}
        roots = {chain.result for chain in family}
        between = {self.net.op_by_name[name].outputs[0] for name in inside} - roots
        readers = [one for blob in between for one in self.net.readers.get(blob, ())]
        waiting = [op for op in self.net.ops if not inside.isdisjoint(op.controls)]
        return (
            inside.isdisjoint(self.net.control_outputs)
            and all(one.name in inside or is_keepalive(self.net, one) for one in readers)
            and all(one.name in inside or self._is_constant_of(one, inside) for one in waiting)
        )

    def _is_constant_of(self, op: Op, inside: Collection[str]) -> bool:
        """Whether the op is a constant that nobody but these ops reads, so that it goes too."""
        readers = [one for blob in op.outputs for one in self.net.readers.get(blob, ())]
        unread = op.outputs[0] not in self.net.outputs
        return op.type == "Const" and unread and all(one.name in inside for one in readers)


def _families(chains: list[ElementwiseChain]) -> Iterator[tuple[ElementwiseChain, ...]]:
    """The chains that share ops, together."""
    family: dict[str, int] = {}  # op -> its family, by number
    members: dict[int, list[ElementwiseChain]] = {}
    for number, chain in enumerate(chains):
        joined = {family[name] for name in chain.ops if name in family}
        members[number] = [*(one for old in sorted(joined) for one in members.pop(old)), chain]
        family.update((name, number) for one in members[number] for name in one.ops)
    yield from map(tuple, members.values())
