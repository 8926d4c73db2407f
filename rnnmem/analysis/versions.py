"""Who reads what who wrote: Nets whose names are overwritten, each write a version of its own.

A Net that shares storages writes one name several times. Then the order of its ops has a meaning,
and a read means the last write before it:

    op         a = f(x)    b = g(a)    a = h(b)    c = k(a)
    writes     a, 1                    a, 2
    reads      x, 0        a, 1        b, 1        a, 2

The order that an executor must keep is what is read after what was written (data), control edges,
and for a name that is written again: its readers, and its writer, before the next writer (hazards).
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping

from rnnmem.errors import NetError
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.order import topological

OUTSIDE = -1
"""Stands for the op that wrote an input of the Net."""


@dataclasses.dataclass(frozen=True)
class SsaVersions:
    """The versions of a Net's names; ops are numbered in the order in which they run.

    Attributes:
      net: the Net.
      ops: its ops, in an order in which they may run.
      reads: op -> version per input slot.
      writes: op -> version per output slot.
      name: version -> name.
      writer: version -> op that writes it, or OUTSIDE.
      readers: version -> ops that read it, each once, in order.
      before: op -> ops that must have run before it starts, each once.
      versions: name -> its versions, oldest first.
    """

    net: Net
    ops: tuple[Op, ...]
    reads: tuple[tuple[int, ...], ...]
    writes: tuple[tuple[int, ...], ...]
    name: tuple[str, ...]
    writer: tuple[int, ...]
    readers: tuple[tuple[int, ...], ...]
    before: tuple[tuple[int, ...], ...]
    versions: Mapping[str, tuple[int, ...]]

    @functools.cached_property
    def after(self) -> tuple[tuple[int, ...], ...]:
        """Op -> ops that may start only once it has run."""
        found: list[list[int]] = [[] for _ in self.ops]
        for index, others in enumerate(self.before):
            for other in others:
                found[other].append(index)
        return tuple(map(tuple, found))

    def last(self, name: str) -> int:
        """The version that a name holds when the Net has run."""
        return self.versions[name][-1]

    def in_place(self, index: int) -> frozenset[tuple[int, int]]:
        """The ``(input slot, output slot)`` pairs of an op that are one name."""
        op = self.ops[index]
        if set(op.inputs).isdisjoint(op.outputs):
            return frozenset()
        return frozenset(
            (i, j)
            for i, read in enumerate(op.inputs)
            for j, written in enumerate(op.outputs)
            if read == written
        )


def overwrites(net: Net) -> bool:
    """Whether some name is written more than once, so that the order of the ops has a meaning."""
    written = [blob for op in net.ops for blob in op.outputs]
    return len({*written, *net.inputs}) < len(written) + len(set(net.inputs))


def ssa(net: Net) -> SsaVersions:
    """Finds the versions of a Net's names.

    Ops of a Net whose names are written once are put in order first; else the order is taken as it
    stands.

    Raises:
      NetError: the Net has a cycle, reads a name before it is written, waits for a later op, or has
        an op that writes one name twice; the message names the op.
    """
    return net.once(_history)


def _history(net: Net) -> SsaVersions:
    return _Reader(net, net.ops if overwrites(net) else topological(net.ops)).result()


def in_order(net: Net) -> Net:
    """The Net with its ops, at every depth, in an order in which they may run.

    Raises:
      NetError: see :func:`ssa`.
    """
    ops = []
    for op in ssa(net).ops:
        nets = {key: in_order(inner) for key, inner in op.nets.items()}
        same = all(nets[key] is inner for key, inner in op.nets.items())
        ops.append(op if same else op.replace(nets=nets))
    if all(map(operator.is_, ops, net.ops)):
        return net
    return net.replace(ops=tuple(ops))


class _Reader:
    def __init__(self, net: Net, ops: tuple[Op, ...]):
        self.net, self.ops = net, ops
        self.name: list[str] = []
        self.writer: list[int] = []
        self.readers: list[list[int]] = []
        self.versions: dict[str, list[int]] = {}

    def result(self) -> SsaVersions:
        for blob in dict.fromkeys(self.net.inputs):
            self._version(blob, OUTSIDE)
        number = {op.name: index for index, op in enumerate(self.ops)}
        reads, writes, before = [], [], []
        for index, op in enumerate(self.ops):
            reads.append(tuple(self._read(index, blob) for blob in op.inputs))
            needs = {self.writer[version]: None for version in reads[-1]}
            for control in op.controls:
                if control in number:
                    needs[self._earlier(index, number[control])] = None
            if len(set(op.outputs)) < len(op.outputs):
                raise NetError(f"op {op.name!r} writes one name twice: {', '.join(op.outputs)}")
            for blob in op.outputs:
                for version in self.versions.get(blob, ())[-1:]:
                    needs.update(dict.fromkeys(self.readers[version]))
                    needs[self.writer[version]] = None
            writes.append(tuple(self._version(blob, index) for blob in op.outputs))
            needs.pop(OUTSIDE, None)
            needs.pop(index, None)
            before.append(tuple(needs))
        for blob in self.net.outputs:
            if blob not in self.versions:
                raise NetError(f"output {blob!r} is written by no op and is no input")
        return SsaVersions(
            self.net,
            self.ops,
            tuple(reads),
            tuple(writes),
            tuple(self.name),
            tuple(self.writer),
            tuple(map(tuple, self.readers)),
            tuple(before),
            {blob: tuple(some) for blob, some in self.versions.items()},
        )

    def _version(self, blob: str, index: int) -> int:
        self.name.append(blob)
        self.writer.append(index)
        self.readers.append([])
        self.versions.setdefault(blob, []).append(len(self.name) - 1)
        return len(self.name) - 1

    def _read(self, index: int, blob: str) -> int:
        if blob not in self.versions:
            raise NetError(
                f"op {self.ops[index].name!r} reads {blob!r}, which is no input and is not "
                "written before it: a cycle, or ops in a wrong order"
            )
        version = self.versions[blob][-1]
        if self.readers[version][-1:] != [index]:
            self.readers[version].append(index)
        return version

    def _earlier(self, index: int, other: int) -> int:
        if other >= index:
            raise NetError(
                f"op {self.ops[index].name!r} waits for {self.ops[other].name!r}, which comes "
                "later: a cycle, or ops in a wrong order"
            )
        return other
