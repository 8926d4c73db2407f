"""Says what became of each blob that a loop pair saved, and why."""

from __future__ import annotations

from collections.abc import Collection

from rnnmem.analysis.held_bytes import stored_bytes
from rnnmem.ir.graph import Blob, Op
from rnnmem.ir.op_table import LOOPS, facts, why_never_twice
from rnnmem.ir.order import maker
from rnnmem.passes.encode.decision import BFLOAT16, BITS, OFFLOAD, SAVED, SAVED_AS, Encoding
from rnnmem.passes.rematerialise.decision import (
    DEAD,
    HOISTED,
    INNER,
    INVARIANT,
    RECOMPUTED,
    ResidualDecision,
)
from rnnmem.passes.rematerialise.min_cut import SavedSet, Step, is_constant
from rnnmem.passes.rematerialise.requests import OTHERWISE, READ_ELSEWHERE, SUM_ORDER
from rnnmem.sizes import format_bytes

ASKED = "you asked for it"
"""Why a blob is kept or recomputed of which the user said so."""


def residual_decisions(
    step: Step, chosen: SavedSet, dropped_lists: Collection[str]
) -> tuple[ResidualDecision, ...]:
    """What a choice of the saved set decides of each blob, by name.

    Args:
      step: what the choice depended on.
      chosen: the choice.
      dropped_lists: lists of inner loops that no iteration keeps any more.
    """
    names = sorted(step.pushed | chosen.saved)
    return tuple(_residual(blob, step, chosen, dropped_lists) for blob in names)


def _residual(
    blob: str, step: Step, chosen: SavedSet, dropped_lists: Collection[str]
) -> ResidualDecision:
    body = step.body
    producer = body.producer.get(blob)
    held = body.blobs[blob]
    encoded = {one.blob: one for one in chosen.encodings}
    if blob in dropped_lists:
        decision, reason = INNER, "the inner loop no longer saves it this way"
    elif blob in encoded:
        decision, reason = SAVED_AS[encoded[blob].techniques], _why_encoded(encoded[blob], held)
    elif blob in chosen.saved:
        decision, reason = SAVED, _why_saved(blob, producer, step, chosen)
    elif blob in step.dead:
        decision, reason = DEAD, "the gradient reads it nowhere"
    elif blob in step.invariants:
        decision, reason = INVARIANT, "the same in every iteration, read again"
    elif blob in step.hoisted:
        decision, reason = HOISTED, "the variable does not change in the loop, read once beside it"
    else:
        decision = RECOMPUTED
        reason = ASKED if blob in step.recomputed else _why_recomputed(producer, step, chosen)
    return ResidualDecision(
        blob=blob,
        op_type=producer.type if producer is not None else "state",
        dtype=held.dtype,
        shape=held.shape,
        bytes=held.bytes,
        decision=decision,
        was_saved=blob in step.pushed,
        reason=reason,
        source=_line(producer or maker(body, blob)),
    )


def _line(made_by: Op | None) -> str:
    return "" if made_by is None else str(made_by.source)


def _why_encoded(one: Encoding, held: Blob) -> str:
    parts = []
    if BITS in one.techniques:
        parts.append("a bit each" if held.dtype == "bool" else "only its sign is asked for")
    if BFLOAT16 in one.techniques:
        parts.append(f"rounded from {held.dtype}: gradients differ")
    if OFFLOAD in one.techniques:
        parts.append("copied to the host and back")
    sizes = f"{format_bytes(one.bytes)} instead of {format_bytes(stored_bytes(held))}"
    return f"{sizes}: {', '.join(parts)}"


def _why_saved(blob: str, producer: Op | None, step: Step, chosen: SavedSet) -> str:
    if blob in step.kept:
        return ASKED
    if blob in step.refused:
        return f"you asked to recompute it, but: {step.refused[blob]}"
    if blob in step.free:
        return READ_ELSEWHERE
    if producer is None:
        return "state at the start of the iteration"
    if facts(producer) is None and producer.name not in step.reading:
        return why_never_twice(producer)
    if producer.name in step.otherwise:
        return OTHERWISE
    if producer.name in step.never and producer.type not in LOOPS:
        return SUM_ORDER
    if blob not in step.pushed:
        return "others are recomputed from it"
    return _not_worth_the_time(step.bytes_kept(blob), step.body.blobs[blob])


def _not_worth_the_time(spared: int, held: Blob) -> str:
    if spared <= 1:  # a shape, or another name of what is kept anyway
        return "keeping it takes next to nothing"
    size = format_bytes(spared)
    if held.bytes is not None and spared == stored_bytes(held) and format_bytes(held.bytes) != size:
        size = f"{size}, which the allocator rounds it to,"
    return f"saving {size} is not worth the time"


def _why_recomputed(producer: Op | None, step: Step, chosen: SavedSet) -> str:
    if producer is not None and is_constant(producer):
        return "a constant"
    return "from what is saved, at less than it would take to keep"
