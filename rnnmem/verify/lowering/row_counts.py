"""That what a loop over chunks cuts has as many rows as its source, where only a run can tell.

A cut of fewer rows fails in the run. More are impossible where what the blob follows from, or an op
that reads it, allows no other number. Labels are as many as the rows that they are read with, so
they tell of what else is made of them:

    labels [?] ─► part ─► GatherV2(part of the logits)      in the loop: as many as the logits
       └──► mask [?] ─► d(losses) [?] ─► part               so these are as many, too
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rnnmem.analysis.row_rules import ONE_EACH, Dim, Given, Rows, Sizes, Value, as_many, rows_of
from rnnmem.analysis.shapes import Fact, KnownNet
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import TABLE, Work
from rnnmem.ir.order import reached
from rnnmem.verify.lowering.rows import LABELLED

_KEEPS_ROWS = ("ExpandDims", "Identity", "OneHot", "Reshape", "Squeeze")
"""Types that have the rows of their first input, or as many times as many."""

Cuts = Mapping[str, tuple[str, Dim]]
"""Part in the body -> the outer blob that it is cut of, and how many rows it has."""


class RowCounts:
    """What the ops of a loop's body allow of the parts that they read.

    Args:
      body: the loop's body.
      values: of its blobs.
      cuts: parts of blobs whose size only a run can tell.
      needed: the ops of the body that make what the loop hands outside.
    """

    def __init__(self, body: Net, values: Mapping[str, Value], cuts: Cuts, needed: Collection[Op]):
        self.body, self.values, self.cuts = body, values, cuts
        self.needed = {op.name for op in needed}

    def told(self, outer: KnownNet) -> dict[str, Value]:
        """Labels around the loop, which are as many as the rows that they are read with."""
        return {
            blob: rows_of(blob, shape, first)
            for part, (blob, first) in self.cuts.items()
            if (shape := outer.facts[blob].shape) and self._is_labels(part)
        }

    def unknown(self, outer: KnownNet, outside: Mapping[str, Value]) -> str | None:
        """A part of what may have another number of rows; None where none may.

        Args:
          outer: the Net around the loop.
          outside: what is known there from the rows of the source.
        """
        for part, (blob, first) in self.cuts.items():
            value, shape = outside.get(blob), outer.facts[blob].shape
            if isinstance(value, Rows) and value.shape[0] == first:
                continue
            if not shape or shape[0] is not None or not self._has_one_size(part):
                return part
        return None

    def _is_labels(self, blob: str) -> bool:
        """Whether an op, which the original runs too, takes one of them for each of its rows."""
        return any(
            op.name in self.needed
            and self._takes_one_each(op, blob)
            and self.cuts.keys().isdisjoint(reached(op.inputs[:1], self._read))
            for op in self.body.readers.get(blob, ())
        )

    def _takes_one_each(self, op: Op, blob: str) -> bool:
        uncounted = Given(Fact((None,)))
        read = [uncounted if one == blob else self.values.get(one, uncounted) for one in op.inputs]
        return op.type in ONE_EACH and op.inputs[1] == blob and 1 in as_many(op, read)

    def _read(self, blob: str) -> tuple[str, ...]:
        op = self.body.producer.get(blob)
        return () if op is None else op.inputs

    def _has_one_size(self, blob: str) -> bool:
        """Whether every op that reads the rows needs as many as the source has."""
        if blob in self.body.outputs:
            return False
        readers = self.body.readers.get(blob, ())
        return bool(readers) and all(self._fixes_size(reader, blob) for reader in readers)

    def _fixes_size(self, reader: Op, blob: str) -> bool:
        if reader.type in LABELLED:
            return reader.inputs.index(blob) == 1
        given = [self._verified(one) for one in reader.inputs if one != blob]
        if reader.type == "Reshape" and isinstance(given[0], Sizes):
            sizes = given[0].value
            return isinstance(sizes, tuple) and Dim(-1) not in sizes
        passes = reader.type in _KEEPS_ROWS or TABLE[reader.type].work is Work.POINTWISE
        alone = all(isinstance(one, Given) for one in given)
        return passes and alone and self._has_one_size(reader.outputs[0])

    def _verified(self, blob: str) -> Value | None:
        """What a blob of the body is, if that does not depend on rows that are being verified."""
        if not self.cuts.keys().isdisjoint(reached([blob], self._read)):
            return None
        return self.values.get(blob)
