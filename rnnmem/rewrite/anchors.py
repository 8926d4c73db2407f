"""Anchors: readers that cost nothing, so that a blob is fused, or not, as it was before."""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.net.loops import POP, PUSH
from rnnmem.net.nouns import DType
from rnnmem.rewrite.editor import LoopEditor


class Anchors:
    """The anchored blobs of one step net; one carried list for each dtype."""

    def __init__(self, loop: LoopEditor, constant):
        self.loop = loop
        self.constant = constant
        self.blobs: dict[str, None] = {}

    def add(self, blobs: Iterable[str]) -> None:
        """Gives each of the blobs one more reader."""
        self.blobs.update(dict.fromkeys(blobs))

    def write(self) -> list[str]:
        """Writes the anchors; returns the outer blobs of their lists, which must not be pruned."""
        body = self.loop.body
        by_dtype: dict[str, list[str]] = {}
        for blob in self._in_order():
            by_dtype.setdefault(body.blobs[blob].dtype, []).append(blob)
        return [self._chain(dtype, blobs) for dtype, blobs in by_dtype.items()]

    def _in_order(self) -> list[str]:
        """The blobs as the step net writes them, so that each is let go early."""
        wanted = {self.loop.body.resolve(blob) for blob in self.blobs}
        return [
            blob
            for blob in (
                *self.loop.body.inputs,
                *(one for op in self.loop.body.net().ops for one in op.outputs),
            )
            if blob in wanted
        ]

    def _chain(self, dtype: str, blobs: list[str]) -> str:
        outer, body = self.loop.outer, self.loop.body
        unknown = self._number(outer, -1)
        start = outer.add(
            "EmptyTensorList",
            (unknown, unknown),
            (("variant", ()),),
            {"element_dtype": DType(dtype), "shape_type": DType("int32")},
            name="rnnmem/anchor",
        )
        argument, held = self.loop.add_variable(start.outputs[0], "anchor")
        shape = self._number(body, -1)
        current = argument
        for blob in blobs:
            push = body.add(
                PUSH,
                (current, blob),
                (("variant", ()),),
                {"element_dtype": DType(dtype)},
                name="rnnmem/anchor_push",
            )
            pop = body.add(
                POP,
                (push.outputs[0], shape),
                (("variant", ()), (dtype, None)),
                {"element_dtype": DType(dtype)},
                name="rnnmem/anchor_pop",
            )
            current = pop.outputs[0]
        self.loop.set_next(argument, current)
        return held

    def _number(self, net, value: int) -> str:
        encoded = self.constant(value, "int32")
        return net.add(
            "Const",
            (),
            (("int32", ()),),
            {"dtype": DType("int32"), "value": encoded},
            name="rnnmem/number",
        ).outputs[0]
