"""Lowering of accumulated products: loops that add up items, as one batched product and its sum.

    sum = 0;  for i in first, first + step ... end: sum += x[i] @ y[i]

TensorFlow's kernel adds up fewer than 16 items one after another, and more in four sums of every
fourth item each, then what is left over (``TensorReduction.h``, Eigen). That the loops do the same
is shown on their ops; that factors and attributes are the original's is left to value numbering.

Where a run counts the items, loops add up the first n, and the original's ops what is left. It is
shown that n is all of them or none (`rnnmem.verify.lowering.counted_items`): a number times 1 where
inequalities hold and 0 elsewhere. The loops begin with -0 then, which is no addend at all, and a
sum of none is 0, to which a sum that begins so is brought as the kernel's is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.ir.graph import Blob, Constant, DType, Net, Op, Shape
from rnnmem.ir.marks import ITEMS
from rnnmem.ir.op_table import LOOPS
from rnnmem.ir.order import topological
from rnnmem.verify.errors import refused
from rnnmem.verify.lowering.counted_items import Counted, counted, operands, size_of
from rnnmem.verify.lowering.overwriting import before_barrier
from rnnmem.verify.lowering.patterns import made_by, maker, number, variables

_PRODUCT, _SUM = "BatchMatMulV2", "Sum"
_LANES, _MANY = 4, 16
"""Sums side by side in the kernel, and the items from which on it has them."""
_AT_ONCE = 16
"""Numbers that a kernel adds at once at most; of what is left over it adds up otherwise."""
_MULTIPLICATIONS, _NARROW = 128 * 128, 64
"""Items of so few run side by side, and one that is not so much larger than long may be cut."""

Lane = tuple[bool, int | str, int | str, int]
"""Whether it goes on with the sum before; the first item, the end, and the step.

Of the first item and the end a number, or the blob that tells it.
"""


def lower_accumulated_products(original: Net, net: Net) -> tuple[Net, Net]:
    """Two Nets of the same values, in which no items are added up by loops.

    Args:
      original: the Net as it was.
      net: the Net with such loops.

    Raises:
      CheckError: a loop is marked as one over items, and is not shown to add them up so.
    """
    if not any(ITEMS in op.attributes for op in net.ops):
        return original, net
    known = known_net(original)
    for op in original.ops:
        now = net.op_by_name.get(op.name)
        if op.type != _SUM or now is None or now.type == _SUM:
            continue
        product = _made(original, op.inputs[0], _PRODUCT)
        sizes = _Sizes.of(known, product)
        axes = tuple(range(sizes.axes))
        over_items = known.facts[op.inputs[1]].value in (axes, *axes[: sizes.axes == 1])
        _demand(over_items and not op.attributes.get("keep_dims"), original, op.outputs[0])
        sums = _Sums(net, before_barrier(net, now.outputs[0]), sizes)
        if not (sums.add_up_all if sums.left is None else sums.count_all)():
            sentence = f"{op.name!r} adds up items in another order"
            raise refused("items-not-understood", sentence, original, (op.name,))
        original = _summed(original, op, product.outputs[0], op.attributes)
        whole = f"{op.name}/items"
        made = sums.products[0].replace(name=whole, inputs=sums.given, outputs=(f"{whole}:0",))
        kind = Blob(f"{whole}:0", *_kind(original, product.outputs[0]))
        net = net.replace(ops=(*net.ops, made), blobs={**net.blobs, kind.name: kind})
        net = _summed(net, now.replace(type=_SUM), kind.name, op.attributes)
    return original, net


def _kind(net: Net, blob: str) -> tuple[str, Shape]:
    return net.blobs[blob].dtype, net.blobs[blob].shape


def _summed(net: Net, op: Op, items: str, attributes: Mapping[str, Any]) -> Net:
    """The Net in which an op adds up these items, over an axis that a constant gives."""
    axis = f"{op.name}/axis"
    value = Constant("int32", (1,), b"0", (0,))
    first = Op(axis, "Const", (), (f"{axis}:0",), {"dtype": DType("int32"), "value": value})
    total = op.replace(inputs=(items, f"{axis}:0"), attributes=attributes, controls=())
    ops = tuple(total if one.name == op.name else one for one in net.ops)
    blobs = {**net.blobs, f"{axis}:0": Blob(f"{axis}:0", "int32", (1,))}
    return net.replace(ops=topological((first, *ops)), blobs=blobs)


def _lanes(items: int) -> tuple[Lane, ...]:
    """How the kernel adds up so many items."""
    if items < _MANY:
        return ((False, 0, items, 1),)
    whole = items - items % _LANES
    lanes = tuple((False, lane, whole, _LANES) for lane in range(_LANES))
    return (*lanes, (True, whole, items, 1)) if whole < items else lanes


@dataclasses.dataclass(frozen=True)
class _Sizes:
    """What is known of the sizes of a batched product and of its factors, before any run.

    Attributes:
      dtype: of the product.
      items: of either factor: the sizes of all axes but the last two.
      rows: of an item.
      columns: of an item.
      inner: the axis along which an item is summed.
      inner_axis: which of the first factor's that is.
    """

    dtype: str
    items: tuple[tuple[int | None, ...], tuple[int | None, ...]]
    rows: int
    columns: int
    inner: int | None
    inner_axis: int

    @classmethod
    def of(cls, known: KnownNet, product: Op) -> _Sizes:
        """Those of a product of a Net."""
        first, second = (known.facts[blob].shape or () for blob in product.inputs)
        ranks = len(first) == len(second) > 2
        _demand(ranks, known.net, product.outputs[0])
        (*items, a, b), (*others, c, d) = first, second
        (rows, inner), at = ((b, a), -2) if product.attributes.get("adj_x") else ((a, b), -1)
        same, columns = (d, c) if product.attributes.get("adj_y") else (c, d)
        _demand(None not in (rows, columns), known.net, product.outputs[0])
        return cls(
            known.net.blobs[product.outputs[0]].dtype,
            (tuple(items), tuple(others)),
            rows or 0,
            columns or 0,
            same if inner is None else inner,
            len(first) + at,
        )

    @property
    def axes(self) -> int:
        """How many axes of the factors count items."""
        return len(self.items[0])

    @property
    def count(self) -> int | None:
        """How many items there are; None where only a run tells, or one factor is broadcast."""
        first, second = self.items
        return None if None in first or first != second else math.prod(one or 0 for one in first)

    @property
    def inner_sizes(self) -> tuple[int, int]:
        """The least and the largest axis along which an item alone is summed as among others."""
        size = self.rows * self.columns
        return max(2, _MULTIPLICATIONS // size + 1), size // _NARROW

    def keep_bits(self, few: bool) -> bool:
        """Whether an item alone has the bits that it has among all, if the inner size allows it."""
        even = few or not self.rows * self.columns % _AT_ONCE
        return even and min(self.rows, self.columns) > 1 and self.dtype in ("float32", "float64")


class _Sums:
    """The sums that loops over items make, in the order in which they are added up.

    Attributes:
      lanes: what each adds up.
      products: what makes an item, of each loop.
      factors: the batches that each takes items of.
      zeros: what the sums begin as: 1.0 where that is 0, -1.0 where it is -0.
      given: the factors of the whole product.
      left: what adds up the items that no loop does; None where loops add up all.
    """

    def __init__(self, net: Net, blob: str, sizes: _Sizes):
        self.net, self.sizes = net, sizes
        self.products: list[Op] = []
        self.factors: list[tuple[str, ...]] = []
        self.zeros: set[float] = set()
        top = made_by(net, blob, "AddV2")
        self.left = None if top is None else made_by(net, top.inputs[1], _SUM)
        self.lanes = self._of(blob if top is None or self.left is None else top.inputs[0])
        alike = {tuple(op.attributes.items()) for op in self.products}
        _demand(len(set(self.factors)) == 1 == len(alike), self.net, blob)
        self.given = tuple(map(self._given, self.factors[0]))

    def add_up_all(self) -> bool:
        """Whether they add up all items as the kernel does."""
        sizes = self.sizes
        if sizes.count is None or sizes.count < 2 or sizes.inner is None:
            return False
        least, most = sizes.inner_sizes
        fits = sizes.keep_bits(sizes.count < _MANY) and least <= sizes.inner <= most
        return fits and self.zeros == {1.0} and self.lanes == _lanes(sizes.count)

    def count_all(self) -> bool:
        """Whether they add up all as the kernel does or none, and the others are added up at once.

        The first of the kernel's sums is 0 and an item, as 0 and a sum from -0 on is; a sum of no
        items is 0, and -0 added to another changes nothing.
        """
        items = self.lanes[-1][2]
        whole = self.lanes[0][2]  # of fewer than 16 it is 0, as they are
        if not isinstance(items, str) or not isinstance(whole, str) or self.zeros != {-1.0}:
            return False
        lanes = tuple((False, lane, whole, _LANES) for lane in range(_LANES))
        ordered = self.lanes == (*lanes, (True, whole, items, 1)) and self._is_whole(whole, items)
        found, first = counted(self.net, items), self._first_left()
        if not ordered or found is None or first is None or found.above != first.above:
            return False
        x, y = self.given
        factor = self.factors[0][0]
        least, most = self.sizes.inner_sizes
        inner, inner_size = self.sizes.inner, (x, self.sizes.inner_axis)
        pairs = enumerate(zip(*self.sizes.items, strict=True))
        return (
            self.sizes.keep_bits(few=False)
            and found.size == (factor, 0)
            and first.size == (x, 0)
            and found.is_above((factor, 0), _MANY - 1)
            and (found.is_above(inner_size, least - 1) if inner is None else inner >= least)
            and (found.is_below(inner_size, most + 1) if inner is None else inner <= most)
            and all(
                found.are_equal((x, axis), (y, axis)) or (None not in pair and pair[0] == pair[1])
                for axis, pair in pairs
            )
        )

    def _is_whole(self, blob: str, items: str) -> bool:
        """Whether a blob is the items that the kernel adds up side by side, of many."""
        quarters = operands(self.net, blob, "Mul", _LANES)
        return quarters is not None and operands(self.net, quarters, "FloorDiv", _LANES) == items

    def _first_left(self) -> Counted | None:
        """The first item that is left, where all from it on are added up as in the original."""
        net, left, axes = self.net, self.left, self.sizes.axes
        assert left is not None
        over_items = number(net, left.inputs[1]) == tuple(range(axes))
        product = made_by(net, left.inputs[0], _PRODUCT)
        alike = product is not None and product.attributes == self.products[0].attributes
        if product is None or not alike or not over_items or left.attributes.get("keep_dims"):
            return None
        firsts = set()
        for blob, given in zip(product.inputs, self.given, strict=True):
            part = _made(net, blob, "Slice")
            begin = _made(net, part.inputs[1], "Pack")
            zeros = [number(net, one) for one in begin.inputs[1:]] == [0] * (axes + 1)
            to_the_end = number(net, part.inputs[2]) == (-1,) * (axes + 2)
            _demand(zeros and to_the_end and part.inputs[0] == given, net, blob)
            firsts.add(begin.inputs[0])
        return counted(net, firsts.pop()) if len(firsts) == 1 else None

    def _given(self, factor: str) -> str:
        """The factor of which a blob has all axes that count items as one."""
        if self.sizes.axes == 1:
            return factor
        as_one = _made(self.net, factor, "Reshape")
        shape = _made(self.net, as_one.inputs[1], "Pack")
        given = as_one.inputs[0]
        whole = self.net.blobs[given].shape or ()
        first, *others = shape.inputs
        for axis, blob in enumerate(others, start=self.sizes.axes):
            size = number(self.net, blob)
            same = size is not None and size == whole[axis]
            _demand(same or size_of(self.net, blob) == (given, axis), self.net, factor)
        _demand(number(self.net, first) == -1 and len(others) == 2, self.net, factor)
        return given

    def _of(self, blob: str) -> tuple[Lane, ...]:
        """The sums that make a blob."""
        op = maker(self.net, blob)
        if op is not None and op.type == "AddV2":
            return (*self._of(op.inputs[0]), *self._of(op.inputs[1]))
        if op is not None and op.type == "Reshape":
            return (self._row(op),)
        loop, places, width = self._loop(blob)
        _demand(width == 1, self.net, blob)
        if self._begins(loop):
            return ((False, *places),)
        return (*self._of(loop.inputs[2]), (True, *places))

    def _row(self, item: Op) -> Lane:
        """One of several sums that a loop makes side by side."""
        row = _made(self.net, item.inputs[0], "Slice")
        begin = number(self.net, row.inputs[1])
        lane = begin[0] if isinstance(begin, tuple) and begin[1:] == (0, 0) else -1
        whole = number(self.net, row.inputs[2]) == (1, -1, -1)
        shape = number(self.net, item.inputs[1]) == (self.sizes.rows, self.sizes.columns)
        loop, (first, end, step), width = self._loop(row.inputs[0])
        alike = width == step and first == 0 and 0 <= lane < width and self._begins(loop, width)
        _demand(whole and shape and alike, self.net, item.outputs[0])
        return (False, lane, end, step)

    def _loop(self, blob: str) -> tuple[Op, tuple[int | str, int | str, int], int]:
        """The loop that makes sums, which items it adds up, and how many at once."""
        op = maker(self.net, blob)
        _demand(op is not None and op.type in LOOPS and ITEMS in op.attributes, self.net, blob)
        assert op is not None
        around = variables(op)
        _demand(len(around) == 5 and blob == around[2].final, self.net, blob)
        index, end, _, *factors = around
        self.factors.append(tuple(one.start for one in factors))
        product, width = _product(op.nets["body"])
        self.products.append(product)
        return op, (_place(self.net, index.start), _place(self.net, end.start), _step(op)), width

    def _begins(self, loop: Op, width: int = 1) -> bool:
        """Whether a loop's sums, so many beside each other, begin as 0, or -0, which is noted."""
        zeros = made_by(self.net, loop.inputs[2], "Fill")
        if zeros is None:
            return False
        zero, shape = (number(self.net, blob) for blob in reversed(zeros.inputs))
        item = self.sizes.rows, self.sizes.columns
        _demand(zero == 0 and shape == (*(width,) * (width > 1), *item), self.net, loop.inputs[2])
        assert isinstance(zero, int | float)
        self.zeros.add(math.copysign(1.0, zero))
        return True


def _demand(holds: object, net: Net, blob: str) -> None:
    if not holds:
        source = net.producer.get(blob)
        names = () if source is None else (source.name,)
        raise refused("items-not-understood", f"{blob!r} is no sum of items", net, names)


def _made(net: Net, blob: str, type: str) -> Op:
    """The op that makes the blob, of this type."""
    op = made_by(net, blob, type)
    _demand(op, net, blob)
    assert op is not None
    return op


def _place(net: Net, blob: str) -> int | str:
    found = number(net, blob)
    return found if isinstance(found, int) else blob


def _whole(net: Net, blob: str) -> int:
    found = number(net, blob)
    _demand(isinstance(found, int), net, blob)
    assert isinstance(found, int)
    return found


def _step(loop: Op) -> int:
    """How far the number of the item goes on in each iteration."""
    body, cond = loop.nets["body"], loop.nets["cond"]
    more = _made(cond, cond.outputs[0], "Less")
    _demand(more.inputs == cond.inputs[:2] and len(cond.ops) == 1, cond, cond.outputs[0])
    following = _made(body, body.outputs[0], "AddV2")
    _demand(following.inputs[0] == body.inputs[0], body, body.outputs[0])
    return _whole(body, following.inputs[1])


def _product(body: Net) -> tuple[Op, int]:
    """The product of some items of each factor, all that a body adds to its sums; how many."""
    index, end, held, *given = body.inputs
    added = _made(body, body.outputs[2], "AddV2")
    item = made_by(body, added.inputs[1], "Reshape")
    product = _made(body, added.inputs[1] if item is None else item.inputs[0], _PRODUCT)
    alike = added.inputs[0] == held and body.outputs[1] == end and [*body.outputs[3:]] == given
    shape = body.blobs[held].shape
    _demand(alike and (item is None or number(body, item.inputs[1]) == shape), body, held)
    widths = set()
    for blob, factor in zip(product.inputs, given, strict=True):
        part = _made(body, blob, "Slice")
        begin = _made(body, part.inputs[1], "Pack")
        first = begin.inputs[0] == index and not begin.attributes.get("axis")
        zeros = [number(body, one) for one in begin.inputs[1:]] == [0, 0]
        size = number(body, part.inputs[2])
        whole = isinstance(size, tuple) and size[1:] == (-1, -1) and part.inputs[0] == factor
        widths.add(size[0] if isinstance(size, tuple) else 0)
        _demand(first and zeros and whole, body, blob)
    known = {"AddV2", "BatchMatMulV2", "Const", "Pack", "Reshape", "Slice"}
    _demand({op.type for op in body.ops} <= known, body, body.outputs[2])
    width = widths.pop()
    _demand(not widths and (item is None) == (width > 1), body, held)
    return product, width
