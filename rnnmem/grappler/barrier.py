"""Blobs that TensorFlow's graph optimizer sees no further than: into an optional and out of it."""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.ir.editor import NetEditor
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Blob, DType, Shape, ShapeValue
from rnnmem.ir.marks import STANDS_FOR
from rnnmem.ir.op_table import UNWRAP, WRAP

SHOWN = "PlaceholderWithDefault"
"""Stands for an optional where XLA, which has none, compiles.

Behind an optional only the shape is seen that is written there. TensorFlow's graph optimizer takes
two shapes that any op merges for equal, in front of the op too: behind EnsureShape or this one it
would know the shape of what was popped.
"""


def hidden(
    net: NetEditor,
    blob: str,
    seen: Shape,
    *,
    name: str,
    stands_for: str,
    optional: bool,
    controls: Iterable[str] = (),
    kind: Blob | None = None,
) -> str:
    """The same value, of which nothing is seen but a shape; lists are handed on as they are.

    Args:
      net: where the blob is.
      blob: the value.
      seen: the shape that is seen behind.
      name: of the op that gives the result.
      stands_for: what it stands for; two of another kind are never merged.
      optional: whether optionals may be used.
      controls: what is waited for.
      kind: dtype and shape of the result where more is known of it than of ``blob``.
    """
    kind = kind or net.blobs[blob]
    if kind.dtype not in BYTES_PER_ELEMENT:
        return blob
    results = ((kind.dtype, kind.shape),)
    if not optional:
        attributes = {"dtype": DType(kind.dtype), "shape": ShapeValue(seen)}
        shown = net.add(SHOWN, (blob,), results, attributes, name=name, controls=controls)
        return shown.outputs[0]
    dtypes = (DType(kind.dtype),)
    held = net.add(
        WRAP,
        (blob,),
        (("variant", ()),),
        {"Toutput_types": dtypes, STANDS_FOR: stands_for.encode()},
        name="rnnmem/wrapped",
        controls=controls,
    )
    attributes = {
        "output_types": dtypes,
        "output_shapes": (ShapeValue(seen),),
        STANDS_FOR: stands_for.encode(),
    }
    return net.add(UNWRAP, held.outputs, results, attributes, name=name).outputs[0]
