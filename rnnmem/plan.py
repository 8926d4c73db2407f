"""A Plan: every decision for one Net, as plain data that prints, and goes to JSON and back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from rnnmem.net.nouns import Shape
from rnnmem.net.segments import longest_segment, segment_count

SAVED, RECOMPUTED, INVARIANT, INNER = "saved", "recomputed", "invariant", "inner"
HOISTED = "hoisted"


@dataclasses.dataclass(frozen=True)
class BlobFate:
    """What becomes of one blob that the gradient step net reads.

    Attributes:
      blob: its name in the forward step net.
      op_type: the op that writes it; ``state`` for a carried value.
      dtype: dtype name.
      shape: shape, with None for what is unknown.
      bytes: kept per iteration by the original, or None where unknown.
      fate: ``saved``, ``recomputed``, ``invariant`` (read again from outside the loop), ``hoisted``
        (a variable, read once beside the loop) or ``inner`` (a nested loop no longer hands it out).
      was_saved: whether the original saves it.
      reason: why, in words.
      source: the user's line, or empty.
    """

    blob: str
    op_type: str
    dtype: str
    shape: Shape
    bytes: int | None
    fate: str
    was_saved: bool
    reason: str
    source: str


@dataclasses.dataclass(frozen=True)
class Segments:
    """A loop's iterations in runs: only the state at the start of each is kept.

    The gradient runs a segment again before it goes through it, and only then saves what it reads.
    Segment k has ``length + k * growth`` iterations: equal ones where the trip count is known,
    growing ones where only the run can tell, so that memory grows with its root either way.

    Attributes:
      length: iterations of the first segment.
      growth: how many more the next one has.
      wanted: saved blobs that are saved for one segment at a time.
      states: arguments of the forward step net that are kept at the start of a segment.
      invariants: arguments of it that are the same in every iteration.
      reads: its blobs that one read of a variable beside the loop stands for.
      bytes: of the states of one segment.
      saved_bytes: that the wanted blobs take per iteration.
      seconds: estimated time to run an iteration again.
    """

    length: int
    growth: int = 0
    wanted: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    bytes: int = 0
    saved_bytes: int = 0
    seconds: float = 0.0

    def peak_bytes(self, trips: int) -> int:
        """Bytes kept when the gradient loop has run the longest segment again."""
        count = segment_count(trips, self.length, self.growth)
        longest = longest_segment(trips, self.length, self.growth)
        return count * self.bytes + longest * self.saved_bytes


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
      demands: blobs of the Net around the forward loop that the gradient loop must be given.
      in_flight: iterations of the loops that may be under way at once.
      bytes: kept per iteration, inner loops apart; unknown sizes are guessed.
      seconds: estimated time per iteration beyond the original's, inner loops apart; negative where
        saving less takes more time off than recomputing adds.
      fates: what becomes of each blob, for people.
      inner: the decisions for loop pairs inside the step nets.
      source: the user's line of the loop, or empty.
      segments: which iterations keep their state; None: each keeps what it saves.
    """

    path: tuple[str, ...]
    gradients: tuple[str, ...]
    closed: str = ""
    trips: int | None = None
    saved: tuple[str, ...] = ()
    recomputed: tuple[str, ...] = ()
    hoisted: tuple[str, ...] = ()
    demands: tuple[str, ...] = ()
    in_flight: int = 1
    bytes: int = 0
    seconds: float = 0.0
    fates: tuple[BlobFate, ...] = ()
    inner: tuple[LoopPlan, ...] = ()
    source: str = ""
    segments: Segments | None = None

    def total(self, unknown_trips: int = 64) -> tuple[int, float]:
        """``(bytes, seconds)`` that all iterations keep and spend again, inner loops included."""
        trips = unknown_trips if self.trips is None else self.trips
        kept, again = self.bytes, self.seconds * max(1, len(self.gradients))
        for inner in self.inner:
            inner_kept, inner_again = inner.total(unknown_trips)
            kept, again = kept + inner_kept, again + inner_again
        if self.segments is None:
            return trips * kept, trips * again
        whole = trips * (kept - self.segments.saved_bytes)
        return whole + self.segments.peak_bytes(trips), trips * (again + self.segments.seconds)

    def flat(self):
        """Yields this plan and every inner one, outermost first."""
        yield self
        for inner in self.inner:
            yield from inner.flat()


@dataclasses.dataclass(frozen=True)
class Turn:
    """One control edge that lets large buffers take turns.

    Attributes:
      op: the op that waits.
      slot: the input of it that passes a gate that waits instead; None where the op itself waits.
      after: the op waited for.
      path: of the step net in which both stand, names of ops and attributes in turn.
    """

    op: str
    slot: int | None
    after: str
    path: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Plan:
    """All decisions for one Net.

    Attributes:
      loops: one entry per loop pair.
      waits: control edges of the outer Net: (waiting op, op waited for).
      turns: control edges by which large buffers take turns, at any depth.
      notes: what was found and left alone, in words.
      slowdown: estimated factor of step time.
      original_peak: estimated peak of the original above the resident state, in bytes, or None.
      predicted_peak: the same for the rewritten Net.
    """

    loops: tuple[LoopPlan, ...] = ()
    waits: tuple[tuple[str, str], ...] = ()
    turns: tuple[Turn, ...] = ()
    notes: tuple[str, ...] = ()
    slowdown: float = 1.0
    original_peak: int | None = None
    predicted_peak: int | None = None

    @property
    def changes_nothing(self) -> bool:
        """Whether applying the plan would leave the Net as it is."""
        return not self.turns and all(loop.closed for loop in self.loops)

    def to_json(self) -> str:
        """The plan as JSON text."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @staticmethod
    def from_json(text: str) -> Plan:
        """The inverse of :meth:`to_json`.

        Raises:
          ValueError: the text is no plan; names the field that is missing or unknown.
        """
        try:
            data = json.loads(text)
            return Plan(
                **{
                    **data,
                    "loops": tuple(_loop_plan(loop) for loop in data["loops"]),
                    "waits": tuple((op, other) for op, other in data["waits"]),
                    "turns": tuple(
                        Turn(**{**turn, "path": tuple(turn["path"])}) for turn in data["turns"]
                    ),
                    "notes": tuple(data["notes"]),
                }
            )
        except (TypeError, KeyError, AttributeError, json.JSONDecodeError) as error:
            raise ValueError(f"this is not a plan that to_json wrote: {error}") from error


def _loop_plan(data: dict[str, Any]) -> LoopPlan:
    lists = ("path", "gradients", "saved", "recomputed", "hoisted", "demands")
    return LoopPlan(
        **{
            **data,
            **{name: tuple(data[name]) for name in lists},
            "fates": tuple(_fate(fate) for fate in data["fates"]),
            "inner": tuple(_loop_plan(inner) for inner in data["inner"]),
            "segments": _segments(data["segments"]),
        }
    )


def _segments(data: dict[str, Any] | None) -> Segments | None:
    if data is None:
        return None
    lists = ("wanted", "states", "invariants", "reads")
    return Segments(**{**data, **{name: tuple(data[name]) for name in lists}})


def _fate(data: dict[str, Any]) -> BlobFate:
    shape = data["shape"]
    return BlobFate(**{**data, "shape": None if shape is None else tuple(shape)})
