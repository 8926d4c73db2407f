"""Anchors: readers that cost nothing, so that a blob is fused, or not, as it was before."""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.rewrite.editor import LoopEditor
from rnnmem.rewrite.lists import Encode, empty_list, number, pop, push


class Anchors:
    """The anchored blobs of one step net; one carried list for each dtype."""

    def __init__(self, loop: LoopEditor, constant: Encode):
        self.loop = loop
        self.constant = constant
        self.blobs: dict[str, None] = {}
        self.dtypes: list[str] = []  # of the lists that were written

    def add(self, blobs: Iterable[str]) -> None:
        """Gives each of the blobs one more reader."""
        self.blobs.update(dict.fromkeys(blobs))

    def write(self) -> list[str]:
        """Writes the anchors; returns the outer blobs of their lists, which must not be pruned."""
        by_dtype: dict[str, list[str]] = {}
        for blob in self._in_order():
            by_dtype.setdefault(self.loop.body.blobs[blob].dtype, []).append(blob)
        self.dtypes = list(by_dtype)
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
        start = empty_list(outer, dtype, None, self.constant, name="rnnmem/anchor")
        argument, held = self.loop.add_variable(start, "anchor")
        unknown = number(body, -1, self.constant)
        current = argument
        for blob in blobs:
            current = push(body, current, blob, name="rnnmem/anchor_push")
            current, _ = pop(body, current, dtype, None, unknown, name="rnnmem/anchor_pop")
        self.loop.set_next(argument, current)
        return held
