"""Writes a sum of batched products as loops that add up one item after another.

    sum = 0
    While i < items:
        sum += x[i] @ y[i];  i += step

Many items have several such sums (`rnnmem.grappler.item_sums`), one loop after another each. The
result keeps the name of the sum, by which other sums are sorted.

Where only a run counts the items, loops add up all of them or none, and the original's ops those
that are left:

    n = items, where there are enough, and each alone keeps its bits; else 0
    sum of x[i] @ y[i] for i < n   +   Sum(x[n:] @ y[n:])

One of both is nothing: a sum of no items is 0, and the loops begin with -0, so that neither changes
a bit of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rnnmem.grappler.barrier import SHOWN, hidden
from rnnmem.grappler.item_sums import LANES, MANY, inner_sizes, lanes_of
from rnnmem.ir.builders import Encode, element, integer, made, number
from rnnmem.ir.control_flow import add_input, counted_loop
from rnnmem.ir.edges import Edge
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import Blob, DType, Net, Op, ShapeValue, static
from rnnmem.ir.marks import ITEMS, SIZES
from rnnmem.passes.accumulated_products.decision import AccumulatedProduct
from rnnmem.passes.accumulated_products.select import PRODUCT, SUM
from rnnmem.passes.decision import Context, await_no_more, planned_op
from rnnmem.passes.schedule.apply import with_edges

Lane = tuple[int | str, int | str, int]
"""The first item, the end, and the step; of the first two a number, or the blob that tells it."""


def apply(net: Net, products: Iterable[AccumulatedProduct], context: Context) -> Net:
    """The Net with these products added up item by item.

    Raises:
      NetError: a decision names an op that the Net does not have.
    """
    editor = NetEditor(net)
    edges = []
    for one in products:
        product = planned_op(editor, one.product, PRODUCT)
        total = planned_op(editor, one.total, SUM)
        items = _Items(editor, product, total, one.at_once, context.constant)
        done = items.write_counted() if one.counted else items.write(one.items)
        edges += [Edge(adding, None, done) for adding in one.awaiting]
    return with_edges(editor.net(), edges)


class _Items:
    """The loops over the items of one product, while these are written."""

    def __init__(self, editor: NetEditor, product: Op, total: Op, at_once: int, constant: Encode):
        self.editor, self.product, self.total = editor, product, total
        self.at_once, self.constant = at_once, constant
        made = editor.blobs[product.outputs[0]]
        assert made.shape is not None
        self.axes = len(made.shape) - 2
        self.kind = Blob(total.outputs[0], made.dtype, made.shape[-2:])
        self.given = [editor.resolve(blob) for blob in product.inputs]
        self.factors = [self._as_items(blob) for blob in self.given]

    def write(self, items: int) -> str:
        """Writes the loops, and takes out the sum and the product; the op that is done last."""
        return self._replace(self._added_up(lanes_of(items), 0.0))

    def write_counted(self) -> str:
        """The same where only a run tells how many items there are."""
        fits = self._fits()
        items = self._count("Mul", self._dim(self.factors[0], 0), fits)
        whole = self._count("Mul", self._count("FloorDiv", items, LANES), LANES)
        lanes: list[Lane] = [(lane, whole, LANES) for lane in range(LANES)]
        held = self._added_up([*lanes, (whole, items, 1)], -0.0)
        left = self._left(self._count("Mul", self._dim(self.given[0], 0), fits), held)
        return self._replace(self._added(held, left))

    def _added_up(self, lanes: Sequence[Lane], zero: float) -> str:
        """The sum of what the lanes add up: those of the kernel's sums, and what goes on."""
        controls = (*self.product.controls, *self.total.controls)
        after = (*map(self._there, self.product.inputs), *controls)
        held = ""
        if self.at_once > 1:
            held = self._side_by_side(lanes[0][1], self._zeros(zero, self.at_once, after))
        for lane, places in enumerate(lanes):
            if lane < LANES and self.at_once == 1:
                found = self._loop(lane, places, self._zeros(zero, 1, after))
                held = self._added(held, found) if held else found
                after = (held.rpartition(":")[0],)
            elif lane >= LANES:
                held = self._loop(lane, places, held)
        return held

    def _side_by_side(self, end: int | str, zeros: str) -> str:
        """What the kernel's sums add up, each of them a row of one buffer.

        Each row waits for the sum before: TensorFlow makes one of sums that nobody waits for.
        """
        sums = self._loop(0, (0, end, LANES), zeros)
        dtype, held = self.kind.dtype, ""
        for lane in range(LANES):
            row = self.editor.add(
                "Slice",
                (sums, self._number([lane, 0, 0]), self._number([1, -1, -1])),
                ((dtype, (1, *(self.kind.shape or ()))),),
                {"T": DType(dtype), "Index": DType("int32")},
                name="rnnmem/part",
                controls=(held.rpartition(":")[0],) if held else (),
                device=self.product.device,
            ).outputs[0]
            found = self._as_item(self.editor, row)
            held = self._added(held, found) if held else found
        return held

    def _replace(self, held: str) -> str:
        """Puts what was added up in the place of the sum; the op that makes it."""
        editor, total = self.editor, self.total
        await_no_more(editor, total)
        await_no_more(editor, self.product)
        editor.remove(total.name)
        editor.remove(self.product.name)
        kind = editor.blobs[total.outputs[0]]
        shown = hidden(
            editor,
            held,
            kind.shape,
            name=total.name,
            stands_for=total.outputs[0],
            optional=True,
            kind=kind,
        )
        editor.rename(total.outputs[0], shown)
        return shown.rpartition(":")[0]

    # --- sizes

    def _as_items(self, blob: str) -> str:
        """The factor with all of its first axes as one."""
        if self.axes == 1:
            return blob
        kind = self.editor.blobs[blob]
        assert kind.shape is not None
        dims = [
            self._dim(blob, self.axes + at) if size is None else self._number(size)
            for at, size in enumerate(kind.shape[-2:])
        ]
        kinds = {"T": "int32", "N": 3, "axis": 0}
        read = (self._number(-1), *dims)
        shape = made(self.editor, "Pack", read, "int32", (3,), "rnnmem/pack", **kinds)
        kinds = {"T": kind.dtype, "Tshape": "int32"}
        items = (None, *kind.shape[-2:])
        return made(
            self.editor, "Reshape", (blob, shape), kind.dtype, items, "rnnmem/items_of", **kinds
        )

    def _number(self, value: object) -> str:
        return number(self.editor, value, self.constant)

    def _count(self, type: str, first: str, second: str | int) -> str:
        other = second if isinstance(second, str) else self._number(second)
        return integer(self.editor, type, first, other)

    def _dim(self, blob: str, axis: int) -> str:
        """The size of an axis, as a run has it."""
        kind = self.editor.blobs[blob]
        rank = len(kind.shape or ())
        kinds = {"T": kind.dtype, "out_type": "int32"}
        shape = made(self.editor, "Shape", (blob,), "int32", (rank,), SIZES, **kinds)
        return element(self.editor, shape, self._number(axis), self.constant)

    def _fits(self) -> str:
        """1 where there are enough items, as many of both, and each keeps its bits; else 0."""
        x, y = self.given
        found = self._above(self._dim(self.factors[0], 0), MANY - 1)
        for axis in range(self.axes):  # of different sizes one is broadcast
            one, other = self._dim(x, axis), self._dim(y, axis)
            for more, less in ((one, other), (other, one)):
                found = self._count("Mul", found, self._above(self._count("AddV2", more, 1), less))
        least, most = inner_sizes(*static(self.kind.shape) or ())
        inner = self._dim(x, self.axes + (not self.product.attributes.get("adj_x")))
        for fits in (self._above(inner, least - 1), self._above(self._number(most + 1), inner)):
            found = self._count("Mul", found, fits)
        return found

    def _above(self, first: str, second: str | int) -> str:
        """1 where a whole number is above another, else 0."""
        more = self._count("Maximum", self._count("Sub", first, second), 0)
        return self._count("Minimum", more, 1)

    # --- ops

    def _left(self, first: str, after: str) -> str:
        """The sum of the items from one on, made at once as in the original."""
        editor, product = self.editor, self.product
        begin = (first, *[self._number(0)] * (self.axes + 1))
        kinds = {"T": "int32", "N": len(begin), "axis": 0}
        begins = made(editor, "Pack", begin, "int32", (len(begin),), "rnnmem/pack", **kinds)
        sizes = self._number([-1] * len(begin))
        parts = []
        for blob in self.given:
            kind = editor.blobs[blob]
            kinds = {"T": kind.dtype, "Index": "int32"}
            shape = (None, *(kind.shape or ())[1:])
            read = (blob, begins, sizes)
            parts.append(made(editor, "Slice", read, kind.dtype, shape, "rnnmem/part", **kinds))
        kind = editor.blobs[product.outputs[0]]
        attributes = {key: one for key, one in product.attributes.items() if key != "_class"}
        items = editor.add(
            product.type,
            parts,
            ((kind.dtype, (None, *(kind.shape or ())[1:])),),
            attributes,
            name=product.name,
            controls=(after.rpartition(":")[0],),
            device=product.device,
            source=product.source,
        ).outputs[0]
        kinds = {"T": kind.dtype, "Tidx": "int32", "keep_dims": False}
        over = self._number(list(range(self.axes)))
        return made(editor, SUM, (items, over), kind.dtype, self.kind.shape, "rnnmem/left", **kinds)

    def _there(self, blob: str) -> str:
        """The op to wait for until the blob is there; nothing that makes it is waited for."""
        blob = self.editor.resolve(blob)
        kind = self.editor.blobs[blob]
        attributes = {"dtype": DType(kind.dtype), "shape": ShapeValue(None)}
        results = ((kind.dtype, kind.shape),)
        device = self.product.device
        return self.editor.add(
            SHOWN, (blob,), results, attributes, name="rnnmem/there", device=device
        ).name

    def _zeros(self, value: float, width: int, after: tuple[str, ...]) -> str:
        """Where a sum begins; behind what it waits for, or it would exist from the beginning."""
        kind, shape = self.kind, self._shape(width)
        zero = number(self.editor, value, self.constant, "rnnmem/zero", kind.dtype)
        return self.editor.add(
            "Fill",
            (self._number(list(shape)), zero),
            ((kind.dtype, shape),),
            {"T": DType(kind.dtype), "index_type": DType("int32")},
            name="rnnmem/zeros",
            controls=after,
            device=self.product.device,
        ).outputs[0]

    def _shape(self, width: int) -> tuple[int, ...]:
        """The shape of one sum, or of several beside each other."""
        item = static(self.kind.shape) or ()
        return item if width == 1 else (width, *item)

    def _loop(self, lane: int, places: Lane, start: str) -> str:
        """What is added up of the items from the first to the end, in steps."""
        first, end, step = places
        starts = [one if isinstance(one, str) else self._number(one) for one in (first, end)]
        starts += [start, *self.factors]
        body = NetEditor(Net("rnnmem_item", (), (), (), {}))
        index, most, held, *factors = (add_input(body, self.editor.blobs[one]) for one in starts)
        following = integer(body, "AddV2", index, number(body, step, self.constant))
        shape = body.blobs[held].shape or ()
        width = self.at_once if len(shape) == 3 else 1
        item = self._items(body, [self._part(body, index, one, width) for one in factors], width)
        item = item if width > 1 else self._as_item(body, item)
        dtype = self.kind.dtype
        read = (held, item)
        added = made(body, "AddV2", read, dtype, shape, "rnnmem/item_sum", T=dtype)
        body.outputs = [following, most, added, *factors]
        loop = counted_loop(
            self.editor,
            starts,
            body,
            (0, 1),
            {ITEMS: lane},
            name="rnnmem/items",
            source=self.product.source,
        )
        return loop.outputs[2]

    def _part(self, body: NetEditor, index: str, factor: str, width: int) -> str:
        """Some items of a factor, as a batch."""
        kind = body.blobs[factor]
        none = number(body, 0, self.constant)
        begin = made(
            body, "Pack", (index, none, none), "int32", (3,), "rnnmem/pack", T="int32", N=3, axis=0
        )
        read = (factor, begin, number(body, [width, -1, -1], self.constant))
        shape = (width, *(kind.shape or ())[1:])
        kinds = {"T": kind.dtype, "Index": "int32"}
        return made(body, "Slice", read, kind.dtype, shape, "rnnmem/part", **kinds)

    def _items(self, body: NetEditor, factors: list[str], width: int) -> str:
        """The product of some items of each factor."""
        op, kind = self.product, self.kind
        attributes = {key: one for key, one in op.attributes.items() if key != "_class"}
        return body.add(
            op.type,
            factors,
            ((kind.dtype, (width, *(kind.shape or ()))),),
            attributes,
            name=op.name,
            device=op.device,
            source=op.source,
        ).outputs[0]

    def _as_item(self, net: NetEditor, batch: str) -> str:
        """The one item of a batch."""
        kind = self.kind
        read = (batch, number(net, list(kind.shape or ()), self.constant))
        kinds = {"T": kind.dtype, "Tshape": "int32"}
        return made(net, "Reshape", read, kind.dtype, kind.shape, "rnnmem/item", **kinds)

    def _added(self, one: str, other: str) -> str:
        dtype, shape = self.kind.dtype, self.kind.shape
        kind = {"T": dtype}
        return made(self.editor, "AddV2", (one, other), dtype, shape, "rnnmem/item_sum", **kind)
