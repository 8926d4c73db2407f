"""A simulated run as stacked areas over some hundred moments, and the parts of its peak."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

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
from rnnmem.reports.kinds import Kinds
from rnnmem.simulate.buffers import Origin, shares
from rnnmem.simulate.timeline import Record

MOMENTS = 300
"""Moments that a timeline is told at, about; the highest of each stretch is among them."""
NAMED = 40
"""Blobs that have an area of their own; the others share one for each kind."""
SPANS = 400
"""Runs of loops that are listed."""

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
    parts = _Parts(record, kinds)
    chosen = _moments(record, axis, peak)
    areas, at_peak = parts.at(chosen, peak)
    origin = record.log[peak][0].origin
    return Side(
        name=name,
        peak_bytes=record.in_use[peak],
        parts=at_peak,
        peak_x=axis[peak],
        peak_op="/".join((*origin.loops, origin.op)),
        peak_source=kinds.line(origin),
        x=tuple(axis[index] for index in chosen),
        areas=areas,
        spans=_spans(record, axis, kinds),
        gradient_x=_gradient_x(record, axis, kinds),
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
    """Which buffers make which part, and how many bytes it takes when."""

    def __init__(self, record: Record, kinds: Kinds):
        self.record = record
        self.kinds = kinds
        self.described: dict[tuple, Part] = {}
        self.key_of: dict[int, tuple] = {}  # of an origin
        most = self._most()
        ceiling = max(record.in_use) / 500
        order = sorted(most, key=lambda key: -most[key])
        self.named = {key for key in order[:NAMED] if most[key] > ceiling}
        self.most = most

    def at(self, chosen: Sequence[int], peak: int) -> tuple[tuple[Area, ...], tuple[Part, ...]]:
        """The areas over the chosen entries, and every part alive at the peak."""
        wanted = set(chosen)
        live: dict[tuple, int] = {}
        areas: dict[tuple, dict[int, int]] = {}
        at_peak: list[Part] = []
        for index, (holder, change, total) in enumerate(self.record.log):
            for origin, share in shares(holder, change):
                key = self.key_of[id(origin)]
                size = live[key] = live.get(key, 0) + share
                if not size:
                    del live[key]
            if index == peak:
                at_peak = [self._part(one, size) for one, size in live.items()]
                at_peak.append(_chunks(self.record.in_use[index] - total))
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
        made.append(Area(_chunks(max(lost)), lost))
        parts = sorted((part for part in at_peak if part.bytes), key=lambda part: -part.bytes)
        return tuple(made), tuple(parts)

    def _most(self) -> dict[tuple, int]:
        """Part -> the most bytes that it takes at once."""
        live: dict[tuple, int] = {}
        most: dict[tuple, int] = {}
        for origin, change in (one for entry in self.record.log for one in shares(*entry[:2])):
            key = self.key_of.get(id(origin))
            if key is None:
                key = self.key_of[id(origin)] = self._key(origin)
            size = live[key] = live.get(key, 0) + change
            if size > most.get(key, 0):
                most[key] = size
        return most

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


def _spans(record: Record, axis: list[float], kinds: Kinds) -> tuple[LoopSpan, ...]:
    found = []
    for span in sorted(record.spans, key=lambda span: span.start - span.end)[:SPANS]:
        source = kinds.sources.get(span.loops, "")
        last = len(axis) - 1
        start = axis[min(span.start, last)] if span.start else 0.0
        end = axis[max(0, span.end - 1)]
        gradient = not kinds.gradient_loops.isdisjoint(span.loops)
        found.append(LoopSpan(span.loops, start, end, span.trips, source, gradient))
    return tuple(sorted(found, key=lambda span: (span.start, -span.end)))
