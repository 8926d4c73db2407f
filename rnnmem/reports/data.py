"""What a report holds, as plain data: two timelines of live bytes and what they consist of.

bytes above resident
  │          ┌┐  allocator     a Side is one variant of the function, before or after;
  │        ╱╲││  temporary     an Area is one blob (or the rest of a kind) over the run;
  │      ╱╱  ╲╲  saved         a Part is what stood there at the peak, and the parts of a
  │    ╱╱      ╲╲              Side add up to its peak exactly
  └──────────────── x: buffers taken and given back, in the order simulated
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from rnnmem.ir.graph import Shape
from rnnmem.sizes import format_interval

SAVED, RECOMPUTED, GRADIENT = "saved", "recomputed", "weight gradient"
OUTPUT, TEMPORARY, ALLOCATOR = "output", "temporary", "allocator"
KINDS: Mapping[str, str] = {
    OUTPUT: "results that the function returns",
    GRADIENT: "gradients of weights, and what they are summed from",
    SAVED: "blobs that are kept for the gradient",
    RECOMPUTED: "blobs that the gradient computes once more",
    TEMPORARY: "everything else that ops hand to each other",
    ALLOCATOR: "allocator rounding",
}
"""Kind -> what it means, as they are stacked from the bottom."""

WEIGHTS, SLOTS, OTHER_STATE = "weights", "optimizer slots", "other variables"
ARGUMENTS, CONSTANTS = "arguments", "captured constants"
RESIDENT: Mapping[str, str] = {
    WEIGHTS: "variables that are trained",
    SLOTS: "variables that are not trained, are written, and have a weight's shape",
    OTHER_STATE: "counters, statistics, seeds",
    ARGUMENTS: "tensors that the function is called with",
    CONSTANTS: "tensors that the function captured",
}
"""Kind of what is there before the function runs -> what it means."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Something that takes memory.

    Attributes:
      label: the blob, or what the rest of a kind is called.
      kind: of `KINDS`, or of `RESIDENT`.
      bytes: of all buffers of it that are alive at once, rounded up as the allocator rounds them.
      op_type: the op that writes it.
      dtype: dtype name; empty where it is several blobs.
      shape: of one buffer.
      source: the user's line, e.g. ``train.py:88``; where unknown, the op's name.
      loops: names of the loops around it, outermost first.
      decision: what rnnmem does with it: saved, recomputed, invariant, hoisted; empty: nothing.
      reason: why.
    """

    label: str
    kind: str
    bytes: int
    op_type: str = ""
    dtype: str = ""
    shape: Shape = None
    source: str = ""
    loops: tuple[str, ...] = ()
    decision: str = ""
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Area:
    """One part over the whole run.

    Attributes:
      part: it; its bytes are the most it takes at once.
      bytes: alive at each moment of the Side.
    """

    part: Part
    bytes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class LoopSpan:
    """Where a loop runs on the axis of a Side.

    Attributes:
      loops: names of the loops around it, its own last.
      start: where it starts.
      end: where it ends.
      iterations: how many.
      source: the user's line.
      is_gradient: whether it is the gradient of another loop.
    """

    loops: tuple[str, ...]
    start: float
    end: float
    iterations: int
    source: str
    is_gradient: bool = False


@dataclasses.dataclass(frozen=True)
class Curve:
    """Memory over one run as it was measured.

    Attributes:
      x: moments on the axis of the Side, rising; loops end where they are predicted to, and in
        between it goes by allocations and releases.
      bytes: in use above the resident state.
    """

    x: tuple[float, ...]
    bytes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Side:
    """One variant of the function: its predicted memory above the resident state.

    Attributes:
      name: ``before`` or ``after``.
      peak_bytes: the predicted peak; None where a size that matters is unknown.
      peak_interval: the lowest and the highest that a run may have; None where it is unknown.
      measured_bytes: the allocator's peak; None where nothing was measured.
      parts: what the predicted peak consists of, largest first; their bytes add up to it.
      peak_x: where on the axis the peak is.
      peak_op: the op that makes it.
      peak_source: the user's line of it.
      x: moments, rising.
      areas: as they are stacked, the lowest first; at every moment they add up to what is in use.
      spans: the loops.
      unknown: names of blobs whose size, and of loops whose trip count, is unknown.
      gradient_x: where on the axis the gradient begins; None where there is none.
      measured: memory over one run as TensorFlow's allocator saw it; None where that is not known.
    """

    name: str
    peak_bytes: int | None
    measured_bytes: int | None = None
    parts: tuple[Part, ...] = ()
    peak_x: float = 0.0
    peak_op: str = ""
    peak_source: str = ""
    x: tuple[float, ...] = ()
    areas: tuple[Area, ...] = ()
    spans: tuple[LoopSpan, ...] = ()
    unknown: tuple[str, ...] = ()
    gradient_x: float | None = None
    measured: Curve | None = None
    peak_interval: tuple[int, int] | None = None

    @property
    def told_peak(self) -> str:
        """The predicted peak as text."""
        return format_interval(self.peak_interval, self.peak_bytes)

    @property
    def totals(self) -> tuple[int, ...]:
        """Bytes in use at each moment."""
        return tuple(
            sum(values) for values in zip(*(area.bytes for area in self.areas), strict=True)
        )

    def by_kind(self) -> dict[str, int]:
        """Kind -> its bytes at the peak, the largest first."""
        sums: dict[str, int] = {}
        for part in self.parts:
            sums[part.kind] = sums.get(part.kind, 0) + part.bytes
        return dict(sorted(sums.items(), key=lambda item: -item[1]))


@dataclasses.dataclass(frozen=True)
class Node:
    """One op of a step net, as it is drawn.

    Attributes:
      name: of the op (of a blob, where it is an input of the step net).
      type: op type, ``state`` or ``invariant``.
      dtype: of its first output.
      shape: of its first output.
      bytes: of its outputs, None where unknown.
      source: the user's line; of a state, the one that makes its next value.
      decision: saved, recomputed, invariant, hoisted; empty: a temporary.
      reason: why.
      opens: id of the step net that a click on it opens, or empty.
      title: the user's name of the variable or argument that it is; empty: it has none.
    """

    name: str
    type: str
    dtype: str
    shape: Shape
    bytes: int | None
    source: str
    decision: str = ""
    reason: str = ""
    opens: str = ""
    title: str = ""


@dataclasses.dataclass(frozen=True)
class Graph:
    """A step net as a graph.

    Attributes:
      id: unique in the report.
      title: for people.
      loops: names of the loops whose step net this is; empty: the whole function.
      side: ``before`` or ``after``.
      nodes: its ops, without constants, lists and counters.
      edges: pairs of positions in ``nodes``.
      left_out: how many ops were too many to draw.
      left_bytes: what the largest of those writes.
    """

    id: str
    title: str
    loops: tuple[str, ...]
    side: str
    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...]
    left_out: int = 0
    left_bytes: int = 0
