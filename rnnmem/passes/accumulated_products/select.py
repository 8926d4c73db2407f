"""Which batched products are added up item by item: large ones, whose sums keep their bits.

    x [n, a, k], y [n, k, b] ─► BatchMatMul ─► [n, a, b] ─► Sum over n ─► [a, b]

That is the gradient of a weight that a tensor of rank three was multiplied with; of a higher rank,
there are as many items as the first axes have together. TensorFlow's kernels multiply each item by
itself, however many there are, unless an item is so small that several run side by side, or so
narrow that one is cut along ``k``. Where sizes are open, those of a call decide whether it is worth
its time; a run with others, in which bits would not be kept, makes all items at once.

Loops hold what they read for longer than the product did, and a sum of three begins with an addend
that nobody holds: one that the product comes before waits for the loops, too.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator

from rnnmem.analysis.facts import Fact, vector
from rnnmem.analysis.machine import Machine
from rnnmem.analysis.shapes import KnownNet, filled, known_net
from rnnmem.grappler.item_sums import LANES, MANY, held_items, keeps_bits
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Op
from rnnmem.passes.accumulated_products.decision import AccumulatedProduct
from rnnmem.passes.decision import Step
from rnnmem.passes.straight_line.races import Races
from rnnmem.passes.straight_line.segments import Line
from rnnmem.simulate.timeline import counted_peak

PRODUCT = "BatchMatMulV2"
SUM = "Sum"
LEAST_BYTES = 1 << 20
"""That must be spared for a loop to be written."""
OPS_OF_AN_ITERATION = 24
"""Ops that the loop starts each time, those that TensorFlow makes of a loop among them."""
MOST_STARTING = 0.15
"""Part of the time of the products that starting these may take: a third of that of a step."""
MUCH = 0.25
"""Part of the step's peak for which starting may take more."""
MOST_FOR_MUCH = 2.0
"""Times as long as the products and their sum that starting may take then; kernels that hand out
small items one by one take so much longer than these are estimated."""


def decide(step: Step) -> tuple[AccumulatedProduct, ...]:
    """The products of a step to be added up item by item."""
    peak = functools.cache(functools.partial(counted_peak, step.in_call))
    found = products_of(known_net(step.net), step.machine, step.in_call, peak)
    return tuple(_in_order(found, step)) if found else ()


def _in_order(found: Iterable[AccumulatedProduct], step: Step) -> Iterator[AccumulatedProduct]:
    """Those that come before the sums that they race with, which are to wait for them."""
    races = Races(Line(step.shaped, step.sizes), step.machine.seconds)
    for one in found:
        awaiting = races.awaiting(one.product)
        if awaiting is not None:
            yield dataclasses.replace(one, awaiting=awaiting)


def products_of(
    known: KnownNet,
    machine: Machine,
    in_call: KnownNet | None = None,
    peak: Callable[[], int | None] = lambda: None,
) -> tuple[AccumulatedProduct, ...]:
    """The products of a Net that are to be added up item by item.

    Args:
      known: the whole step, inlined, with its shapes.
      machine: what estimates of time assume.
      in_call: the same with the shapes of a call, which tells the sizes that are open.
      peak: tells the bytes of the step's peak, where anybody knows them.
    """
    sized = in_call or known
    whole = functools.cache(lambda: filled(sized))
    launch = machine.launch_seconds

    def may_start(ops: float, product: Op, total: Op, size: int) -> bool:
        """Whether so many ops may start for products of so many bytes."""
        starting, taken = ops * launch, machine.seconds(product, whole())
        if starting <= MOST_STARTING * taken:
            return True
        most = MOST_FOR_MUCH * (taken + machine.seconds(total, whole()))
        return starting <= most and size >= MUCH * (peak() or math.inf)

    return tuple(one for op in known.net.ops for one in _decided(known, sized, op, may_start))


def _decided(
    known: KnownNet, sized: KnownNet, op: Op, may_start: Callable[[float, Op, Op, int], bool]
) -> Iterator[AccumulatedProduct]:
    net = known.net
    made = net.producer.get(op.inputs[0]) if op.type == SUM else None
    if made is None or made.type != PRODUCT or net.fan_out(made.outputs[0]) != 1:
        return
    if op.attributes.get("keep_dims") or op.device != made.device:
        return
    told, found = Product.of(known, made), Product.of(sized, made)
    if told is None or found is None or not isinstance(found.items, int):
        return
    if vector(known.facts.get(op.inputs[1], Fact())) != tuple(range(told.axes)):
        return
    dtype = net.blobs[made.outputs[0]].dtype
    if not all(one.keeps_bits(dtype) for one in (told, found)):
        return
    items, counted = found.items, told != found
    if counted and items < MANY:
        return
    item = found.rows * found.columns * BYTES_PER_ELEMENT[dtype]
    size = items * item
    if size < LEAST_BYTES:
        return
    for at_once in _widths(items):
        if may_start(items / at_once * OPS_OF_AN_ITERATION, made, op, size):
            if (items - held_items(items, at_once)) * item >= LEAST_BYTES:
                line = str(op.source or "")
                yield AccumulatedProduct(
                    made.name, op.name, items, size, line, counted=counted, at_once=at_once
                )
            return


def _widths(items: int) -> tuple[int, ...]:
    """How many items may be made at once, the best first: several take less time, and more room."""
    if items < MANY:
        return (1,)
    return (1, LANES) if items < held_items(items, LANES) * 4 else (LANES, 1)


@dataclasses.dataclass(frozen=True)
class Product:
    """The sizes of a batched product; None where only a run tells one.

    Attributes:
      axes: of the items: all but the last two.
      items: how many there are.
      rows: of an item.
      inner: the axis along which an item is summed.
      columns: of an item.
    """

    axes: int
    items: int | None
    rows: int
    inner: int | None
    columns: int

    @classmethod
    def of(cls, known: KnownNet, op: Op) -> Product | None:
        """Those of an op; None where its factors have not as many items each, or no known rows."""
        x, y = (known.facts.get(blob, Fact()).shape for blob in op.inputs)
        if x is None or y is None or len(x) != len(y) or len(x) < 3:
            return None
        (*items, a, b), (*others, c, d) = x, y
        rows, inner = (b, a) if op.attributes.get("adj_x") else (a, b)
        same, columns = (d, c) if op.attributes.get("adj_y") else (c, d)
        counts = [m if n is None else n for m, n in zip(items, others, strict=True)]
        if rows is None or columns is None or 1 in (*items, *others):
            return None
        if any(None not in pair and pair[0] != pair[1] for pair in zip(items, others, strict=True)):
            return None
        count = None if None in counts else math.prod(one or 0 for one in counts)
        return cls(len(items), count, rows, same if inner is None else inner, columns)

    def keeps_bits(self, dtype: str) -> bool:
        """Whether items alone add up to the bits of all of them, as far as sizes are told."""
        return keeps_bits(dtype, self.items, self.rows, self.inner, self.columns)
