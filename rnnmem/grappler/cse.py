"""Equal ops that TensorFlow merges or not, by chance, and sums whose order shows which it did.

TensorFlow's runtime takes ops for one whose types, attributes, inputs and control edges are equal
(``OptimizerCSE`` in ``tensorflow/core/graph/optimizer_cse.cc``). Of constants with one value it
only ever merges those that wait for what the first of them waits for, and which is the first, of a
loop's or of its gradient's, hangs on the order in which it walks the whole graph. So two products
by equal constants may be computed apart in one graph and together in another that only has more
ops beside them. That shows where one of them is an addend of three or more: a sum begins with an
addend whose buffer nobody else holds.
"""

from __future__ import annotations

from collections.abc import Iterator

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import POP, types

_COMMUTE = types("commutes")


def sums_by_chance(net: Net) -> Iterator[Op]:
    """The sums, in forward step nets, whose order may change with any op that is added elsewhere.

    Args:
      net: a whole Net, inlined and without dead ops. Gradient step nets are not looked at: their
        constants come first in the original as a rule, so equal ops are merged there, and a sum
        of such a one varies by itself.
    """
    for path, inner in net.walk():
        if path and not any(op.type == POP for op in inner.ops):
            yield from _by_chance(inner)


def _by_chance(net: Net) -> Iterator[Op]:
    sums = [op for op in net.ops if op.type == "AddN" and len(op.inputs) > 2]
    if not sums:
        return
    values, merged = _Numbers(net, constants=False), _Numbers(net, constants=True)
    apart: dict[int, set[int]] = {}  # number where constants are merged -> those where none is
    for op in net.ops:
        for blob in op.outputs:
            apart.setdefault(merged.of[blob], set()).add(values.of[blob])
    for op in sums:
        if any(
            _is_held_by_none(net, blob) and len(apart[merged.of[blob]]) > 1 for blob in op.inputs
        ):
            yield op


def _is_held_by_none(net: Net, blob: str) -> bool:
    """Whether the blob is computed here and a sum is the only one who reads it."""
    op = net.producer.get(blob)
    if op is None or op.type == "Const" or net.fan_out(blob) != 1:
        return False
    return op.type != "Identity" or _is_held_by_none(net, op.inputs[0])


def reader_counts(net: Net) -> dict[str, int]:
    """How many ops read each input of a Net, equal ones counted once, and handing it on as one."""
    numbers = _Numbers(net, constants=True).of
    return {
        blob: len({tuple(numbers[one] for one in op.outputs) or op.name for op in readers})
        + (blob in net.outputs)
        for blob, readers in ((blob, net.readers.get(blob, ())) for blob in net.inputs)
    }


class _Numbers:
    """Numbers the blobs of a Net: equal where TensorFlow would merge what computes them.

    Attributes:
      of: blob -> its number.
    """

    def __init__(self, net: Net, constants: bool):
        """Numbers them; ``constants`` of one value have one number, or each has its own."""
        self._known: dict[tuple, int] = {}
        self.of = {blob: self._number(("input", blob)) for blob in net.inputs}
        for op in net.ops:
            key = self._key(op, constants)
            for place, blob in enumerate(op.outputs):
                passes = op.type == "Identity"
                self.of[blob] = self.of[op.inputs[0]] if passes else self._number((*key, place))

    def _key(self, op: Op, constants: bool) -> tuple:
        if op.stateful or op.nets or (op.type == "Const" and not constants):
            return ("op", op.name)
        inputs = [self.of[blob] for blob in op.inputs]
        if op.type in _COMMUTE:
            inputs.sort()
        attributes = sorted((name, repr(value)) for name, value in op.attributes.items())
        return (op.type, *attributes, *inputs)

    def _number(self, key: tuple) -> int:
        return self._known.setdefault(key, len(self._known))
