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
import functools
from collections.abc import Iterable, Iterator, Mapping

from rnnmem.analysis.row_rules import (
    ROW,
    RULES,
    Dim,
    Given,
    Partial,
    Rows,
    Sizes,
    Value,
    apply,
    apply_outside,
    product,
    resolved,
    rows_of,
    segments_stay_in_rows,
    whole_numbers,
)
from rnnmem.analysis.shape_rules import Fact
from rnnmem.analysis.shapes import KnownNet
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import (
    MATRIX_PRODUCTS,
    SAME_NUMBERS,
    TABLE,
    OpFacts,
    Work,
    slots,
    types,
)
from rnnmem.ir.order import topological

LOSSES = types("softmax") | types("cross_entropy")
"""Types that make a projection one onto a vocabulary."""

_LABELLED = types("labelled")
_SHAPED = slots("sized")
_OF_ONE = types("rows")
_NARROW = 8
"""How many times narrower than the logits a blob is at least that is handed on whole."""
_MOST_PHASES = 2
_MOST_SOURCES = 4


class NoRegion(Exception):
    """Why a projection is left as it is, in words."""


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
    pending, seen = [op.outputs[0]], set()
    while pending:
        for reader in net.readers.get(pending.pop(), ()):
            if reader.type in LOSSES:
                return True
            if _is_elementwise(reader) and reader.name not in seen:
                seen.add(reader.name)
                pending += reader.outputs
    return False


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
            return _Finder(known, op, blob).region()
        except NoRegion as error:
            reasons.append(error)
    raise reasons[-1]


class _Finder:
    def __init__(self, known: KnownNet, projection: Op, source: str):
        self.known = known
        self.net = known.net
        self.order = topological(known.net.ops)
        self.projection = projection
        self.source = source
        shape = self._fact(source).shape
        if not shape:
            raise NoRegion(f"the rank of {source!r} is not known")
        self.whole = shape[0]
        self.values: dict[str, Value] = {source: rows_of(source, shape, ROW)}
        self.sliced: dict[tuple[str, int], Dim] = {}
        self.shaped: dict[tuple[str, int], Sizes] = {}
        self.pulled: set[str] = set()
        self.outside: set[str] = set()  # ops that must be given all rows

    def region(self) -> Region:
        known = 0
        while known < len(self.values):  # what is pulled in may tell more of ops seen before
            known = len(self.values)
            for op in self.order:
                if any(blob in self.values for blob in op.inputs):
                    self._judge(op)
        ops = self._ops()
        if not segments_stay_in_rows([self.net.op_by_name[one] for one in ops], self._all_values()):
            raise NoRegion("rows are added up in places that other rows may have")
        return Region(
            projection=self.projection.name,
            source=self.source,
            whole=self.whole,
            values=self.values,
            sliced=self.sliced,
            shaped=self.shaped,
            phases=self._phases(ops),
            ops=frozenset(ops),
            sizes=self._sizes_outside(set(ops)),
        )

    def _fact(self, blob: str) -> Fact:
        return self.known.facts.get(blob, Fact())

    def _value(self, blob: str) -> Value:
        return self.values.get(blob) or Given(self._fact(blob))

    def _all_values(self) -> Mapping[str, Value]:
        return {blob: self._value(blob) for blob in self.net.blobs}

    # --- what becomes of each op when it is given some rows

    def _judge(self, op: Op) -> None:
        """Finds what the op gives, with other inputs cut as it needs them."""
        if op.outputs and op.outputs[0] in self.values:
            return
        if op.type not in RULES:
            return
        values = [self._value(blob) for blob in op.inputs]
        found = apply(op, values)
        if found is None or self._is_whole(op, values):
            values, cut, shaped = self._with_rows(op, values)
            found = apply(op, values)
            if found is not None:
                self.sliced.update(cut)
                self.shaped.update(shaped)
        if found is None:
            found = apply_outside(op, [self._value(blob) for blob in op.inputs])
            if found is not None:
                self.outside.add(op.name)
        if found is not None:
            self.values.update(zip(op.outputs, found, strict=True))

    def _is_whole(self, op: Op, values: list[Value]) -> bool:
        """Whether the op is given the labels of all rows where it needs those of its own."""
        return op.type in _LABELLED and isinstance(values[0], Rows) and isinstance(values[1], Given)

    def _with_rows(self, op: Op, values: list[Value]):
        """The values with rows in place of whole blobs, as far as the op needs and has them."""
        cut: dict[tuple[str, int], Dim] = {}
        shaped: dict[tuple[str, int], Sizes] = {}
        values = list(values)
        for slot, first, exact in self._wanted(op, values):
            found = self._rows(op.inputs[slot], first, exact)
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

    def _is_wide(self, shape) -> bool:
        return len(shape) > 1 and self._columns is not None and shape[-1] == self._columns

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
        values = [self._value(one) for one in op.inputs]
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

    # --- which ops run by chunks

    def _ops(self) -> list[str]:
        """Names of the region's ops, in order."""
        logits = self.values.get(self.projection.outputs[0])
        if not isinstance(logits, Rows):
            raise NoRegion("its tokens cannot be told apart")
        self.wide = self._wide(product(logits.shape))
        chosen = {
            op.name
            for op in self.order
            if any(blob in self.wide for blob in (*op.inputs, *op.outputs))
        }
        chosen |= self.pulled
        while True:
            before = len(chosen)
            for op in [op for op in self.order if op.name in chosen]:
                self._demand_rows(op)
                chosen |= self._sizes_around(op)
            if len(chosen) == before:
                break
        self.sizes = self._known_sizes(chosen)
        ops = [op for op in self.order if op.name in chosen]
        if len({op.device for op in ops}) > 1:
            raise NoRegion("its ops stand on several devices")
        return [op.name for op in ops]

    def _wide(self, total: Dim) -> set[str]:
        """Blobs that hold as much as the logits."""
        wide = {self.projection.outputs[0]}
        narrow: set[str] = set()  # what a product made narrow again, however large
        below = {self.projection.outputs[0]}
        for op in self.order:
            read = [blob for blob in op.inputs if blob in below]
            if not read and op.name not in self.pulled:
                continue
            below.update(op.outputs)
            contracts = op.type in MATRIX_PRODUCTS and isinstance(self._value(op.inputs[1]), Given)
            large = [blob for blob in read if self._large(blob, total)]
            narrows = contracts or (large and narrow.issuperset(large))
            own = op is self.projection or op.name in self.pulled
            for blob in op.outputs:
                if self._large(blob, total):
                    (narrow if narrows and not own else wide).add(blob)
        return wide

    def _large(self, blob: str, total: Dim) -> bool:
        """Whether the blob's rows are about as wide as those of the logits, or wider."""
        value = self.values.get(blob)
        if not isinstance(value, Rows):
            return False
        size = product(value.shape)
        shared = all(size.symbols.count(one) >= total.symbols.count(one) for one in total.symbols)
        return shared and _NARROW * size.factor >= total.factor

    def _demand_rows(self, op: Op) -> None:
        """Refuses an op that must see all rows."""
        if op.name in self.outside or any(blob not in self.values for blob in op.outputs):
            where = f" ({op.source})" if op.source else ""
            raise NoRegion(f"{op.type} {op.name!r}{where} reads the logits of all tokens")

    def _sizes_around(self, op: Op) -> set[str]:
        """Ops that must join an op, because what they give it is the size of a chunk."""
        found = set()
        for slot, blob in enumerate(op.inputs):
            held = isinstance(self.values.get(blob), Sizes) or self._is_counted(blob)
            if held and (op.name, slot) not in self.shaped:
                found.add(self.net.producer[blob].name)
        return found

    def _is_counted(self, blob: str) -> bool:
        value = self.values.get(blob)
        return isinstance(value, Rows) and value.ramp is not None

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

    def _known_sizes(self, chosen: set[str]) -> dict[str, Sizes]:
        """Sizes that follow from the number of rows alone, so nothing need wait for a loop."""
        return {
            blob: value
            for blob, value in self.values.items()
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

    def _sizes_outside(self, chosen: set[str]) -> dict[str, Sizes]:
        return {blob: one for blob, one in self.sizes.items() if self._leaves(blob, chosen)}

    def _leaves(self, blob: str, chosen: set[str]) -> bool:
        readers = self.net.readers.get(blob, ())
        return blob in self.net.outputs or any(op.name not in chosen for op in readers)

    def _exported(self, blob: str) -> type[Value]:
        value = self.values[blob]
        if isinstance(value, Partial):
            return Partial
        if blob in self.wide or not isinstance(value, Rows) or value.ramp is not None:
            readers = [op.name for op in self.net.readers.get(blob, ())]
            raise NoRegion(f"the logits, or as much, are read as a whole (by {readers[:1]})")
        return Rows

    def _needed(self, blobs: Iterable[str], chosen: set[str], there: set[str]) -> set[str]:
        """Ops that a loop must run for some of its results, given what is there already."""
        needed: set[str] = set()
        pending = [self.net.producer[blob].name for blob in blobs]
        while pending:
            name = pending.pop()
            if name in needed:
                continue
            needed.add(name)
            op = self.net.op_by_name[name]
            pending += [
                self.net.producer[blob].name
                for blob in op.inputs
                if blob in self.net.producer
                and self.net.producer[blob].name in chosen
                and blob not in there
            ]
        return needed

    def _controls(self, body: set[str], chosen: set[str]) -> tuple[str, ...]:
        found = dict.fromkeys(
            name
            for op in self.order
            if op.name in body
            for name in op.controls
            if name not in chosen
        )
        return tuple(found)
