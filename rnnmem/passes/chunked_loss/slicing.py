"""What becomes of each op near a projection when some rows are cut: rows, sizes, or a sum.

Other inputs are cut as an op needs them; what is as wide as the logits is not cut, but pulled in
among what runs by chunks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping

from rnnmem.analysis.row_rules import (
    ROW,
    RULES,
    Dim,
    Given,
    Rows,
    Sizes,
    Value,
    apply,
    apply_outside,
    as_many,
    product,
    resolved,
    rows_of,
    whole_numbers,
)
from rnnmem.analysis.shape_rules import Fact
from rnnmem.analysis.shapes import KnownNet
from rnnmem.ir.graph import Op
from rnnmem.ir.op_table import SAME_NUMBERS, slots, types
from rnnmem.ir.order import topological

_LABELLED = types("labelled")
_SHAPED = slots("sized")
_OF_ONE = types("rows")


class NoRegion(Exception):
    """Why a projection is left as it is, in words."""


class RowSlices:
    """What blobs are, in terms of the rows of one of them.

    Attributes:
      order: the ops of the Net, as they may run.
      source: the blob whose rows are cut.
      whole: how many it has; None where only a run can tell.
      values: of all blobs that depend on it.
      sliced: ``(op, input)`` -> first size of what is cut there.
      shaped: ``(op, input)`` -> the sizes that stand there for numbers of the whole.
      pulled: ops that run by chunks because what they make is wide.
      outside: ops that must be given all rows.
      labels: blobs that have as many rows as what they are read with, or that op fails.
    """

    def __init__(self, known: KnownNet, projection: Op, source: str):
        """Looks at every op that depends on the source."""
        self._known = known
        self.net = known.net
        self.order = known.net.of_ops(topological)
        self.projection = projection
        self.source = source
        shape = self._fact(source).shape
        if not shape:
            raise NoRegion(f"the rank of {source!r} is not known")
        self.whole = shape[0]
        self.labels: dict[str, Value] = {}
        told = -1
        while told < len(self.labels):  # labels tell of what else is made of them, ops before too
            told = len(self.labels)
            self._look({source: rows_of(source, shape, ROW), **self.labels})

    def _look(self, values: dict[str, Value]) -> None:
        """Looks at every op that depends on what is known."""
        self.values = values
        self.sliced: dict[tuple[str, int], Dim] = {}
        self.shaped: dict[tuple[str, int], Sizes] = {}
        self.pulled: set[str] = set()
        self.outside: set[str] = set()
        known_before = 0
        while known_before < len(self.values):  # what is pulled in tells of ops seen before
            known_before = len(self.values)
            for op in self.order:
                if any(blob in self.values for blob in op.inputs):
                    self._verify(op)

    def of(self, blob: str) -> Value:
        """What the blob is; a whole one where it does not depend on the source."""
        return self.values.get(blob) or Given(self._fact(blob))

    def _fact(self, blob: str) -> Fact:
        return self._known.facts.get(blob, Fact())

    def _verify(self, op: Op) -> None:
        """Finds what the op gives, with other inputs cut as it needs them."""
        if op.outputs and op.outputs[0] in self.values:
            return
        if op.type not in RULES:
            return
        values = [self.of(blob) for blob in op.inputs]
        own_classes = self._own_classes(op, values)
        told = as_many(op, values) | own_classes
        found = apply(op, values)
        if found is None or told or self._is_whole(op, values):
            values, cut, shaped = self._with_rows(op, values, told, own_classes)
            found = apply(op, values)
            if found is not None:
                self.sliced.update(cut)
                self.shaped.update(shaped)
                self.labels.update((op.inputs[at], one) for at, one in told.items())
        if found is None:
            found = apply_outside(op, [self.of(blob) for blob in op.inputs])
            if found is not None:
                self.outside.add(op.name)
        if found is not None:
            self.values.update(zip(op.outputs, found, strict=True))

    def _is_whole(self, op: Op, values: list[Value]) -> bool:
        """Whether the op is given the labels of all rows where it needs those of its own."""
        return op.type in _LABELLED and isinstance(values[0], Rows) and isinstance(values[1], Given)

    def _own_classes(self, op: Op, values: list[Value]) -> dict[int, Rows]:
        """Labels that count the rows, as where each row of a batch is a class of its own.

        A part of them begins with the number of its first row, other than the places in a part.
        """
        if not self._is_whole(op, values) or not self._counts(op.inputs[1]):
            return {}
        (rows, *_), labels = values, op.inputs[1]
        assert isinstance(rows, Rows)
        shape, first = self._fact(labels).shape, rows.shape[0]
        return {1: rows_of(labels, shape, first)} if shape == (first.at(self.whole),) else {}

    def _with_rows(
        self,
        op: Op,
        values: list[Value],
        told: Mapping[int, Rows],
        own_classes: Mapping[int, Rows],
    ):
        """The values with rows in place of whole blobs, as far as the op needs and has them."""
        cut: dict[tuple[str, int], Dim] = {}
        shaped: dict[tuple[str, int], Sizes] = {}
        values = list(values)
        for slot, first, exact in self._wanted(op, values):
            exact = exact or slot in told
            found = own_classes.get(slot) or self._rows(op.inputs[slot], first, exact)
            if found is not None:
                values[slot] = found
                if not isinstance(self.values.get(op.inputs[slot]), Rows):
                    cut[op.name, slot] = first
        slot = _SHAPED.get(op.type)
        if slot is not None and isinstance(values[slot], Given):
            sizes = self._sizes(op, values, slot)
            if sizes is not None:
                values[slot] = shaped[op.name, slot] = sizes
        return values, cut, shaped

    def _wanted(self, op: Op, values: list[Value]) -> Iterator[tuple[int, Dim, bool]]:
        """Inputs that must be cut: ``(input, its first size, whether it can be nothing else)``."""
        if op.type in _LABELLED:
            if isinstance(values[0], Rows) and isinstance(values[1], Given):
                shape = values[1].fact.shape
                if not (op.type.startswith("Softmax") and shape is not None and shape[:1] == (1,)):
                    yield 1, values[0].shape[0], True
        elif op.type == "Reshape":
            wanted = whole_numbers(values[1])
            shape = self._fact(op.inputs[0]).shape
            if isinstance(values[0], Given) and isinstance(wanted, tuple) and None not in wanted:
                if Dim(-1) in wanted:
                    return
                if shape and None not in shape[1:]:
                    first = product(wanted).over(product([Dim(size) for size in shape[1:]]))
                    if first is not None and first.rows == 1:
                        yield 0, first, True
        else:
            ranked = [one for one in values if isinstance(one, Rows)]
            if not ranked:
                return
            first, rank = ranked[0].shape[0], max(len(one.shape) for one in ranked)
            for slot, value in enumerate(values):
                shape = value.fact.shape if isinstance(value, Given) else None
                if shape is not None and len(shape) == rank and shape[0] != 1:
                    yield slot, first, False

    def _rows(self, blob: str, first: Dim, exact: bool, pull: bool = False) -> Rows | None:
        """A whole blob as rows: computed by chunks where it is wide or made of that, else cut."""
        shape = self._fact(blob).shape
        if not shape or (shape[0] is None and not exact):
            return None
        count = first.at(self.whole)
        if shape[0] is not None and count is not None and shape[0] != count:
            return None
        if shape[0] is not None and count is None:
            return None
        value = self.values.get(blob)
        if isinstance(value, Rows):
            return value
        if isinstance(value, Given):
            return rows_of(blob, shape, first)
        if value is not None:
            return None
        if pull or self._is_wide(shape) or self._counts(blob) or self._reads_wide(blob):
            pulled = self._pull(blob, first, pull)
            if pulled is not None:
                return pulled
        return rows_of(blob, shape, first)

    @functools.cached_property
    def _columns(self) -> int | None:
        shape = self._fact(self.projection.outputs[0]).shape
        return shape[-1] if shape else None

    @functools.cached_property
    def _elements(self) -> int | None:
        """Numbers of the logits, or of the part of them whose rows are cut."""
        source = self._fact(self.source).shape or ()
        cut = source[-1:] == (self._columns,)
        shape = source if cut else self._fact(self.projection.outputs[0]).shape
        return None if shape is None or None in shape else math.prod(shape)

    def _is_wide(self, shape) -> bool:
        if self._columns is None:
            return False
        flat = len(shape) == 1 and self.whole is not None and shape[0] == self._elements
        return flat or len(shape) > 1 and shape[-1] == self._columns

    def _reads_wide(self, blob: str) -> bool:
        op = self.net.producer.get(blob)
        return op is not None and any(
            self._is_wide(self._fact(one).shape or ()) for one in op.inputs
        )

    def _counts(self, blob: str) -> bool:
        """Whether the blob counts rows: 0, 1, 2, ... times a number."""
        op = self.net.producer.get(blob)
        while op is not None and (op.type in SAME_NUMBERS or op.type == "Cast" or op.type == "Mul"):
            op = next(
                (self.net.producer.get(one) for one in op.inputs if self._fact(one).shape != ()),
                None,
            )
        return op is not None and op.type == "Range"

    def _pull(self, blob: str, first: Dim, pull: bool) -> Rows | None:
        """What a wide blob's op gives from rows of what it reads; None: it is not pulled in."""
        op = self.net.producer.get(blob)
        if op is None or op.type not in RULES or len(op.outputs) != 1:
            return None
        values = [self.of(one) for one in op.inputs]
        cut: dict[tuple[str, int], Dim] = {}
        shaped: dict[tuple[str, int], Sizes] = {}
        for slot, size, exact in self._read_by_rows(op, first):
            counted = op.type == "UnsortedSegmentSum" and slot == 1
            counted = counted or (op.type == "Reshape" and pull)
            found = self._rows(op.inputs[slot], size, exact, pull=counted)
            if found is None:
                return None
            values[slot] = found
            if not isinstance(self.values.get(op.inputs[slot]), Rows):
                cut[op.name, slot] = size
        slot = _SHAPED.get(op.type)
        if slot is not None and isinstance(values[slot], Given):
            sizes = Sizes(first) if op.type == "Range" else self._sizes(op, values, slot)
            if sizes is not None:
                values[slot] = shaped[op.name, slot] = sizes
        found = apply(op, values)
        if found is None or not isinstance(found[0], Rows) or found[0].shape[0] != first:
            return None
        self.values[blob] = found[0]
        self.sliced.update(cut)
        self.shaped.update(shaped)
        self.pulled.add(op.name)
        return found[0]

    def _read_by_rows(self, op: Op, first: Dim) -> Iterator[tuple[int, Dim, bool]]:
        """Inputs of an op that must be cut so that it gives rows."""
        if op.type == "Fill" or op.type == "Range":
            return
        if op.type == "Reshape":
            before, after = (self._fact(one).shape for one in (op.inputs[0], op.outputs[0]))
            if before and after and None not in (*before[1:], *after[1:]):
                total = first * product([Dim(size) for size in after[1:]])
                size = total.over(product([Dim(size) for size in before[1:]]))
                if size is not None:
                    yield 0, size, True
            return
        if op.type == "UnsortedSegmentSum":
            count = self._fact(op.inputs[1]).shape
            places = self._fact(op.outputs[0]).shape
            if count and places and count[0] and places[0] and not places[0] % count[0]:
                size = first.over(Dim(places[0] // count[0]))
                if size is not None:
                    yield from ((0, size, True), (1, size, True))
            return
        rank = len(self._fact(op.outputs[0]).shape or ())
        shapes = [self._fact(one).shape for one in op.inputs]
        if op.type in _OF_ONE:
            yield 0, first, True
            return
        alike = [
            slot
            for slot, shape in enumerate(shapes)
            if shape is not None and len(shape) == rank and shape[0] != 1
        ]
        for slot in alike:
            yield slot, first, len(alike) == 1

    def _sizes(self, op: Op, values: list[Value], slot: int) -> Sizes | None:
        """What stands for numbers of the whole where the op is given some rows."""
        wanted = whole_numbers(values[slot])
        if op.type == "UnsortedSegmentSum":
            ids = values[1]
            if not isinstance(ids, Rows) or ids.ramp is None or not isinstance(wanted, Dim):
                return None
            found = ids.shape[0] * ids.ramp
            return Sizes(found) if found.at(self.whole) == wanted.number else None
        if (
            not isinstance(wanted, tuple)
            or None in wanted
            or not isinstance(values[0], Rows | Given)
        ):
            return None
        if self.whole is None or not wanted or wanted[0] == Dim(-1):
            return None
        if op.type == "Reshape" and isinstance(values[0], Rows):
            total = product(values[0].shape)
            numbers = resolved(Dim(total.at(self.whole) or 0), wanted)
            if numbers is None:
                return None
            first = total.over(product(numbers[1:]))
            wanted = numbers
        elif op.type == "BroadcastTo":
            first = self._first_of(values, wanted[0])
        else:
            return None
        if first is None or first.rows != 1 or first.at(self.whole) != wanted[0].number:
            return None
        return Sizes((first, *wanted[1:]))

    def _first_of(self, values: list[Value], size: Dim) -> Dim | None:
        """The rows of a broadcast: those of what it reads, or as many as the source's."""
        if isinstance(values[0], Rows):
            return values[0].shape[0]
        if not self.whole or size.number is None or size.number % self.whole:
            return None
        return Dim(size.number // self.whole) * ROW
