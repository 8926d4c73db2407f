"""Operands outside of loops that were repeated to a size are broadcast by their readers.

As in gradient step nets (:mod:`rnnmem.passes.implicit_broadcast.select`); here sizes that only a
run tells are compared by their names. The gradient of a sum over the last axis of an attention's
[B, T, S, D] is repeated from [B, T, S, 1] before it is multiplied by what was summed up:

    d [B, T, S, 1] ─► BroadcastTo(Shape(x)) ─► [B, T, S, D] ─► Mul(tanh) and Mul(scale [D])
"""

from __future__ import annotations

from collections.abc import Mapping

from rnnmem.ir.graph import Blob, Net
from rnnmem.passes.decision import Step
from rnnmem.passes.implicit_broadcast.apply import apply
from rnnmem.passes.implicit_broadcast.decision import ImplicitBroadcast
from rnnmem.passes.implicit_broadcast.select import folded_in

__all__ = ["apply", "broadcasts_outside", "decide"]


def decide(step: Step) -> tuple[ImplicitBroadcast, ...]:
    """The operands of a step that are no longer made whole; XLA makes none whole."""
    return broadcasts_outside(step.shaped, step.sizes)


def broadcasts_outside(
    net: Net, in_call: Mapping[str, Blob] | None = None
) -> tuple[ImplicitBroadcast, ...]:
    """The operands that are no longer made whole outside of loops.

    Args:
      net: the whole step, inlined, with all shapes that are known.
      in_call: its blobs with the shapes of a call, where the Net does not tell its own.
    """
    folded = folded_in(net, in_call)
    return tuple(
        ImplicitBroadcast(reader, slot) for _, readers in folded for reader, slot in readers
    )
