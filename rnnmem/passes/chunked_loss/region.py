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

An *exact* region has only ops that give by chunks the bits of all rows (``bits`` in the op table).
It begins with the logits, which exist whole; the gradient that leaves it is written in their place,
and products and sums over rows read that, outside, as before. What XLA compiles
begins in front of the product, as it copies what a loop reads and writes; the gradient is whole.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rnnmem.analysis.row_rules import (
    ONE,
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
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net, Op
from rnnmem.ir.op_table import ASKS_SHAPE, MATRIX_PRODUCTS, SAME_NUMBERS
from rnnmem.ir.order import reached
from rnnmem.ir.overwriting import is_mask
from rnnmem.passes.chunked_loss.between import between, merges_constants
from rnnmem.passes.chunked_loss.exact import (
    COLUMNS,
    finishing_products,
    keeps_bits,
    makers_of_logits,
)
from rnnmem.passes.chunked_loss.levels import levels
from rnnmem.passes.chunked_loss.products import sources
from rnnmem.passes.chunked_loss.slicing import NoRegion, RowSlices

_NARROW = 8
"""How many times narrower than the logits a blob is at least that is handed on whole."""
_MOST_PHASES = 2


@dataclasses.dataclass(frozen=True)
class Phase:
    """One loop over chunks.

    Attributes:
      ops: names of the ops that its body runs, in order.
      rows: blobs that it hands outside, row by row.
      sums: blobs that it adds up over the chunks.
      controls: what it waits for.
      placed: the blob that is written in the place of the source; empty where none is.
    """

    ops: tuple[str, ...]
    rows: tuple[str, ...]
    sums: tuple[str, ...]
    controls: tuple[str, ...] = ()
    placed: str = ""


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
      owned: names of the ops that make the buffer which is written over.
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
    owned: tuple[str, ...] = ()

    def given(self, net: Net) -> frozenset[str]:
        """What its ops read that others make."""
        return frozenset(
            blob
            for name in self.ops
            for blob in net.op_by_name[name].inputs
            if blob not in net.producer or net.producer[blob].name not in self.ops
        )


def find(
    known: KnownNet,
    projection: str,
    source: str | None = None,
    exact: bool = False,
    compiled: bool = False,
) -> Region:
    """The region of a projection.

    Args:
      known: the Net with its shapes.
      projection: name of the product.
      source: the blob whose rows are cut; None: the first that will do.
      exact: whether no bit may change; its source is the logits.
      compiled: whether XLA compiles it; its source is what the product reads.

    Raises:
      NoRegion: the projection cannot be run by chunks; says why.
    """
    op = known.net.op_by_name[projection]
    reasons = []
    makers = makers_of_logits(known.net, op) if exact and not compiled else []
    tried = [one.outputs[0] for one in reversed(makers)] or sources(known, op)
    if makers:  # the fewest bytes first, of these before a mask, the nearest of these
        masked = _masked(known.net, makers)
        size = {one: BYTES_PER_ELEMENT[known.net.blobs[one].dtype] for one in tried}
        tried.sort(key=lambda one: (size[one], one in masked))
    for blob in tried if source is None else [source]:
        until = next((at for at, one in enumerate(makers, 1) if one.outputs[0] == blob), 0)
        owned = tuple(one.name for one in makers[:until])
        try:
            return _fewest_loops(RowSlices(known, op, blob), owned, exact)
        except NoRegion as error:
            reasons.append(error)
    raise reasons[0 if makers else -1]


def _masked(net: Net, makers: Sequence[Op]) -> frozenset[str]:
    """The results of a mask and behind it, where logits exist twice while it is made."""
    masks = (at for at, op in enumerate(makers) if any(is_mask(net, op, one) for one in op.inputs))
    return frozenset(op.outputs[0] for op in makers[next(masks, len(makers)) :])


def _fewest_loops(rows: RowSlices, owned: tuple[str, ...], exact: bool) -> Region:
    """The region, with narrow ops in it only where it has fewer loops then.

    Elsewhere they stand as before, beside those that TensorFlow fuses them with.
    """
    found, reasons = [], []
    members = _Members(rows, owned, exact)
    for joins in (False, True) if exact else (False,):
        try:
            found.append(members.region(joins))
            if len(found[0].phases) == 1:
                break
        except NoRegion as error:
            reasons.append(error)
    if not found:
        raise reasons[0]
    return min(found, key=lambda one: len(one.phases))


class _Members:
    """The ops of a region, and the loops that run them."""

    def __init__(self, rows: RowSlices, owned: tuple[str, ...], exact: bool):
        self.rows, self.net, self.order = rows, rows.net, rows.order
        self.owned, self.exact = owned, exact
        self.between: set[str] = set()  # narrow ops that wide ones wait for
        self.logits = rows.source if owned else rows.projection.outputs[0]

    def region(self, joins: bool) -> Region:
        """The region; with narrow ops in it, if those join."""
        rows, ops = self.rows, self._ops(joins)
        members = [self.net.op_by_name[one] for one in ops]
        read = {blob: rows.of(blob) for op in members for blob in op.inputs}
        if not segments_stay_in_rows(members, read):
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
            sizes={
                blob: one
                for blob, one in self.sizes.items()
                if self._leaves(blob, set(ops)) and not self._stays(blob, set(ops))
            },
            owned=self.owned,
        )

    # --- which ops run by chunks

    def _ops(self, joins: bool) -> list[str]:
        """Names of the region's ops, in order."""
        chosen = set(self._large_ones)
        self.between = self._between(chosen) if joins else set()
        chosen |= self.between
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

    @functools.cached_property
    def wide(self) -> set[str]:
        """Blobs that hold as much as the logits."""
        logits = self.rows.values.get(self.logits)
        if not isinstance(logits, Rows):
            raise NoRegion("its tokens cannot be distinguished")
        return self._wide(product(logits.shape))

    @functools.cached_property
    def _large_ones(self) -> set[str]:
        """Names of the ops on what holds as much as the logits that run by chunks."""
        made = {self.net.producer[blob].name for blob in self.wide if blob in self.net.producer}
        read = {op.name for blob in self.wide for op in self.net.readers.get(blob, ())}
        chosen = made | read | self.rows.pulled
        if not self.exact:
            return chosen
        chosen = self._without_handed_on(set(filter(self._keeps_bits, chosen)))
        return self._without_whole(chosen)

    def _keeps_bits(self, name: str) -> bool:
        """Whether the op gives by chunks the bits that it gives of all rows."""
        op, values = self.net.op_by_name[name], self.rows.values
        if name in self.rows.outside or any(blob not in values for blob in op.outputs):
            return False
        if any(isinstance(values[blob], Partial) for blob in op.outputs):
            return False
        own = not self.owned and op is self.rows.projection
        return own or (name not in self.owned and keeps_bits(self.net, op, not self._odd_columns))

    @property
    def _odd_columns(self) -> Dim | None:
        """Numbers of a row where kernels finish no row by itself; None where they do."""
        logits = self.rows.values[self.logits]
        assert isinstance(logits, Rows)
        columns = logits.shape[-1]
        odd = self.owned and (columns.symbols or columns.factor % COLUMNS)
        return columns if odd else None

    def _without_handed_on(self, chosen: set[str]) -> set[str]:
        """The ops but for those that show others outside the gradient in another form."""
        dtype = self.net.blobs[self.logits].dtype
        for op in reversed(self.order):
            if op.name in chosen and (op.type in SAME_NUMBERS or op.type == "Cast"):
                (blob,) = op.outputs
                narrows = op.type == "Cast" and self.net.blobs[blob].dtype == dtype
                readers = {one.name for one in self.net.readers.get(blob, ())}
                if self._gives_wide(op) and not narrows and readers.isdisjoint(chosen):
                    chosen.discard(op.name)
        return chosen

    def _without_whole(self, chosen: set[str]) -> set[str]:
        """The ops but for those not of the logits whose results exist whole anyway.

        What finishes another product in its buffer, with which TensorFlow fuses it, and another
        model's logits of which a softmax is made that must see all rows.
        """
        others = self.rows.pulled & chosen
        chosen = chosen - (others & self.net.once(finishing_products))
        for op in reversed(self.order):
            if op.name in others and any(self._leaves(blob, chosen) for blob in op.outputs):
                chosen.discard(op.name)
        return chosen

    def _between(self, chosen: set[str]) -> set[str]:
        """Narrow ops on rows on the way from op to op: without them there would be a loop each."""

        def joins(name: str) -> bool:
            values = [self.rows.values.get(blob) for blob in self.net.op_by_name[name].outputs]
            rows = all(isinstance(one, Rows) and one.ramp is None for one in values)
            bits = bool(values) and rows and self._keeps_bits(name)
            return bits and not merges_constants(self.net, self.net.op_by_name[name])

        return between(self.net, chosen, filter(self._is_wide_op, chosen), joins)

    def _gives_wide(self, op: Op) -> bool:
        return any(blob in self.wide for blob in op.outputs)

    def _wide(self, total: Dim) -> set[str]:
        """The same, of so many numbers."""
        wide = {self.logits}
        narrow: set[str] = set()  # what a product made narrow again, however large
        below = {self.logits}
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
        level = levels(self.order, self.net, chosen, self.sizes, self._is_wide_op)
        last = max((level[name] for name in ops if self._is_wide_op(name)), default=-1)
        if last < 0:
            raise NoRegion("none of what reads it can run on some rows")
        if last >= _MOST_PHASES:
            raise NoRegion("its gradient depends on its losses more than once")
        rows: list[list[str]] = [[] for _ in range(last + 1)]
        sums: list[list[str]] = [[] for _ in range(last + 1)]
        placed: list[list[str]] = [[] for _ in range(last + 1)]
        for name in filter(self._is_wide_op, ops):
            for blob in self.net.op_by_name[name].outputs:
                if self._leaves(blob, chosen) and blob not in self.sizes:
                    if self.exact and blob in self.wide:
                        placed[level[name]].append(blob)
                        continue
                    kind = self._exported(blob)
                    (sums if kind is Partial else rows)[level[name]].append(blob)
        if self.exact:
            self._demand_place(placed, chosen)
            if not any(rows):
                self._demand_use(ops, placed)
        if self.exact and not self.owned:  # what would be in its place leaves as rows do
            rows, placed = list(map(list.__add__, rows, placed)), [[] for _ in placed]
        exported = {blob for some in rows for blob in some}
        phases = []
        for number in range(last + 1):
            earlier = {blob for some in rows[:number] for blob in some}
            leaving = (*rows[number], *sums[number], *placed[number])
            body = self._needed(leaving, chosen, earlier & exported)
            if not body:
                continue
            phases.append(
                Phase(
                    ops=tuple(name for name in ops if name in body),
                    rows=tuple(rows[number]),
                    sums=tuple(sums[number]),
                    controls=self._controls(body, chosen),
                    placed="".join(placed[number]),
                )
            )
        return tuple(phases)

    def _demand_place(self, placed: list[list[str]], chosen: set[str]) -> None:
        """Refuses a gradient that cannot be written in the place of the logits, or be alone."""
        found = [blob for some in placed for blob in some]
        readers = self.net.readers.get(self.logits, ())
        whole = [op for op in readers if op.name not in chosen and op.type not in ASKS_SHAPE]
        odd = self._odd_columns
        if odd is not None and any(keeps_bits(self.net, op, True) for op in whole):
            raise NoRegion(
                f"a row has {odd.number or 'an unknown number of'} columns: by chunks kernels keep "
                f"the bits of multiples of {COLUMNS}"
            )
        if self.logits in self.net.outputs or whole:
            raise NoRegion(f"the logits are read as a whole (by {[op.name for op in whole][:1]})")
        if len(found) != len(placed[-1]) or len(found) > 1:
            raise NoRegion(f"as much as the logits is read as a whole ({found[:2]})")
        for blob in found if self.owned else ():
            alike = self.net.blobs[blob].dtype == self.net.blobs[self.logits].dtype
            here, there = (self.rows.values[one] for one in (blob, self.logits))
            assert isinstance(here, Rows) and isinstance(there, Rows)
            views = len(there.shape) > 2 and product(there.shape[1:-1]) == ONE  # rows of tokens
            same = here == there or (views and product(here.shape) == product(there.shape))
            if not alike or not same:
                raise NoRegion(f"{blob!r} is not as large as the logits")

    def _demand_use(self, ops: Iterable[str], placed: Iterable[Sequence[str]]) -> None:
        """Refuses ops that make one blob as wide as the logits, which another ends in anyway."""
        made = (blob for name in ops for blob in self.net.op_by_name[name].outputs)
        if self.wide.intersection(made) <= {blob for some in placed for blob in some}:
            raise NoRegion("nothing else as large as the logits is made row by row")

    def _is_wide_op(self, name: str) -> bool:
        """Whether the op needs the logits; what only tells sizes runs beside the loops as well."""
        op = self.net.op_by_name[name]
        return name in self.between or any(blob in self.wide for blob in (*op.inputs, *op.outputs))

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

    def _stays(self, blob: str, chosen: set[str]) -> bool:
        """Whether sizes are told by the shape of logits that are there anyway.

        Who asks for it keeps TensorFlow from fusing what makes them, as it did before.
        """
        op = self.net.producer[blob]
        if not self.owned or op.type in ASKS_SHAPE:
            return set(op.inputs) <= {self.logits} and bool(self.owned)
        made = [one for one in op.inputs if one in self.net.producer]
        inside = [one for one in made if self.net.producer[one].name in chosen]
        return all(one in self.sizes and self._stays(one, chosen) for one in inside)

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
