"""Lowering of accumulated products: loops that add up items, as one batched product and its sum.

    sum = 0;  for i in first, first + step ... end: sum += x[i] @ y[i]

TensorFlow's kernel adds up fewer than 16 items one after another, and more in four sums of every
fourth item each, then what is left over (``TensorReduction.h``, Eigen). That the loops do the same
is shown on their ops; that factors and attributes are the original's is left to value numbering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rnnmem.analysis.shapes import known_net
from rnnmem.ir.graph import Blob, Constant, DType, Net, Op, Shape, static
from rnnmem.ir.marks import ITEMS
from rnnmem.ir.op_table import LOOPS
from rnnmem.ir.order import topological
from rnnmem.verify.errors import refused
from rnnmem.verify.lowering.overwriting import before_barrier
from rnnmem.verify.lowering.patterns import made_by, maker, number, variables

_PRODUCT, _SUM = "BatchMatMulV2", "Sum"
_LANES, _MANY = 4, 16
"""Sums side by side in the kernel, and the items from which on it has them."""
_AT_ONCE = 16
"""Numbers that a kernel adds at once at most; of what is left over it adds up otherwise."""
_MULTIPLICATIONS, _NARROW = 128 * 128, 64
"""Items of so few run side by side, and one that is not so much larger than long may be cut."""

Lane = tuple[bool, int, int, int]
"""Whether it goes on with the sum before; the first item, the end, and the step."""


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
        shapes = [known.facts[blob].shape for blob in product.inputs]
        over_items = known.facts[op.inputs[1]].value in (0, (0,))
        _demand(over_items and not op.attributes.get("keep_dims"), original, op.outputs[0])
        items = _items_that_keep_bits(original, product, shapes)
        sums = _Sums(net, before_barrier(net, now.outputs[0]))
        if items is None or sums.lanes != _lanes(items):
            sentence = f"{op.name!r} adds up items in another order"
            raise refused("items-not-understood", sentence, original, (op.name,))
        original = _summed(original, op, product.outputs[0], op.attributes)
        whole = f"{op.name}/items"
        made = sums.products[0].replace(name=whole, inputs=sums.factors[0], outputs=(f"{whole}:0",))
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


def _items_that_keep_bits(net: Net, product: Op, shapes: Sequence[Shape]) -> int | None:
    """How many items a product has, where each alone has the bits that it has among them."""
    if any(len(static(shape) or ()) != 3 for shape in shapes):
        return None
    (items, *x), (others, *y) = (static(shape) or () for shape in shapes)
    inner = x[0] if product.attributes.get("adj_x") else x[1]
    rows = x[1] if product.attributes.get("adj_x") else x[0]
    columns = y[0] if product.attributes.get("adj_y") else y[1]
    size = rows * columns
    alone = size * inner > _MULTIPLICATIONS and min(rows, inner, columns) > 1
    even = items < _MANY or not size % _AT_ONCE
    floats = net.blobs[product.outputs[0]].dtype in ("float32", "float64")
    fits = items == others and size >= _NARROW * inner
    return items if alone and even and floats and fits and items > 1 else None


class _Sums:
    """The sums that loops over items make, in the order in which they are added up.

    Attributes:
      lanes: what each adds up.
      products: what makes an item, of each loop.
      factors: the batches that each takes items of.
    """

    def __init__(self, net: Net, blob: str):
        self.net = net
        self.products: list[Op] = []
        self.factors: list[tuple[str, ...]] = []
        self.lanes = self._of(blob)
        alike = {tuple(op.attributes.items()) for op in self.products}
        _demand(len(set(self.factors)) == 1 == len(alike), self.net, blob)

    def _of(self, blob: str) -> tuple[Lane, ...]:
        """The sums that make a blob."""
        op = maker(self.net, blob)
        if op is not None and op.type == "AddV2":
            return (*self._of(op.inputs[0]), *self._of(op.inputs[1]))
        _demand(op is not None and op.type in LOOPS and ITEMS in op.attributes, self.net, blob)
        assert op is not None
        around = variables(op)
        _demand(len(around) == 5 and blob == around[2].final, self.net, blob)
        index, end, held, *factors = around
        self.factors.append(tuple(one.start for one in factors))
        self.products.append(_product(op.nets["body"]))
        places = (_whole(self.net, index.start), _whole(self.net, end.start), _step(op))
        if (zeros := made_by(self.net, held.start, "Fill")) is not None:
            _demand(number(self.net, zeros.inputs[1]) == 0, self.net, held.start)
            return ((False, *places),)
        return (*self._of(held.start), (True, *places))


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


def _product(body: Net) -> Op:
    """The product of one item of each factor, which is all that a loop's body adds to its sum."""
    index, end, held, *given = body.inputs
    added = _made(body, body.outputs[2], "AddV2")
    item = _made(body, added.inputs[1], "Reshape")
    product = _made(body, item.inputs[0], _PRODUCT)
    alike = added.inputs[0] == held and body.outputs[1] == end and [*body.outputs[3:]] == given
    _demand(alike and number(body, item.inputs[1]) == body.blobs[held].shape, body, held)
    for blob, factor in zip(product.inputs, given, strict=True):
        part = _made(body, blob, "Slice")
        begin = _made(body, part.inputs[1], "Pack")
        first = begin.inputs[0] == index and not begin.attributes.get("axis")
        zeros = [number(body, one) for one in begin.inputs[1:]] == [0, 0]
        one = part.inputs[0] == factor and number(body, part.inputs[2]) == (1, -1, -1)
        _demand(first and zeros and one, body, blob)
    known = {"AddV2", "BatchMatMulV2", "Const", "Pack", "Reshape", "Slice"}
    _demand({op.type for op in body.ops} <= known, body, body.outputs[2])
    return product
