"""A simulated run as stacked areas over some hundred moments, and the parts of its peak."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from rnnmem.planning.outcomes import REPLAYED, Outcome
from rnnmem.reports.data import (
    ALLOCATOR,
    KINDS,
    RECOMPUTED,
    SAVED,
    TEMPORARY,
    Area,
    LoopSpan,
    Part,
    Side,
)
from rnnmem.reports.kinds import Kinds, Place
from rnnmem.reports.rows import alike, largest
from rnnmem.simulate.buffers import Origin, Span, shares
from rnnmem.simulate.timeline import Record

MOMENTS = 300
"""Moments that a timeline is told at, about; the highest of each stretch is among them."""
NAMED = 40
"""Blobs that have an area of their own, beside those of the largest rows at the peak; the others
share one for each kind."""
SPANS = 400
"""Runs of loops that are listed."""

_STANDS_OUT = 0.5
"""Of the others, the share that must be through before a loop begins later than its first entry."""
_RESTS = {
    TEMPORARY: "other temporaries",
    SAVED: "other saved blobs",
    RECOMPUTED: "other recomputed",
}
_AGAIN = "not kept any more: the gradient step net computes it when it needs it"


def side(name: str, record: Record, kinds: Kinds) -> Side:
    """The timeline of one variant.

    Args:
      name: ``before`` or ``after``.
      record: its simulated run.
      kinds: sorts its blobs.
    """
    if record.unknown or not record.log:
        unknown = record.unknown
        return Side(name, None if unknown else 0, unknown=unknown)
    axis = _axis(record)
    peak = max(range(len(record.log)), key=record.in_use.__getitem__)
    chosen = _moments(record, axis, peak)
    parts = _Parts(record, kinds, peak)
    areas, at_peak = parts.areas(chosen), parts.at_peak
    origin = record.log[peak][0].origin
    begins = _gradient_x(record, axis, kinds)
    return Side(
        name=name,
        peak_bytes=record.in_use[peak],
        parts=at_peak,
        peak_x=axis[peak],
        peak_op="/".join((*origin.loops, origin.op)),
        peak_source=kinds.line(origin),
        x=tuple(axis[index] for index in chosen),
        areas=areas,
        spans=_spans(record, axis, kinds, begins),
        gradient_x=begins,
    )


def _gradient_x(record: Record, axis: list[float], kinds: Kinds) -> float | None:
    """Where the gradient begins: what parts its changes best from those of the forward part.

    Some of its ops (zeros, shapes) wait for nothing, and run long before. Where all do, there is
    no such place.
    """
    is_gradient = {
        id(origin): kinds.is_of_gradient(origin)
        for origin in (holder.origin for holder, _, _ in record.log)
    }
    if not any(is_gradient.values()):
        return None
    balance = best = 0
    start = 0.0
    for place, (holder, _, _) in zip(axis, record.log, strict=True):
        balance += -1 if is_gradient[id(holder.origin)] else 1
        if balance > best:
            best, start = balance, place
    return start if best and start < axis[-1] else None


def _axis(record: Record) -> list[float]:
    """Where each entry of the log stands: iterations that were not simulated take their room."""
    widths = [1.0] * len(record.log)
    for span in record.spans:
        if not span.skipped:
            continue
        first, behind = span.extrapolation
        width = span.skipped * (first - span.start) / span.steady_state
        for index in range(first, behind) or range(first, min(first + 1, len(widths))):
            widths[index] = width / max(1, behind - first)
    place, axis = 0.0, []
    for width in widths:
        place += width
        axis.append(round(place, 1))
    return axis


def _moments(record: Record, axis: list[float], peak: int) -> list[int]:
    """Entries to tell of: the highest of each stretch, and both ends of each extrapolation.

    Inside of one there are none: its entries stand for many iterations each, one blob behind the
    other, while the iterations took a little of every blob in turn.
    """
    chosen = {0, peak, len(axis) - 1}
    inside: set[int] = set()
    for span in record.spans:
        if span.skipped and span.extrapolation[0]:
            first, behind = span.extrapolation
            inside.update(range(first, behind - 1))
            if len(chosen) < MOMENTS:
                chosen.update({first - 1, behind - 1})
    stretch = axis[-1] / MOMENTS
    best, number = 0, 0
    for index, place in enumerate(axis):
        if place > stretch * (number + 1):
            chosen.add(best)
            best, number = index, int(place / stretch)
        elif index not in inside and record.in_use[index] > record.in_use[best]:
            best = index
    chosen.add(best)
    return sorted(chosen - inside | {peak})


class _Parts:
    """Which buffers make which part, how many bytes it takes when, and all parts at the peak."""

    def __init__(self, record: Record, kinds: Kinds, peak: int):
        self.record = record
        self.kinds = kinds
        self.described: dict[tuple, Part] = {}
        self.key_of: dict[int, tuple] = {}  # of an origin
        most, held = self._most(peak)
        rounding = _chunks(record.in_use[peak] - record.log[peak][2])
        found = [part for part in (*map(self._part, held, held.values()), rounding) if part.bytes]
        self.at_peak = tuple(sorted(found, key=lambda part: -part.bytes))
        ceiling = max(record.in_use) / 500
        order = sorted(most, key=lambda key: -most[key])
        numbered = {alike(row[0]) for row in largest(self.at_peak)}
        self.named = {key for key in order[:NAMED] if most[key] > ceiling}
        self.named |= {key for key in held if alike(self.described[key]) in numbered}

    def areas(self, chosen: Sequence[int]) -> tuple[Area, ...]:
        """The areas over the chosen entries."""
        wanted = set(chosen)
        live: dict[tuple, int] = {}
        areas: dict[tuple, dict[int, int]] = {}
        for index, (holder, change, _) in enumerate(self.record.log):
            for origin, share in shares(holder, change):
                key = self.key_of[id(origin)]
                size = live[key] = live.get(key, 0) + share
                if not size:
                    del live[key]
            if index in wanted:
                for one, size in live.items():
                    group = one if one in self.named else self._rest(one)
                    held = areas.setdefault(group, {})
                    held[index] = held.get(index, 0) + size
        lost = tuple(self.record.in_use[index] - self.record.log[index][2] for index in chosen)
        made = [
            Area(self._named(key, max(held.values())), tuple(held.get(i, 0) for i in chosen))
            for key, held in areas.items()
        ]
        order = list(KINDS)
        made.sort(key=lambda area: (order.index(area.part.kind), -area.part.bytes))
        return (*made, Area(_chunks(max(lost)), lost))

    def _most(self, peak: int) -> tuple[dict[tuple, int], dict[tuple, int]]:
        """Part -> the most bytes that it takes at once, and those that it takes at the peak."""
        live: dict[tuple, int] = {}
        most: dict[tuple, int] = {}
        held: dict[tuple, int] = {}
        for index, (holder, total, _) in enumerate(self.record.log):
            for origin, change in shares(holder, total):
                key = self.key_of.get(id(origin))
                if key is None:
                    key = self.key_of[id(origin)] = self._key(origin)
                size = live[key] = live.get(key, 0) + change
                if size > most.get(key, 0):
                    most[key] = size
            if index == peak:
                held = {key: size for key, size in live.items() if size}
        return most, held

    def _key(self, origin: Origin) -> tuple:
        kind = self.kinds.kind(origin)
        blob = origin.saved_in or origin.blob
        key = (kind, origin.place, blob)
        if key not in self.described:
            self.described[key] = self._described(kind, blob, origin)
        return key

    def _described(self, kind: str, blob: str, origin: Origin) -> Part:
        told = self.kinds.outcome(origin)
        if kind == RECOMPUTED:
            replayed = told is not None and told.word == REPLAYED
            told = Outcome(REPLAYED if replayed else RECOMPUTED, told.reason if told else _AGAIN)
        if kind not in (SAVED, TEMPORARY, RECOMPUTED):
            told = None
        return Part(
            label=f"{'/'.join(origin.place)}: {blob}" if origin.place else blob,
            kind=kind,
            bytes=0,
            op_type=self.kinds.type_of(origin),
            dtype="" if origin.dtype == "variant" else origin.dtype,
            shape=origin.shape,
            source=self.kinds.line(origin),
            loops=origin.place,
            decision=told.word if told else "",
            reason=told.reason if told else "",
        )

    def _rest(self, key: tuple) -> tuple:
        return key[0], (), ""

    def _named(self, key: tuple, size: int) -> Part:
        if key in self.described:
            return self._part(key, size)
        return Part(_RESTS.get(key[0], f"other {key[0]}s"), key[0], size)

    def _part(self, key: tuple, size: int) -> Part:
        return dataclasses.replace(self.described[key], bytes=size)


def _chunks(size: int) -> Part:
    return Part("allocator rounding", ALLOCATOR, size, reason=KINDS[ALLOCATOR])


def _spans(
    record: Record, axis: list[float], kinds: Kinds, begins: float | None
) -> tuple[LoopSpan, ...]:
    """The longest runs of loops; ``begins`` is where the gradient does."""
    found, own = [], _own_entries(record)
    for span in sorted(record.spans, key=lambda span: span.start - span.end)[:SPANS]:
        source = kinds.sources.get(span.loops, "")
        first = begun(own.get(span.loops, ()), span)
        start = axis[first - 1] if first else 0.0
        end = axis[max(0, span.end - 1)]
        gradient = not kinds.gradient_loops.isdisjoint(span.loops)
        if gradient and begins is not None and start < begins < end:
            start = begins  # its ops of before are few, as those are that do not move that line
        found.append(LoopSpan(span.loops, min(start, end), end, span.trips, source, gradient))
    return tuple(sorted(found, key=lambda span: (span.start, -span.end)))


def _own_entries(record: Record) -> Mapping[Place, list[int]]:
    """Loops -> which entries of the log they, and those inside of them, wrote."""
    found: dict[Place, list[int]] = {}
    for index, (holder, _, _) in enumerate(record.log):
        loops = holder.origin.loops
        for depth in range(1, len(loops) + 1):
            found.setdefault(loops[:depth], []).append(index)
    return found


def begun(own: Sequence[int], span: Span) -> int:
    """How many entries of the log stand before a run of a loop; its counters may be among them.

    others  ──────────────┐          a gradient loop is given its counter when the function starts,
    own     · ·           └───────   and runs where the forward loop has ended

    The run begins where the share of the others that is through is farthest ahead of its own
    share. Beside loops that run at the same time no such place stands out, and the span's start
    counts.

    Args:
      own: entries of the loop, rising.
      span: the run.
    """
    mine = own[bisect_left(own, span.start) : bisect_left(own, span.end)]
    others = span.end - span.start - len(mine)
    ahead = [
        (at - span.start - number) / max(1, others) - number / len(mine)
        for number, at in enumerate(mine)
    ]
    if not ahead or max(ahead) < _STANDS_OUT:
        return span.start
    return mine[ahead.index(max(ahead))]
