"""What is known of accumulators that keep blobs in another form than the loop has them."""

from __future__ import annotations

from rnnmem.ir.graph import Blob, Net
from rnnmem.ir.marks import DECODES, ENCODES
from rnnmem.ir.op_table import ASKS_SHAPE, SAME_NUMBERS, slots, types

COPIES = frozenset({ENCODES, DECODES})
"""An Identity with one of them copies to another device and back."""

ASKS_SIGN = slots("sign")
"""Op type -> the input of which it only asks, of each element, whether it is above 0."""


def asks_sign_only(net: Net, blob: str) -> bool:
    """Whether all that read the blob ask whether its elements are above 0, and somebody does."""
    readers = net.readers.get(blob, ())
    return (
        bool(readers)
        and blob not in net.outputs
        and all(ASKS_SIGN.get(op.type) == op.inputs.index(blob) for op in readers)
        and all(op.inputs.count(blob) == 1 for op in readers)
    )


_MOVES = SAME_NUMBERS | types("moves") | {"Cast"} | {"Neg"}
"""Types that hand numbers on, at another place."""


def is_continuous(blob: Blob) -> bool:
    """Whether the blob holds numbers that may be a little off."""
    return blob.dtype.startswith(("float", "bfloat", "complex"))


def decides(net: Net, blob: str) -> bool:
    """Whether truths or whole numbers are made of the blob itself: they flip if it is off."""
    for op in net.readers.get(blob, ()):
        if op.type in ASKS_SHAPE or op.type in ASKS_SIGN:
            continue
        if op.nets or not all(is_continuous(net.blobs[one]) for one in op.outputs):
            return True
        if op.type in _MOVES and any(decides(net, one) for one in op.outputs):
            return True
    return False
