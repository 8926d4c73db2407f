"""Ops that never run: TensorFlow computes them before, once with another, or not at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from rnnmem.analysis.machine import COMPUTED, ONE_NUMBER, SMALL_CONSTANT
from rnnmem.analysis.shapes import KnownNet
from rnnmem.grappler.cse import Congruent
from rnnmem.ir.graph import Constant, Op
from rnnmem.ir.marks import DECODES, ENCODES
from rnnmem.ir.neutral import neutral_operand
from rnnmem.ir.op_table import (
    ASKS_SHAPE,
    BROADCASTS,
    MAY_RERUN,
    TABLE,
    UNIFORM,
    Work,
)


@dataclasses.dataclass(frozen=True)
class Simplified:
    """What TensorFlow's graph optimizer is taken to have found, where that is not sure.

    Attributes:
      dead_in_branches: that nobody reads some of what a branch hands out, so it leaves that out.
      equal_constants: that constants are equal, so that what is made of them is computed once.
    """

    dead_in_branches: bool = False
    equal_constants: bool = False


PLAIN = Simplified()


class Folding:
    """Which ops of one Net run; asked of each op once, in an order in which they may run.

    Attributes:
      constant: blobs that are computed once and for all.
    """

    def __init__(self, known: KnownNet, simplified: Simplified):
        self.constant: set[str] = set()
        self._known = known
        self._simplified = simplified
        self._uniform: set[str] = set()  # constants whose elements are all equal
        self._congruent = Congruent()
        self._shown: dict[str, str] = {}  # blob -> the one it is equal to that others go by

    def first_like(self, op: Op, slot: Mapping[str, int]) -> Op:
        """The first of the ops that TensorFlow computes once with this one, perhaps itself.

        Args:
          op: the op.
          slot: blob -> a number that blobs which are computed once have in common.
        """
        if op.type == "Identity" and not copies(op):
            self._shown[op.outputs[0]] = self._shown.get(op.inputs[0], op.inputs[0])
        if op.type not in MAY_RERUN:
            return op
        read = [self._shown.get(blob, blob) for blob in op.inputs]
        return self._congruent.first(op, [slot.get(blob, blob) for blob in read])

    def folds(self, op: Op) -> bool:
        """Whether TensorFlow computes the op once, when it optimizes the graph."""
        folded = self._is_computed(op)
        if folded:
            self.constant.update(op.outputs)
        return folded

    def stands_for(self, op: Op) -> str | None:
        """The blob that TensorFlow hands on instead of the op's result: times 1, or plus 0."""
        return neutral_operand(self._known.net, op, self._known.declared)

    def _is_computed(self, op: Op) -> bool:
        if op.type == "Const":
            held = op.attributes.get("value")
            if isinstance(held, Constant) and len(held.encoded) <= ONE_NUMBER:
                self._uniform.update(op.outputs)
            if self._simplified.equal_constants:
                self._shown[op.outputs[0]] = self._congruent.first(op, ()).outputs[0]
            return True
        if op.nets or op.type not in MAY_RERUN or not op.outputs:
            return False
        declared = self._known.declared
        if op.type in ASKS_SHAPE or op.type == "ZerosLike":
            read = [declared[blob].bytes for blob in op.inputs]
            return None not in read or self.constant.issuperset(op.inputs)
        if not op.inputs or not self.constant.issuperset(op.inputs):
            return False
        sizes = [size for blob in op.outputs if (size := declared[blob].bytes) is not None]
        if len(sizes) < len(op.outputs):
            return False
        if self._is_uniform(op):
            self._uniform.update(op.outputs)
            return True
        return sum(sizes) <= SMALL_CONSTANT

    def _is_uniform(self, op: Op) -> bool:
        """Whether an op of constants writes equal elements only: they are stored as one."""
        if op.type in UNIFORM:
            return True
        if TABLE[op.type].work is Work.POINTWISE:
            return self._uniform.issuperset(op.inputs)
        if op.controls or (self._known.declared[op.outputs[0]].bytes or 0) > COMPUTED:
            return False
        return (op.type in BROADCASTS or op.type == "Reshape") and op.inputs[0] in self._uniform


def copies(op: Op) -> bool:
    """Whether an Identity copies to another device, or back."""
    return ENCODES in op.attributes or DECODES in op.attributes
