"""Finds a projection with its softmax loss, and what of it can run on some rows at a time.

    h [n, H] ─► MatMul ─► logits [n, V] ─► softmax loss ─► losses [n]        forward
     │            w                            │
     │   dw ◄─ MatMul ◄──────────── Mul ◄── backprop [n, V]                  gradient
     └──────── MatMul ─► dh [n, H]   └── gradient of losses [n]

A *region* is every op that reads or writes a blob as wide as the logits. All of them must work on
rows one by one (`rnnmem.analysis.row_rules`); what leaves the region is narrow (losses, dh), or a
sum over the rows (dw). The outer Net tells nothing of where a user's forward pass ends, and nothing
needs to know: where the gradient of the losses does not depend on the losses themselves, one loop
over chunks does forward and gradient together. Where it does (the mean over a number of tokens that
only a run can tell), a second loop computes the logits again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from rnnmem.analysis.row_rules import (
    Dim,
    Given,
    Partial,
    Rows,
    Sizes,
    Value,
    product,
    segments_stay_in_rows,
)
from rnnmem.analysis.shapes import KnownNet
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import MATRIX_PRODUCTS, SAME_NUMBERS, TABLE, OpFacts, Work, types
from rnnmem.ir.order import reached
from rnnmem.passes.chunked_loss.slicing import NoRegion, RowSlices

LOSSES = types("softmax") | types("cross_entropy")
"""Types that make a projection one onto a vocabulary."""

_NARROW = 8
"""How many times narrower than the logits a blob is at least that is handed on whole."""
_MOST_PHASES = 2
_MOST_SOURCES = 4


@dataclasses.dataclass(frozen=True)
class Phase:
    """One loop over chunks.

    Attributes:
      ops: names of the ops that its body runs, in order.
      rows: blobs that it hands outside, row by row.
      sums: blobs that it adds up over the chunks.
      controls: what it waits for.
    """

    ops: tuple[str, ...]
    rows: tuple[str, ...]
    sums: tuple[str, ...]
    controls: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Region:
    """What runs by chunks.

    Attributes:
      projection: the op that makes the logits.
      source: the blob whose rows are cut; its first size is ``n``.
      whole: how many rows it has; None where only a run can tell.
      values: of all blobs that depend on it.
      sliced: ``(op, input)`` -> first size of what is cut there.
      shaped: ``(op, input)`` -> the sizes that stand there for numbers of the whole.
      phases: the loops.
      ops: names of all its ops.
      sizes: blobs that follow from the number of rows and are read outside.
    """

    projection: str
    source: str
    whole: int | None
    values: Mapping[str, Value]
    sliced: Mapping[tuple[str, int], Dim]
    shaped: Mapping[tuple[str, int], Sizes]
    phases: tuple[Phase, ...]
    ops: frozenset[str]
    sizes: Mapping[str, Sizes]


def projections(net: Net) -> Iterator[Op]:
    """Products of a Net whose result, as it is or shaped otherwise, goes to a softmax."""
    for op in net.ops:
        if op.type in MATRIX_PRODUCTS and _reaches_loss(net, op):
            yield op


def _reaches_loss(net: Net, op: Op) -> bool:
    """Whether a softmax reads the product through ops that keep its elements."""

    def read_from(blob: str) -> Iterator[str]:
        readers = net.readers.get(blob, ())
        return (one for reader in readers if _is_elementwise(reader) for one in reader.outputs)

    read = reached(op.outputs[:1], read_from)
    return any(reader.type in LOSSES for blob in read for reader in net.readers.get(blob, ()))


def _is_elementwise(op: Op) -> bool:
    known = TABLE.get(op.type, OpFacts())
    return op.type in SAME_NUMBERS or op.type == "BiasAdd" or known.work is Work.POINTWISE


def sources(known: KnownNet, op: Op) -> list[str]:
    """Blobs whose rows might be cut for a product, the nearest first."""
    net, blob = known.net, op.inputs[0]
    found = [blob]
    while len(found) < _MOST_SOURCES:
        producer = net.producer.get(blob)
        if producer is None or not (
            producer.type in SAME_NUMBERS or producer.type == "Cast" or producer.type == "Transpose"
        ):
            break
        if producer.type == "Transpose":
            order = known.facts[producer.inputs[1]].value
            if not isinstance(order, tuple) or order != tuple(range(len(order))):
                break
        blob = producer.inputs[0]
        found.append(blob)
    return found


def find(known: KnownNet, projection: str, source: str | None = None) -> Region:
    """The region of a projection.

    Args:
      known: the Net with its shapes.
      projection: name of the product.
      source: the blob whose rows are cut; None: the first that will do.

    Raises:
      NoRegion: the projection cannot be run by chunks; says why.
    """
    op = known.net.op_by_name[projection]
    reasons = []
    for blob in sources(known, op) if source is None else [source]:
        try:
            return _Members(RowSlices(known, op, blob)).region()
        except NoRegion as error:
            reasons.append(error)
    raise reasons[-1]


class _Members:
    """The ops of a region, and the loops that run them."""

    def __init__(self, rows: RowSlices):
        self.rows, self.net, self.order = rows, rows.net, rows.order

    def region(self) -> Region:
        rows, ops = self.rows, self._ops()
        if not segments_stay_in_rows([self.net.op_by_name[one] for one in ops], rows.all()):
            raise NoRegion("rows are added up in places that other rows may have")
        return Region(
            projection=rows.projection.name,
            source=rows.source,
            whole=rows.whole,
            values=rows.values,
            sliced=rows.sliced,
            shaped=rows.shaped,
            phases=self._phases(ops),
            ops=frozenset(ops),
            sizes={blob: one for blob, one in self.sizes.items() if self._leaves(blob, set(ops))},
        )

    # --- which ops run by chunks

    def _ops(self) -> list[str]:
        """Names of the region's ops, in order."""
        logits = self.rows.values.get(self.rows.projection.outputs[0])
        if not isinstance(logits, Rows):
            raise NoRegion("its tokens cannot be distinguished")
        self.wide = self._wide(product(logits.shape))
        chosen = {
            op.name
            for op in self.order
            if any(blob in self.wide for blob in (*op.inputs, *op.outputs))
        }
        chosen |= self.rows.pulled
        while True:
            before = len(chosen)
            for op in [op for op in self.order if op.name in chosen]:
                self._demand_rows(op)
                chosen |= self._sizes_around(op)
            if len(chosen) == before:
                break
        self.sizes = self._known_sizes()
        ops = [op for op in self.order if op.name in chosen]
        if len({op.device for op in ops}) > 1:
            raise NoRegion("its ops stand on several devices")
        return [op.name for op in ops]

    def _wide(self, total: Dim) -> set[str]:
        """Blobs that hold as much as the logits."""
        wide = {self.rows.projection.outputs[0]}
        narrow: set[str] = set()  # what a product made narrow again, however large
        below = {self.rows.projection.outputs[0]}
        for op in self.order:
            read = [blob for blob in op.inputs if blob in below]
            if not read and op.name not in self.rows.pulled:
                continue
            below.update(op.outputs)
            contracts = op.type in MATRIX_PRODUCTS and isinstance(self.rows.of(op.inputs[1]), Given)
            large = [blob for blob in read if self._large(blob, total)]
            narrows = contracts or (large and narrow.issuperset(large))
            own = op is self.rows.projection or op.name in self.rows.pulled
            for blob in op.outputs:
                if self._large(blob, total):
                    (narrow if narrows and not own else wide).add(blob)
        return wide

    def _large(self, blob: str, total: Dim) -> bool:
        """Whether the blob's rows are about as wide as those of the logits, or wider."""
        value = self.rows.values.get(blob)
        if not isinstance(value, Rows):
            return False
        size = product(value.shape)
        shared = all(size.symbols.count(one) >= total.symbols.count(one) for one in total.symbols)
        return shared and _NARROW * size.factor >= total.factor

    def _demand_rows(self, op: Op) -> None:
        """Refuses an op that must see all rows."""
        if op.name in self.rows.outside or any(blob not in self.rows.values for blob in op.outputs):
            where = f" ({op.source})" if op.source else ""
            raise NoRegion(f"{op.type} {op.name!r}{where} reads the logits of all tokens")

    def _sizes_around(self, op: Op) -> set[str]:
        """Ops that must join an op, because what they give it is the size of a chunk."""
        found = set()
        for slot, blob in enumerate(op.inputs):
            value = self.rows.values.get(blob)
            counted = isinstance(value, Rows) and value.ramp is not None
            if (counted or isinstance(value, Sizes)) and (op.name, slot) not in self.rows.shaped:
                found.add(self.net.producer[blob].name)
        return found

    # --- the loops

    def _phases(self, ops: list[str]) -> tuple[Phase, ...]:
        chosen = set(ops)
        level = self._levels(chosen)
        last = max(level[name] for name in ops if self._is_wide_op(name))
        if last >= _MOST_PHASES:
            raise NoRegion("its gradient depends on its losses more than once")
        rows: list[list[str]] = [[] for _ in range(last + 1)]
        sums: list[list[str]] = [[] for _ in range(last + 1)]
        for name in filter(self._is_wide_op, ops):
            for blob in self.net.op_by_name[name].outputs:
                if self._leaves(blob, chosen) and blob not in self.sizes:
                    kind = self._exported(blob)
                    (sums if kind is Partial else rows)[level[name]].append(blob)
        exported = {blob for some in rows for blob in some}
        phases = []
        for number in range(last + 1):
            earlier = {blob for some in rows[:number] for blob in some}
            body = self._needed((*rows[number], *sums[number]), chosen, earlier & exported)
            if not body:
                continue
            phases.append(
                Phase(
                    ops=tuple(name for name in ops if name in body),
                    rows=tuple(rows[number]),
                    sums=tuple(sums[number]),
                    controls=self._controls(body, chosen),
                )
            )
        return tuple(phases)

    def _is_wide_op(self, name: str) -> bool:
        """Whether the op needs the logits; what only tells sizes runs beside the loops as well."""
        op = self.net.op_by_name[name]
        return any(blob in self.wide for blob in (*op.inputs, *op.outputs))

    def _known_sizes(self) -> dict[str, Sizes]:
        """Sizes that follow from the number of rows alone, so nothing need wait for a loop."""
        return {
            blob: value
            for blob, value in self.rows.values.items()
            if isinstance(value, Sizes)
            and blob in self.net.producer
            and all(
                set(dim.symbols) <= {"n"} and dim.rows <= 1
                for dim in (value.value if isinstance(value.value, tuple) else (value.value,))
            )
            and self.net.blobs[blob].dtype in ("int32", "int64")
        }

    def _levels(self, chosen: set[str]) -> dict[str, int]:
        """Op -> after how many loops over the chunks it can run."""
        level: dict[str, int] = {}
        producer = self.net.producer
        for op in self.order:
            found = 0
            inside = op.name in chosen
            waited = [
                producer[blob].name
                for blob in op.inputs
                if blob in producer and blob not in self.sizes
            ]
            for name in (*waited, *op.controls):
                step = 1 if name in chosen and not inside and self._is_wide_op(name) else 0
                found = max(found, level[name] + step)
            level[op.name] = found
        return level

    def _leaves(self, blob: str, chosen: set[str]) -> bool:
        readers = self.net.readers.get(blob, ())
        return blob in self.net.outputs or any(op.name not in chosen for op in readers)

    def _exported(self, blob: str) -> type[Value]:
        value = self.rows.values[blob]
        if isinstance(value, Partial):
            return Partial
        if blob in self.wide or not isinstance(value, Rows) or value.ramp is not None:
            readers = [op.name for op in self.net.readers.get(blob, ())]
            raise NoRegion(f"the logits, or as much, are read as a whole (by {readers[:1]})")
        return Rows

    def _needed(self, blobs: Iterable[str], chosen: set[str], there: set[str]) -> set[str]:
        """Ops that a loop must run for some of its results, given what is there already."""
        producer = self.net.producer

        def needs(name: str) -> Iterator[str]:
            read = (blob for blob in self.net.op_by_name[name].inputs if blob not in there)
            makers = (producer[blob].name for blob in read if blob in producer)
            return (maker for maker in makers if maker in chosen)

        return set(reached((producer[blob].name for blob in blobs), needs))

    def _controls(self, body: set[str], chosen: set[str]) -> tuple[str, ...]:
        found = dict.fromkeys(
            name
            for op in self.order
            if op.name in body
            for name in op.controls
            if name not in chosen
        )
        return tuple(found)
