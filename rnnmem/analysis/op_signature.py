"""What an op's time depends on: its type, attributes, and the dtypes and shapes it works on."""

from __future__ import annotations

from rnnmem.ir.graph import Constant, Net, Op

_BESIDE = ("_", "T", "Tidx", "Tshape", "dtype", "N")
"""Attributes that say nothing that dtypes and shapes do not, by the start of their name."""


def op_signature(op: Op, net: Net) -> str | None:
    """A text that is equal for ops of equal time; None where a size is unknown.

    Args:
      op: an op of the Net that runs no Net itself.
      net: the Net, its shapes filled in.
    """
    words = [op.type]
    for key, value in sorted(op.attributes.items()):
        if not key.startswith(_BESIDE) and not isinstance(value, Constant):
            words.append(f"{key}={value!r}")
    for blob in (*op.inputs, "->", *op.outputs):
        if blob == "->":
            words.append(blob)
            continue
        value = _value(blob, net)
        held = net.blobs[blob]
        if value is None and held.bytes is None:
            return None
        shape = "" if held.shape is None else ",".join(map(str, held.shape))
        words.append(f"{held.dtype}[{shape}]" if value is None else f"{held.dtype}={value}")
    return " ".join(words)


def _value(blob: str, net: Net) -> object | None:
    """The value of a small integer constant (axes, shapes), which changes what an op does."""
    producer = net.producer.get(blob)
    if producer is None or producer.type != "Const":
        return None
    held = producer.attributes.get("value")
    return held.value if isinstance(held, Constant) and held.dtype.startswith("int") else None
