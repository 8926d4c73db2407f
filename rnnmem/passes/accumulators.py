"""Accumulators that a rewrite adds to a loop pair: a list of what each iteration pushes.

forward     accumulator ─► Push(blob) ─► accumulator      gradient    accumulator ─► Pop ─► blob
"""

from __future__ import annotations

from rnnmem.ir.builders import Encode, element_shape, empty_list, pop, push
from rnnmem.ir.editor import LoopEditor
from rnnmem.ir.graph import Blob, Op


def accumulated(forward: LoopEditor, blob: str, maker: Op, constant: Encode) -> tuple[str, str]:
    """Has a forward loop push a blob of its step net in each iteration.

    Args:
      forward: the loop.
      blob: what is pushed.
      maker: makes another accumulator of the loop: this one may get as long, on its device.
      constant: encodes a number.

    Returns:
      The step net's argument that holds the list, and the outer blob that holds it behind the loop.
    """
    kind = forward.body.blobs[blob]
    start = empty_list(
        forward.outer,
        kind.dtype,
        kind.shape,
        constant,
        name="rnnmem/accumulator",
        most=maker.inputs[1],
        device=maker.device,
    )
    argument, held = forward.add_variable(start, "accumulator")
    forward.set_next(argument, push(forward.body, argument, blob, name="rnnmem/push"))
    return argument, held


def popped(gradient: LoopEditor, held: str, kind: Blob, constant: Encode) -> tuple[str, str]:
    """Has a gradient loop pop a list in each iteration.

    Args:
      gradient: the loop.
      held: the list, in the Net around it.
      kind: dtype and shape of what was pushed.
      constant: encodes a number.

    Returns:
      The step net's argument that holds the list, and the blob that is popped.
    """
    argument, _ = gradient.add_variable(held, "accumulator")
    body = gradient.body
    wanted = element_shape(body, kind.shape, constant)
    rest, blob = pop(body, argument, kind.dtype, kind.shape, wanted, name="rnnmem/pop")
    gradient.set_next(argument, rest)
    return argument, blob
