"""What TensorFlow's allocator saw over one run, on the axis of the predicted timeline.

Both count allocations and releases, but not the same ones: the simulation leaves small values out,
and extrapolates. So the ends of loops are laid upon each other, and what is between is stretched:

    measured   ─── encoder ┤──── encoder, gradient ┤──
    predicted  ─ encoder ┤──────── encoder, gradient ┤─
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rnnmem.reports.data import Curve, Side
from rnnmem.reports.moments import MOMENTS

if TYPE_CHECKING:
    from rnnmem.tf.memory_trace import Change


@dataclasses.dataclass(frozen=True)
class Measured:
    """What was measured of one variant of a function.

    Attributes:
      peak: the allocator's peak above the resident state, in bytes; None where it is not known.
      changes: of the bytes in use over one run; empty where they are not known.
    """

    peak: int | None = None
    changes: tuple[Change, ...] = ()


def with_measured(side: Side, measured: Measured) -> Side:
    """The side with what was measured; the highest of the peaks counts."""
    side = dataclasses.replace(side, measured_bytes=measured.peak)
    changes = measured.changes
    if not changes or not side.x:
        return side
    sizes = np.array([one.bytes for one in changes])
    places = np.interp(np.arange(len(sizes)), *_anchors(side, changes))
    chosen = _moments(places, sizes)
    peak = max(int(sizes.max()), side.measured_bytes or 0)
    x = tuple(round(float(place), 1) for place in places[chosen])
    curve = Curve(x, tuple(int(size) for size in sizes[chosen]))
    return dataclasses.replace(side, measured=curve, measured_bytes=peak)


def _anchors(side: Side, changes: Sequence[Change]) -> tuple[list[int], list[float]]:
    """Numbers of changes, rising, and where on the axis they belong: where loops end.

    Where one begins is no mark: that its first counter is there says nothing.
    """
    pairs = [(0, side.x[0]), (len(changes) - 1, side.x[-1])]
    for span in (one for one in side.spans if len(one.loops) == 1):
        # TensorFlow's executor runs a loop's ops under names that begin so.
        starts = (f"{span.loops[0]}/body/_", f"{span.loops[0]}/cond/_")
        inside = [i for i, one in enumerate(changes) if one.op.startswith(starts)]
        if inside:
            pairs.append((inside[-1], span.end))
    pairs.sort(key=lambda pair: pair[1])
    numbers = np.maximum.accumulate([number for number, _ in pairs])
    return list(numbers), [place for _, place in pairs]


def _moments(places: np.ndarray, sizes: np.ndarray) -> list[int]:
    """Changes to tell of: the highest and the lowest of each stretch of the axis."""
    stretches = np.minimum(places / max(places[-1], 1e-9) * MOMENTS, MOMENTS - 1).astype(int)
    starts = np.flatnonzero(np.diff(stretches, prepend=-1))
    chosen = {0, len(sizes) - 1}
    for start, end in zip(starts, [*starts[1:], len(sizes)], strict=True):
        part = sizes[start:end]
        chosen |= {int(start + part.argmax()), int(start + part.argmin())}
    return sorted(chosen)


def gaps(side: Side) -> tuple[tuple[int, float], tuple[int, float]] | None:
    """Where truth and prediction part most: bytes measured above it, and below it, and where.

    Returns:
      (Most bytes above, its place on the axis), (most below, its place); None without a line.
    """
    if side.measured is None:
        return None
    predicted = np.interp(side.measured.x, side.x, side.totals)
    above = np.array(side.measured.bytes) - predicted
    most, least = int(above.argmax()), int(above.argmin())
    return (
        (max(0, round(above[most])), side.measured.x[most]),
        (max(0, round(-above[least])), side.measured.x[least]),
    )
