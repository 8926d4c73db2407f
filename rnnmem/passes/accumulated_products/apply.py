"""Writes a sum of batched products as loops that add up one item after another.

    sum = 0
    While i < items:
        sum += x[i] @ y[i];  i += step

Many items have several such sums (`rnnmem.grappler.item_sums`), one loop after another each. The
result keeps the name of the sum, by which other sums are sorted.
"""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.grappler.barrier import SHOWN, hidden
from rnnmem.grappler.item_sums import lanes_of
from rnnmem.ir.builders import Encode, integer, made, number
from rnnmem.ir.control_flow import add_input, counted_loop
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import Blob, DType, Net, Op, ShapeValue
from rnnmem.ir.marks import ITEMS
from rnnmem.passes.accumulated_products.decision import AccumulatedProduct
from rnnmem.passes.accumulated_products.select import PRODUCT, SUM
from rnnmem.passes.decision import await_no_more, planned_op


def apply(net: Net, products: Iterable[AccumulatedProduct], constant: Encode) -> Net:
    """The Net with these products added up item by item.

    Raises:
      NetError: a decision names an op that the Net does not have.
    """
    editor = NetEditor(net)
    for one in products:
        product = planned_op(editor, one.product, PRODUCT)
        total = planned_op(editor, one.total, SUM)
        _Items(editor, product, total, one.items, constant).write()
    return editor.net()


class _Items:
    """The loops over the items of one product, while these are written."""

    def __init__(self, editor: NetEditor, product: Op, total: Op, items: int, constant: Encode):
        self.editor, self.product, self.total = editor, product, total
        self.items, self.constant = items, constant
        made = editor.blobs[product.outputs[0]]
        assert made.shape is not None
        self.kind = Blob(total.outputs[0], made.dtype, made.shape[1:])

    def write(self) -> None:
        """Writes the loops, and takes out the sum and the product."""
        editor, total = self.editor, self.total
        controls = (*self.product.controls, *total.controls)
        after = (*map(self._there, self.product.inputs), *controls)
        held = ""
        for lane, (first, end, step) in enumerate(lanes_of(self.items)):
            goes_on = step == 1 and bool(held)
            start = held if goes_on else self._zeros(after)
            found = self._loop(lane, (first, end, step), start)
            held = found if goes_on or not held else self._added(held, found)
            after = (held.rpartition(":")[0],)
        await_no_more(editor, total)
        await_no_more(editor, self.product)
        editor.remove(total.name)
        editor.remove(self.product.name)
        shown = hidden(
            editor,
            held,
            self.kind.shape,
            name=total.name,
            stands_for=total.outputs[0],
            optional=True,
            kind=self.kind,
        )
        editor.rename(total.outputs[0], shown)

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

    def _zeros(self, after: tuple[str, ...]) -> str:
        """Where a sum begins; behind what it waits for, or it would exist from the beginning."""
        kind = self.kind
        zero = number(self.editor, 0.0, self.constant, "rnnmem/zero", kind.dtype)
        return self.editor.add(
            "Fill",
            (number(self.editor, list(kind.shape or ()), self.constant), zero),
            ((kind.dtype, kind.shape),),
            {"T": DType(kind.dtype), "index_type": DType("int32")},
            name="rnnmem/zeros",
            controls=after,
            device=self.product.device,
        ).outputs[0]

    def _loop(self, lane: int, places: tuple[int, int, int], start: str) -> str:
        """What is added up of the items from the first to the end, in steps."""
        first, end, step = places
        starts = [number(self.editor, place, self.constant) for place in (first, end)]
        starts += [start, *map(self.editor.resolve, self.product.inputs)]
        body = NetEditor(Net("rnnmem_item", (), (), (), {}))
        index, most, held, *factors = (add_input(body, self.editor.blobs[one]) for one in starts)
        following = integer(body, "AddV2", index, number(body, step, self.constant))
        item = self._item(body, [self._part(body, index, one) for one in factors])
        kind = {"T": self.kind.dtype}
        added = made(
            body, "AddV2", (held, item), self.kind.dtype, self.kind.shape, "rnnmem/item_sum", **kind
        )
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

    def _part(self, body: NetEditor, index: str, factor: str) -> str:
        """One item of a factor, as a batch of one."""
        kind = body.blobs[factor]
        none = number(body, 0, self.constant)
        begin = made(
            body, "Pack", (index, none, none), "int32", (3,), "rnnmem/pack", T="int32", N=3, axis=0
        )
        read = (factor, begin, number(body, [1, -1, -1], self.constant))
        shape = (1, *(kind.shape or ())[1:])
        kinds = {"T": kind.dtype, "Index": "int32"}
        return made(body, "Slice", read, kind.dtype, shape, "rnnmem/part", **kinds)

    def _item(self, body: NetEditor, factors: list[str]) -> str:
        """The product of one item of each factor."""
        op, kind = self.product, self.kind
        attributes = {key: one for key, one in op.attributes.items() if key != "_class"}
        batch = body.add(
            op.type,
            factors,
            ((kind.dtype, (1, *(kind.shape or ()))),),
            attributes,
            name=op.name,
            device=op.device,
            source=op.source,
        ).outputs[0]
        read = (batch, number(body, list(kind.shape or ()), self.constant))
        kinds = {"T": kind.dtype, "Tshape": "int32"}
        return made(body, "Reshape", read, kind.dtype, kind.shape, "rnnmem/item", **kinds)

    def _added(self, one: str, other: str) -> str:
        dtype, shape = self.kind.dtype, self.kind.shape
        kind = {"T": dtype}
        return made(self.editor, "AddV2", (one, other), dtype, shape, "rnnmem/item_sum", **kind)
