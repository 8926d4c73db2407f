"""What becomes of the residuals of a loop: which are saved, and which computed again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from rnnmem.ir.graph import Shape
from rnnmem.ir.requests import RECOMPUTE
from rnnmem.passes.checkpoint.decision import Segments
from rnnmem.passes.encode.decision import BFLOAT16, SAVED_AS, Encoding

RECOMPUTED, INVARIANT, INNER = "recomputed", "invariant", "inner"
HOISTED, DEAD = "hoisted", "unread"

OVERLAPPING = 2
"""Iterations of a rewritten loop under way at once, where time is worth the memory of one more."""


@dataclasses.dataclass(frozen=True)
class ResidualDecision:
    """What becomes of one blob that the gradient step net reads.

    Attributes:
      blob: its name in the forward step net.
      op_type: the op that writes it; ``state`` for a carried value.
      dtype: dtype name.
      shape: shape, with None for what is unknown.
      bytes: kept per iteration by the original, or None where unknown.
      decision: ``saved``, plain or by a technique (see `SAVED_AS`), ``recomputed``, ``invariant``
        (read again from outside the loop), ``hoisted`` (a variable, read once beside the loop) or
        ``inner`` (a nested loop no longer hands it out).
      was_saved: whether the original saves it.
      reason: why, in words.
      source: the user's line, or empty; of a carried value, the one that makes the next.
    """

    blob: str
    op_type: str
    dtype: str
    shape: Shape
    bytes: int | None
    decision: str
    was_saved: bool
    reason: str
    source: str

    @property
    def is_kept(self) -> bool:
        """Whether an accumulator keeps the blob, in whatever form."""
        return self.decision in SAVED_AS.values()


@dataclasses.dataclass(frozen=True)
class Request:
    """What a user asked of one blob of a forward step net, and what comes of it.

    Attributes:
      blob: its name there.
      request: ``keep`` or ``recompute``.
      refused: why it is saved all the same; empty where it is as it was asked.
    """

    blob: str
    request: str
    refused: str = ""


@dataclasses.dataclass(frozen=True)
class LoopPlan:
    """The decisions for one loop pair.

    Attributes:
      path: loop op names from the outermost loop to this one.
      gradients: names of the gradient loops.
      closed: why the pair is left exactly as it is; empty where it is rewritten.
      trips: iterations, or None where only a run can tell.
      saved: blobs of the forward step net that accumulators keep.
      recomputed: ops of the forward step net that run again in each gradient step net.
      hoisted: blobs of the forward step net that one read beside the outermost loop stands for.
      live_ins: blobs of the Net around the forward loop that the gradient loop must be given.
      parallel_iterations: iterations of the loops that may be under way at once.
      bytes: kept per iteration, inner loops apart; unknown sizes are guessed.
      seconds: estimated time per iteration beyond the original's, inner loops apart; negative where
        saving less takes more time off than recomputing adds.
      residuals: what becomes of each blob, for people.
      inner: the decisions for loop pairs inside the step nets.
      source: the user's line of the loop, or empty.
      function: the user's Python function that the line stands in, or empty.
      segments: which iterations keep their state; None: each keeps what it saves.
      encodings: of saved blobs that are not kept as they are.
      requests: what the user asked of the blobs that the original saves, or this plan does.
    """

    path: tuple[str, ...]
    gradients: tuple[str, ...]
    closed: str = ""
    trips: int | None = None
    saved: tuple[str, ...] = ()
    recomputed: tuple[str, ...] = ()
    hoisted: tuple[str, ...] = ()
    live_ins: tuple[str, ...] = ()
    parallel_iterations: int = 1
    bytes: int = 0
    seconds: float = 0.0
    residuals: tuple[ResidualDecision, ...] = ()
    inner: tuple[LoopPlan, ...] = ()
    source: str = ""
    function: str = ""
    segments: Segments | None = None
    encodings: tuple[Encoding, ...] = ()
    requests: tuple[Request, ...] = ()

    def total(self, unknown_trips: int = 64) -> tuple[int, float]:
        """``(bytes, seconds)`` that all iterations keep and spend again, inner loops included."""
        trips = unknown_trips if self.trips is None else self.trips
        kept, rematerialised = self.bytes, self.seconds * max(1, len(self.gradients))
        for inner in self.inner:
            inner_kept, inner_again = inner.total(unknown_trips)
            kept, rematerialised = kept + inner_kept, rematerialised + inner_again
        if self.segments is None:
            return trips * kept, trips * rematerialised
        whole = trips * (kept - self.segments.saved_bytes)
        # What saving less takes off is too uncertain to spend it on running iterations again.
        rematerialised = max(0.0, rematerialised) + self.segments.seconds_again(trips)
        return whole + self.segments.peak_bytes(trips), trips * rematerialised

    def keeps_by(self, techniques: str) -> bool:
        """Whether a saved blob is kept by these techniques, here or in a pair inside."""
        return any(techniques in one.techniques for loop in self.flat() for one in loop.encodings)

    @property
    def must_recompute(self) -> bool:
        """Whether it computes something again because the user asked for it, here or inside."""
        return any(
            one.request == RECOMPUTE and not one.refused
            for loop in self.flat()
            for one in loop.requests
            if not loop.closed
        )

    def flat(self):
        """Yields this plan and every inner one, outermost first."""
        yield self
        for inner in self.inner:
            yield from inner.flat()

    @property
    def label(self) -> str:
        """Which loop it is."""
        where = f" ({self.source})" if self.source else ""
        return f"loop {'/'.join(self.path)}{where}"

    @property
    def sentences(self) -> Iterator[str]:
        """What is decided beside what becomes of each blob, in words."""
        if lossy := [one.blob for one in self.encodings if BFLOAT16 in one.techniques]:
            yield f"rounded, so gradients differ: {self.label}: {', '.join(lossy)}"
        if self.segments is not None:
            yield f"in segments: {self.label}: {self.segments.sentence}"
        if self.closed:
            yield f"left as it was: {self.label}: {self.closed}"
