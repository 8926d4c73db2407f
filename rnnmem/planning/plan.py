"""A Plan: every decision for one Net, as plain data that prints, and goes to JSON and back."""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from collections.abc import Iterator
from typing import Any

from rnnmem.analysis.segment_lengths import longest_segment, segment_count
from rnnmem.ir.graph import Shape
from rnnmem.passes.checkpoint.revolve import first_saves

SAVED, RECOMPUTED, INVARIANT, INNER = "saved", "recomputed", "invariant", "inner"
HOISTED, UNREAD = "hoisted", "unread"

BITS, BFLOAT16, OFFLOAD = "bits", "bfloat16", "offload"
SAVED_AS = {
    (): SAVED,
    (BITS,): "saved as bits",
    (BFLOAT16,): "saved as bfloat16",
    (OFFLOAD,): "offloaded",
    (BITS, OFFLOAD): "saved as bits, offloaded",
    (BFLOAT16, OFFLOAD): "saved as bfloat16, offloaded",
}
"""Means by which an accumulator keeps a blob, in the order applied -> the blob's fate."""


OVERLAPPING = 2
"""Iterations of a rewritten loop under way at once, where time is worth the memory of one more."""


@dataclasses.dataclass(frozen=True)
class BlobFate:
    """What becomes of one blob that the gradient step net reads.

    Attributes:
      blob: its name in the forward step net.
      op_type: the op that writes it; ``state`` for a carried value.
      dtype: dtype name.
      shape: shape, with None for what is unknown.
      bytes: kept per iteration by the original, or None where unknown.
      fate: ``saved``, plain or by a means (see `SAVED_AS`), ``recomputed``, ``invariant`` (read
        again from outside the loop), ``hoisted`` (a variable, read once beside the loop) or
        ``inner`` (a nested loop no longer hands it out).
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

    @property
    def is_kept(self) -> bool:
        """Whether an accumulator keeps the blob, in whatever form."""
        return self.fate in SAVED_AS.values()


@dataclasses.dataclass(frozen=True)
class Encoding:
    """The form in which an accumulator keeps a blob.

    Attributes:
      blob: the saved blob of the forward step net.
      means: ``bits`` (of a bool; of a number: whether it is above 0), ``bfloat16``, ``offload``, in
        the order applied.
      bytes: that the device keeps per iteration; unknown sizes are guessed.
      seconds: estimated time per iteration of encoding, keeping and decoding.
    """

    blob: str
    means: tuple[str, ...]
    bytes: int = 0
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Segments:
    """A loop's iterations in runs: only the state at the start of each is kept.

    The gradient runs a segment again before it goes through it, and only then saves what it reads.
    Segment k has ``length + k * growth`` iterations: equal ones where the trip count is known,
    growing ones where only the run can tell, so that memory grows with its root either way.

    With slots the states of some segments only are kept, as the binomial schedule over the segments
    says; from these the gradient goes on to the segment whose turn it is, keeping states anew in
    slots that have become free (`rnnmem.passes.checkpoint.schedule`). Where only the run can tell
    the trip count that schedule is online: the forward loop overwrites slots as it goes.

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
      slots: states kept at once by a schedule over the segments, and one more of the last segment;
        0: the states of every segment.
      count: segments that the schedule is for; online, those up to which ways to a segment are the
        shortest.
      again: how often an iteration runs again, on average.
      online: whether the schedule is for any number of segments, in ``slots`` slots.
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
    slots: int = 0
    count: int = 0
    again: float = 1.0
    online: bool = False

    @property
    def starts(self) -> tuple[int, ...]:
        """Segments whose states a schedule keeps while the loop first runs.

        Empty without one, and where it is online.
        """
        return first_saves(self.count, self.slots) if self.slots and not self.online else ()

    @property
    def most_kept(self) -> int:
        """States that the forward loop keeps at once, at most; 0: one of each segment."""
        return self.slots if self.online else len(self.starts)

    def peak_bytes(self, trips: int) -> int:
        """Bytes kept when the gradient loop has run the longest segment again."""
        count = segment_count(trips, self.length, self.growth)
        count = min(count, self.slots + 1) if self.slots else count
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
      encodings: of saved blobs that are not kept as they are.
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
    encodings: tuple[Encoding, ...] = ()

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
        # What saving less takes off is too uncertain to spend it on running iterations again.
        again = max(0.0, again) + self.segments.again * self.segments.seconds
        return whole + self.segments.peak_bytes(trips), trips * again

    def keeps_by(self, means: str) -> bool:
        """Whether a saved blob is kept by these means, here or in a pair inside."""
        return any(means in one.means for loop in self.flat() for one in loop.encodings)

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
      witnessed: whether a witness is waited for instead, an op that reads what that op writes.
    """

    op: str
    slot: int | None
    after: str
    path: tuple[str, ...] = ()
    witnessed: bool = False


@dataclasses.dataclass(frozen=True)
class Fold:
    """An operand that an op broadcasts itself, so that it is not made whole.

    Attributes:
      op: the op that reads it.
      slot: the input of it that reads what was repeated, in place of the repeated blob.
      path: of the step net in which it stands, names of ops and attributes in turn.
    """

    op: str
    slot: int
    path: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class EmptyStart:
    """A list of gradients that a gradient loop begins without elements, not with zeros.

    Attributes:
      zeros: the op that makes the list of zeros.
      loop: the gradient loop that begins with it.
      items: ops of its body that put a gradient into a list which is added to it.
    """

    zeros: str
    loop: str
    items: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class MadeAgain:
    """A list that a forward loop reads and its gradient loop is given anew, not kept in between.

    Attributes:
      blob: the list.
      ops: the ops that run again, in order; they only move data that is resident anyway.
      gradients: names of the gradient loops that are given what they make.
      bytes: of the list.
      seconds: estimated time to make it once.
      zeros: names of the ops that make a list of zeros like it; they are given the new one too.
      table: the shape of the variable, where the gradient loops look its rows up one by one, and
        no list is made; empty where the list is.
    """

    blob: str
    ops: tuple[str, ...]
    gradients: tuple[str, ...]
    bytes: int
    seconds: float
    zeros: tuple[str, ...] = ()
    table: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class ChunkedLoss:
    """The decision for one projection with its softmax loss.

    Attributes:
      projection: the op that makes the logits.
      closed: why it is left exactly as it is; empty where it runs by chunks.
      blob: the logits.
      dtype: their dtype.
      shape: their shape, with None for what is unknown.
      bytes: of all logits, or None where unknown.
      source: the blob whose rows are cut.
      length: rows of it that a chunk has.
      rows: how many it has, or None where only a run can tell.
      loops: how many loops over the chunks there are: forward and gradient in one, or one each.
      seconds: estimated time beyond the original's.
      line: the user's line, or empty.
    """

    projection: str
    closed: str = ""
    blob: str = ""
    dtype: str = ""
    shape: Shape = None
    bytes: int | None = None
    source: str = ""
    length: int = 0
    rows: int | None = None
    loops: int = 0
    seconds: float = 0.0
    line: str = ""


@dataclasses.dataclass(frozen=True)
class NestedPlan:
    """The decisions for a step net that is a step by itself: a training loop's body, a branch.

    Attributes:
      path: names of ops and of the attributes that hold their step nets, outermost first.
      loops: names of those of the ops that are loops.
      plan: the decisions.
    """

    path: tuple[str, ...]
    loops: tuple[str, ...]
    plan: Plan


@dataclasses.dataclass(frozen=True)
class Plan:
    """All decisions for one Net.

    Attributes:
      losses: projections with their softmax losses that run by chunks, or why they do not.
      loops: one entry per loop pair.
      waits: control edges of the outer Net: (waiting op, op waited for).
      gates: control edges that keep gradient ops from running beside the loss.
      folds: operands that ops of gradient step nets broadcast themselves.
      empty_starts: lists of gradients that gradient loops begin without elements.
      made_again: lists that gradient loops are given anew.
      turns: control edges by which large buffers take turns, at any depth.
      notes: what was found and left alone, in words.
      slowdown: estimated factor of step time.
      original_peak: estimated peak of the original above the resident state, in bytes, or None.
      predicted_peak: the same for the rewritten Net.
      nested: decisions for step nets that hold loop pairs of their own, inner ones first; each plan
        is for one run of its step net.
    """

    loops: tuple[LoopPlan, ...] = ()
    losses: tuple[ChunkedLoss, ...] = ()
    waits: tuple[tuple[str, str], ...] = ()
    gates: tuple[Turn, ...] = ()
    folds: tuple[Fold, ...] = ()
    empty_starts: tuple[EmptyStart, ...] = ()
    made_again: tuple[MadeAgain, ...] = ()
    turns: tuple[Turn, ...] = ()
    notes: tuple[str, ...] = ()
    slowdown: float = 1.0
    original_peak: int | None = None
    predicted_peak: int | None = None
    nested: tuple[NestedPlan, ...] = ()

    def every_loop(self, around: tuple[str, ...] = ()) -> Iterator[LoopPlan]:
        """Yields the decisions for every loop pair at any depth, each path from the outermost loop.

        Args:
          around: names of the loops around the plan's Net.
        """
        for loop in (one for top in self.loops for one in top.flat()):
            yield dataclasses.replace(loop, path=(*around, *loop.path)) if around else loop
        for one in self.nested:
            yield from one.plan.every_loop((*around, *one.loops))

    @property
    def changes_nothing(self) -> bool:
        """Whether applying the plan would leave the Net as it is."""
        return (
            not self.turns
            and all(one.plan.changes_nothing for one in self.nested)
            and all(loop.closed for loop in self.loops)
            and all(loss.closed for loss in self.losses)
        )

    @property
    def rounds(self) -> bool:
        """Whether a saved copy is rounded, so that gradients are not the original's bit for bit."""
        return any(loop.keeps_by(BFLOAT16) for loop in self.every_loop() if not loop.closed)

    @property
    def offloads(self) -> bool:
        """Whether a saved copy is on the host, and the step on another device."""
        return any(loop.keeps_by(OFFLOAD) for loop in self.every_loop() if not loop.closed)

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
            plan = _plan(json.loads(text))
            _check_fields(plan)
            return plan
        except (TypeError, KeyError, AttributeError, json.JSONDecodeError) as error:
            raise ValueError(f"this is not a plan that to_json wrote: {error}") from error


def without_peaks(plan: Plan) -> Plan:
    """The plan where no peak can be predicted: it tells none, nor do those nested in it."""
    nested = (dataclasses.replace(one, plan=without_peaks(one.plan)) for one in plan.nested)
    return dataclasses.replace(plan, original_peak=None, predicted_peak=None, nested=tuple(nested))


def _check_fields(held: Any) -> None:
    """Refuses what is not of the kind that its field is declared with, at any depth.

    Raises:
      TypeError: names the field and what it holds.
    """
    for name, hint in typing.get_type_hints(type(held)).items():
        value = getattr(held, name)
        if not _fits(value, hint):
            raise TypeError(f"{type(held).__name__}.{name} cannot be {value!r}")
        for one in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(one):
                _check_fields(one)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a kind: a number, a text, a dataclass, a tuple, or one of several."""
    kinds = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        if len(kinds) == 2 and kinds[1] is ...:
            return isinstance(value, tuple) and all(_fits(one, kinds[0]) for one in value)
        pairs = isinstance(value, tuple) and len(value) == len(kinds)
        return pairs and all(map(_fits, value, kinds))
    if kinds:
        return any(_fits(value, kind) for kind in kinds)
    if hint is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and not math.isnan(value)
    if hint is int and isinstance(value, bool):
        return False
    return isinstance(value, hint)


def _plan(data: dict[str, Any]) -> Plan:
    return Plan(
        **{
            **data,
            "loops": tuple(_loop_plan(loop) for loop in data["loops"]),
            "losses": tuple(_loss(loss) for loss in data.get("losses", ())),
            "waits": tuple((op, other) for op, other in data["waits"]),
            "gates": tuple(map(_turn, data.get("gates", ()))),
            "folds": tuple(map(_fold, data.get("folds", ()))),
            "empty_starts": tuple(map(_empty_start, data.get("empty_starts", ()))),
            "made_again": tuple(map(_made_again, data.get("made_again", ()))),
            "turns": tuple(map(_turn, data["turns"])),
            "notes": tuple(data["notes"]),
            "nested": tuple(
                NestedPlan(tuple(one["path"]), tuple(one["loops"]), _plan(one["plan"]))
                for one in data.get("nested", ())
            ),
        }
    )


def _loop_plan(data: dict[str, Any]) -> LoopPlan:
    lists = ("path", "gradients", "saved", "recomputed", "hoisted", "demands")
    return LoopPlan(
        **{
            **data,
            **{name: tuple(data[name]) for name in lists},
            "fates": tuple(_fate(fate) for fate in data["fates"]),
            "inner": tuple(_loop_plan(inner) for inner in data["inner"]),
            "segments": _segments(data["segments"]),
            "encodings": tuple(_encoding(one) for one in data.get("encodings", ())),
        }
    )


def _fold(data: dict[str, Any]) -> Fold:
    return Fold(**{**data, "path": tuple(data["path"])})


def _empty_start(data: dict[str, Any]) -> EmptyStart:
    return EmptyStart(**{**data, "items": tuple(data["items"])})


def _turn(data: dict[str, Any]) -> Turn:
    return Turn(**{**data, "path": tuple(data["path"])})


def _made_again(data: dict[str, Any]) -> MadeAgain:
    lists = {name: tuple(data[name]) for name in ("ops", "gradients", "zeros")}
    return MadeAgain(**{**data, **lists, "table": tuple(data.get("table", ()))})


def _loss(data: dict[str, Any]) -> ChunkedLoss:
    shape = data["shape"]
    return ChunkedLoss(**{**data, "shape": None if shape is None else tuple(shape)})


def _segments(data: dict[str, Any] | None) -> Segments | None:
    if data is None:
        return None
    lists = ("wanted", "states", "invariants", "reads")
    return Segments(**{**data, **{name: tuple(data[name]) for name in lists}})


def _encoding(data: dict[str, Any]) -> Encoding:
    means = tuple(data["means"])
    if means not in SAVED_AS or not means:
        raise TypeError(f"no accumulator is kept by {', '.join(map(repr, means)) or 'no means'}")
    return Encoding(**{**data, "means": means})


def _fate(data: dict[str, Any]) -> BlobFate:
    shape = data["shape"]
    return BlobFate(**{**data, "shape": None if shape is None else tuple(shape)})
