"""Which shapes are saved: of blobs of which a gradient loop reads nothing else.

    forward     seen ─► Push                               TensorFlow's gradient of a concatenation
    gradient    Pop ─► ShapeN ─► Slice(gradient, …)        asks for shapes in the gradient loop

For `Shape`, `Size` and `Rank` TensorFlow does so itself (``while_v2.py``,
``_WhileBodyGradFuncGraph``), but not for `ShapeN`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rnnmem.analysis.loops import Loop, LoopPair, own_loop_pairs
from rnnmem.analysis.shapes import KnownNet
from rnnmem.analysis.training_regions import nested_steps
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net, Op, static
from rnnmem.ir.op_table import ASKS_SHAPE
from rnnmem.ir.order import through_identities
from rnnmem.passes.decision import Step
from rnnmem.passes.saved_shapes.decision import SavedShape

FEW = 1024
"""Bytes an iteration that are not worth another list: it holds some hundred itself. By hand."""


def decide(step: Step) -> tuple[SavedShape, ...]:
    """The shapes of a step that are to be saved."""
    return saved_shapes(step.net, step.in_call)


def saved_shapes(net: Net, in_call: KnownNet) -> tuple[SavedShape, ...]:
    """The shapes that are to be saved, in all step nets that have loops of their own.

    Args:
      net: the whole step, inlined.
      in_call: the same with the shapes of a call, or with those that it tells itself.
    """
    places = [((), net), *((one.path, one.net) for one in nested_steps(net))]
    return tuple(
        found
        for path, inner in places
        for pair in own_loop_pairs(inner)
        if not pair.closed
        for found in _of_pair(pair, tuple(path), None if path else in_call)
    )


def _of_pair(
    pair: LoopPair, path: tuple[str, ...], in_call: KnownNet | None
) -> Iterator[SavedShape]:
    for gradient in pair.gradients:
        pushed = {link.popped: link.pushed for link in gradient.links}
        for op in gradient.loop.body.ops:
            read = read_for_shape(gradient.loop, op, pushed)
            if not read:
                continue
            unread = {blob for blob in read if _reads_shapes_alone(gradient.loop, blob, pushed)}
            sizes = [_bytes(pair.forward, pushed[blob], in_call) for blob in sorted(unread)]
            each = None if None in sizes else sum(size or 0 for size in sizes)
            if each is not None and each < FEW:
                continue
            trips = in_call.trips.get(pair.forward.op.name) if in_call else None
            whole = None if each is None or trips is None else each * trips
            yield SavedShape(path, gradient.loop.op.name, op.name, whole, str(op.source or ""))


def read_for_shape(loop: Loop, op: Op, pushed: dict[str, str]) -> list[str]:
    """What the forward loop pushed of which an op makes shapes; none where it makes anything else.

    Args:
      loop: the gradient loop.
      op: of its body.
      pushed: popped blob -> the blob of the forward step net.
    """
    if op.type not in ASKS_SHAPE or op.controls:
        return []
    read = [through_identities(loop.body, blob) for blob in op.inputs]
    blobs = loop.body.blobs
    if any(one not in pushed or blobs[one].dtype not in BYTES_PER_ELEMENT for one in read):
        return []
    if all(static(blobs[one].shape) is not None for one in read):
        return []  # TensorFlow knows it before any run
    return read


def _reads_shapes_alone(loop: Loop, popped: str, pushed: dict[str, str]) -> bool:
    """Whether all readers of a popped blob, if need be through Identities, ask for shapes."""
    body, pending = loop.body, [popped]
    for blob in pending:
        if blob in body.outputs:
            return False
        for reader in body.readers.get(blob, ()):
            if reader.type == "Identity":
                pending.append(reader.outputs[0])
            elif not read_for_shape(loop, reader, pushed):
                return False
    return True


def _bytes(forward: Loop, blob: str, in_call: KnownNet | None) -> int | None:
    known = None if in_call is None else in_call.inner.get((forward.op.name, "body"))
    return forward.body.blobs[blob].bytes if known is None else known.net.blobs[blob].bytes
