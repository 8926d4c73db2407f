"""Lowering of joined slices' gradients: the original as if it put the same ones side by side.

    d_i ─► StridedSliceGrad of window i ─► AddN(..., other)
                                   is      d_i ─► ConcatV2 ─► AddN(other) ─► AddV2(0)

where the windows lie on one axis, have no element in common, and are what is joined, zeros standing
where no window is. Then each number is that of one part and zeros, one of them at least. Beside it
stands one other addend at most, or one other layer of such windows: two numbers may change places.
Where the rewritten Net does so is only a hint, which says where to look; what is shown is shown by
the original's own shapes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.analysis.slice_windows import Window, holes, layers, window
from rnnmem.ir.graph import REAL_DTYPES, Blob, Constant, Net, Op
from rnnmem.verify.lowering.memory import hidden_by
from rnnmem.verify.lowering.patterns import is_hinted, number

_SUM = "AddN"
_JOINED = "{}/rnnmem/joined"


def lower_original(original: Net, rewritten: Net) -> Net:
    """The original, with slices' gradients joined where those of the rewritten Net are.

    Args:
      original: the Net as imported.
      rewritten: what a rewrite made of it.
    """
    if not is_hinted(original, rewritten, _is_joined):
        return original
    return _lowered(original, known_net(original), rewritten)


def _is_joined(net: Net, op: Op, rewritten: Net, other: Op) -> bool:
    """Whether a sum of slices' gradients is joined in the rewritten Net."""
    return op.type == _SUM and _JOINED.format(op.name) in rewritten.op_by_name


def _lowered(net: Net, known: KnownNet, rewritten: Net) -> Net:
    ops: list[Op] = []
    blobs = dict(net.blobs)
    constants: dict[str, Op] = {}  # blob -> what makes it, of those that the sums share
    for op in net.ops:
        other = rewritten.op_by_name.get(op.name)
        if other is not None and _is_joined(net, op, rewritten, other):
            written = _Written(known, op, rewritten, other, constants)
            if written.shown():
                ops += written.ops
                blobs |= written.blobs
                continue
        nets = {
            label: _lowered(below, known.inner[op.name, label], other.nets[label])
            if other is not None and label in other.nets and (op.name, label) in known.inner
            else below
            for label, below in op.nets.items()
        }
        ops.append(op.replace(nets=nets) if nets else op)
    blobs |= {blob: rewritten.blobs[blob] for blob in constants}
    return net.replace(ops=(*constants.values(), *ops), blobs=blobs)


class _Written:
    """A sum of the original, written as the rewritten Net has it.

    Attributes:
      ops: those that stand in its place.
      blobs: those that the Net gets with them.
    """

    def __init__(
        self, known: KnownNet, total: Op, rewritten: Net, final: Op, constants: dict[str, Op]
    ):
        self.known, self.total, self.constants = known, total, constants
        self.rewritten, self.final = rewritten, final
        self.kind = known.net.blobs[total.outputs[0]]
        self.ops: list[Op] = []
        self.blobs: dict[str, Blob] = {}

    def shown(self) -> bool:
        """Whether the sum is what is joined; writes it."""
        parts = self._parts()
        others = [one for one in self.total.inputs if one not in parts]
        windows = sorted(parts.values(), key=lambda one: (one.start, one.end))
        groups = layers(windows)
        alike = len({(one.axis, one.size) for one in windows}) == 1
        distinct = len(set(self.total.inputs)) == len(self.total.inputs)
        if not alike or not distinct or len(groups) + len(others) > 2 or len(windows) < 2:
            return False
        if self.kind.dtype not in REAL_DTYPES:
            return False
        zero = self._zero(self._shown(self.final.inputs[1])) if self.final.type == "AddV2" else None
        total, *_ = self._made_of(self.final)
        several = len(groups) + len(others) > 1
        joined = self._made_of(total)[len(others) :] if several else [total]
        if zero is None or len(joined) != len(groups) or (several and total.type != _SUM):
            return False
        found = [
            self._layer([windows[at] for at in group], one)
            for group, one in zip(groups, joined, strict=True)
        ]
        layered = [one for one in found if one is not None]
        if len(layered) < len(found):
            return False
        made = self._add([*others, *layered], total) if several else layered[0]
        attributes = self.final.attributes
        self.ops.append(
            self.total.replace(type="AddV2", inputs=(made, zero), attributes=attributes)
        )
        names = {op.name for op in self.ops}
        new = self.known.net.op_by_name.keys().isdisjoint(names - {self.total.name})
        return new and len(names) == len(self.ops)

    def _parts(self) -> dict[str, Window]:
        """Blob that the sum reads -> its window, of those that the rewritten Net has no more."""
        found = {}
        for blob in self.total.inputs:
            op = self.known.net.producer.get(blob)
            put = None if op is None else window(self.known, op)
            if op is not None and put is not None and op.name not in self.rewritten.op_by_name:
                found[blob] = put
        return found

    def _made_of(self, op: Op) -> list[Op]:
        """The ops that make what an op of the rewritten Net reads, as far as there are such."""
        makers = (self.rewritten.producer.get(blob) for blob in op.inputs)
        return [op if one is None else one for one in makers]

    def _layer(self, windows: Sequence[Window], joined: Op) -> str | None:
        """Windows side by side, as the rewritten Net has them; None: it has others."""
        *pieces, axis = joined.inputs
        if joined.type != "ConcatV2" or len(pieces) != len(windows):
            return None
        placed = zip(windows, pieces, holes(windows), strict=True)
        read = [self._piece(*one) for one in placed]
        read.append(self._constant(self._shown(axis), windows[0].axis))
        return None if None in read else self._add(read, joined)

    def _piece(self, part: Window, piece: str, beside: tuple[int, int]) -> str | None:
        """What a part was given, with its axis and zeros beside it, as the rewritten Net has it."""
        shape = self.known.facts[part.given].shape
        if shape is None:
            return None
        rank = len(shape) + part.dropped
        around = tuple(beside if at == part.axis else (0, 0) for at in range(rank))
        steps: list[tuple[str, object]] = [("Pad", around)] if beside != (0, 0) else []
        if part.dropped:
            steps.append(("ExpandDims", part.axis))
        found: list[tuple[Op, str]] = []
        for type, value in steps:
            op = self.rewritten.producer.get(piece)
            constant = self._constant(op.inputs[1], value) if op and op.type == type else None
            if op is None or constant is None:
                return None
            found.append((op, constant))
            piece = op.inputs[0]
        blob = part.given
        for op, constant in reversed(found):
            blob = self._add([blob, constant], op)
        return blob

    def _shown(self, blob: str) -> str:
        """What is behind a barrier, if there is one."""
        while (op := self.rewritten.producer.get(blob)) is not None:
            if not (held := hidden_by(self.rewritten, op)):
                break
            blob = held
        return blob

    def _zero(self, blob: str) -> str | None:
        """The constant, if it is the zero that has no sign."""
        zero = number(self.rewritten, blob)
        positive = isinstance(zero, float) and zero == 0.0 and math.copysign(1.0, zero) == 1.0
        return self._copied(blob) if positive else None

    def _constant(self, blob: str, value: object) -> str | None:
        """The rewritten Net's constant, if it holds the value."""
        op = self.rewritten.producer.get(blob)
        held = op.attributes.get("value") if op is not None and op.type == "Const" else None
        right = isinstance(held, Constant) and value in (held.value, held.rows)
        return self._copied(blob) if right else None

    def _copied(self, blob: str) -> str | None:
        """A constant of the rewritten Net, which the original may have, too."""
        there = self.known.net.producer.get(blob)
        if there is not None:
            return blob if there.attributes == self.rewritten.producer[blob].attributes else None
        self.constants[blob] = self.rewritten.producer[blob].replace(controls=())
        return blob

    def _add(self, inputs: Sequence[str | None], like: Op) -> str:
        """Adds an op of the rewritten Net that reads what the original has."""
        (made,) = like.outputs
        read = tuple(one for one in inputs if one is not None)
        self.ops.append(like.replace(inputs=read, controls=()))
        self.blobs[made] = Blob(made, self.kind.dtype, None)
        return made
