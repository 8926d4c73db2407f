"""Of which other blobs a blob's shape is: whoever asks for it need not wait for the blob.

    labels [B, T] ─► ... ─► losses [B*T] ─► Reshape(Shape(labels)) ─► Mul ─► Shape
                                                            mask [B, T] ─┘
        is    BroadcastArgs(Shape(labels), Shape(mask))

An op that fails tells nothing wrong: where it runs, its inputs fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rnnmem.analysis.facts import vector
from rnnmem.analysis.shapes import KnownNet
from rnnmem.ir.graph import Op
from rnnmem.ir.op_table import SAME_NUMBERS, UNIFORM, types

POINTWISE = types("pointwise") - types("own_shape") - types("sized") - types("softmax")
"""Types whose inputs are broadcast to each other; a single result has the shape of that."""
LIKE_FIRST = types("softmax") | (types("tokens", "each") & SAME_NUMBERS)
"""Types whose result has the shape of their first input."""
_LABELLED = types("labelled", "")


class ShapeSources:
    """The blobs of which others' shapes are, in one Net."""

    def __init__(self, known: KnownNet, last: Iterable[str] = ()):
        """Looks no further than some blobs."""
        self.known, self.net = known, known.net
        self._found = {blob: frozenset([blob]) for blob in last}

    def of(self, blob: str) -> frozenset[str]:
        """Blobs whose shapes, broadcast to each other, are the blob's; itself, where no other's."""
        if blob not in self._found:
            self._found[blob] = frozenset([blob])
            self._found[blob] = self._made(blob)
        return self._found[blob]

    def _made(self, blob: str) -> frozenset[str]:
        op = self.net.producer.get(blob)
        read = None if op is None else self._read(op, blob)
        if not read:
            return frozenset([blob])
        return frozenset().union(*map(self.of, read))

    def _read(self, op: Op, blob: str) -> list[str] | None:
        """Inputs that have the shape together; None where none have."""
        if op.type in _LABELLED:
            return self._labels(op, blob)
        if op.type in LIKE_FIRST or (op.type in UNIFORM and len(op.inputs) == 1):
            return list(op.inputs[:1])
        if op.type == "Select":  # its mask may be a vector of rows
            return list(op.inputs[2:])
        if op.type == "Reshape" or op.type == "BroadcastTo":
            kept = op.type == "Reshape" and self._keeps_shape(op)
            return list(self._told(op)) or list(op.inputs[: int(kept)])
        if op.type in POINTWISE and len(op.outputs) == 1:
            return self._of_one_rank(op)
        return None

    def _of_one_rank(self, op: Op) -> list[str] | None:
        """The inputs of an op that broadcasts, but for single numbers, if all have its rank."""
        read = [one for one in op.inputs if self._shape(one) != ()]
        ranks = {None if self._shape(one) is None else len(self._shape(one)) for one in read}
        return read if len(ranks) == 1 and None not in ranks else None

    def _labels(self, op: Op, blob: str) -> list[str] | None:
        """A label for each row, along the last axis: as many numbers as labels."""
        if op.type != "GatherV2":
            return [op.inputs[1]] if blob == op.outputs[0] else None
        shape, labels = (self._shape(one) for one in op.inputs[:2])
        axes, shared = vector(self.known.facts[op.inputs[2]]), op.attributes.get("batch_dims") or 0
        if shape is None or labels is None or not axes or not isinstance(axes[0], int):
            return None
        last = axes[0] % len(shape) == len(shape) - 1 == shared == len(labels) if shape else False
        return [op.inputs[1]] if last else None

    def _told(self, op: Op) -> Iterator[str]:
        """What has the shape that an op is told, if it is another blob's as a whole."""
        asked = self.net.producer.get(op.inputs[1])
        if asked is not None and asked.type == "Shape":
            yield asked.inputs[0]

    def _keeps_shape(self, op: Op) -> bool:
        """Whether a Reshape gives its input's shape: all sizes but one are known, and the same."""
        before, after = self._shape(op.inputs[0]), self._shape(op.outputs[0])
        same = before is not None and before == after
        return same and before.count(None) <= 1 and 0 not in before

    def _shape(self, blob: str):
        return self.known.facts[blob].shape
