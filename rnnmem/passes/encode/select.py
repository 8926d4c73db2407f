"""In which forms accumulators may keep the blobs of one step net, and what each costs."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection

from rnnmem.analysis.held_bytes import stored_bytes
from rnnmem.analysis.loops import LoopPair
from rnnmem.analysis.machine import Machine, rounded
from rnnmem.grappler.summation_order import sums_of
from rnnmem.ir.devices import kind_of, where_is
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Blob, Net, Op, static
from rnnmem.ir.op_table import LOOPS, READ, UNKNOWN_DIMENSION
from rnnmem.ir.order import through_identities
from rnnmem.passes.encode.decision import BFLOAT16, BITS, OFFLOAD, Encoding
from rnnmem.passes.encode.formats import asks_sign_only, decides

_BITS_OPS, _ROUNDING_OPS, _COPIES = 16, 6, 2
"""Ops that encode and decode one blob (``passes/encode/codecs.py``)."""
_BITS_PASSES, _ROUNDING_PASSES = 3.0, 2.0
"""How often they go over its elements, at an addition's pace."""


class Codecs:
    """The forms of one pair's blobs, by the techniques that may be used."""

    def __init__(self, pair: LoopPair, machine: Machine, techniques: Collection[str]):
        self.body = pair.forward.body
        self.invariants = pair.forward.invariants
        self.gradients = pair.gradients
        self.machine = machine
        self.techniques = frozenset(techniques)

    def of(self, blob: str) -> tuple[Encoding, ...]:
        """The forms that take fewer bytes than the blob itself, where it may have another."""
        kind = self.body.blobs[blob]
        if not self.techniques or not self._may_change(blob, kind):
            return ()
        wide = kind.dtype in ("float32", "float64") and blob not in self._deciding
        packed = BITS in self.techniques and kind.dtype == "bool" and kind.shape is not None
        found = [self._packed(blob, kind)] if packed else []
        found += [self._rounded(blob, kind)] if wide and BFLOAT16 in self.techniques else []
        found += self._offloaded(blob, kind, found)
        return tuple(one for one in found if one.bytes < stored_bytes(kind))

    @functools.cached_property
    def _summed(self) -> frozenset[str]:
        """Blobs that a sum of a gradient loop might add up in place, were they just decoded."""
        return frozenset(
            link.pushed
            for gradient in self.gradients
            for link in gradient.links
            if link.popped in sums_of(gradient.loop.body).addends
        )

    @functools.cached_property
    def _deciding(self) -> frozenset[str]:
        """Blobs that a gradient loop compares, or makes whole numbers of."""
        return frozenset(
            link.pushed
            for gradient in self.gradients
            for link in gradient.links
            if decides(gradient.loop.body, link.popped)
        )

    def of_sign(self, blob: str) -> tuple[Encoding, ...]:
        """The forms of whether the elements of a blob are above 0."""
        kind = self.body.blobs[blob]
        may = BITS in self.techniques and kind.dtype.startswith(("float", "bfloat"))
        if not may or kind.shape is None or not self._may_change(blob, kind):
            return ()
        packed = self._packed(blob, kind)
        found = [packed, *self._offloaded(blob, kind, [packed])[1:]]
        return tuple(one for one in found if one.bytes < stored_bytes(kind))

    def without_offload(self, one: Encoding) -> Encoding | None:
        """The same form with the list on the device; None where that leaves nothing of it."""
        kind, techniques = self.body.blobs[one.blob], one.techniques[:-1]
        if one.techniques[-1] != OFFLOAD:
            return one
        if not techniques:
            return None
        return (self._packed if techniques == (BITS,) else self._rounded)(one.blob, kind)

    def _may_change(self, blob: str, kind: Blob) -> bool:
        source = through_identities(self.body, blob)
        producer = self.body.producer.get(source)
        # A variable's buffer lives anyway, and so does what is the same in every iteration.
        live_ranges = producer is not None and producer.type in (READ, *LOOPS)
        changes = not live_ranges and source not in self.invariants
        return changes and kind.dtype in BYTES_PER_ELEMENT and blob not in self._summed

    def _packed(self, blob: str, kind: Blob) -> Encoding:
        if kind.bytes is None:
            size = stored_bytes(kind) // (8 * BYTES_PER_ELEMENT[kind.dtype])
        else:
            size = -(-math.prod(static(kind.shape) or ()) // 8)
        return self._codec(blob, kind, (BITS,), rounded(max(1, size)), _BITS_OPS, _BITS_PASSES)

    def _rounded(self, blob: str, kind: Blob) -> Encoding:
        size = stored_bytes(Blob(blob, "bfloat16", kind.shape))
        if kind.bytes is None:
            size = rounded(max(1, stored_bytes(kind) // 2))
        return self._codec(blob, kind, (BFLOAT16,), size, _ROUNDING_OPS, _ROUNDING_PASSES)

    def _codec(
        self, blob: str, kind: Blob, techniques: tuple[str, ...], size: int, ops: int, passes: float
    ) -> Encoding:
        elements = math.prod(
            UNKNOWN_DIMENSION if one is None else one for one in (kind.shape or (None, None))
        )
        seconds = (
            ops * self.machine.launch_seconds
            + passes * elements / self.machine.pointwise_per_second
            + self.machine.seconds_to_keep(size)
        )
        return Encoding(blob, techniques, size, seconds)

    def _offloaded(self, blob: str, kind: Blob, found: list[Encoding]) -> list[Encoding]:
        """The blob itself, and each of its forms, on the host."""
        home = where_is(self.body, blob, self.machine.device)
        if OFFLOAD not in self.techniques or kind_of(home) == "CPU":
            return []
        plain = stored_bytes(kind)
        own = Encoding(blob, (), plain, self.machine.seconds_to_keep(plain))
        return [
            Encoding(
                blob,
                (*one.techniques, OFFLOAD),
                0,
                one.seconds
                + _COPIES * self.machine.launch_seconds
                + 2.0 * one.bytes / self.machine.host_bytes_per_second,
            )
            for one in (own, *found)
        ]


def signs_in(
    pair: LoopPair, live_in: Collection[str], codecs: Codecs
) -> tuple[Net, dict[str, str]]:
    """The forward step net with the sign of each blob of which the gradient asks no more.

    Args:
      pair: the pair.
      live_in: what the pair's gradient loops read, and nothing inside them.
      codecs: what may be kept, and how.

    Returns:
      The step net, and sign -> the blob that it is of.
    """
    body, signs, ops, blobs = pair.forward.body, {}, [], {}
    for blob in sorted(live_in) if BITS in codecs.techniques else ():
        popped = [
            (gradient.loop.body, link.popped)
            for gradient in pair.gradients
            for link in gradient.links
            if link.pushed == blob
        ]
        if not popped or not all(asks_sign_only(*one) for one in popped):
            continue
        if codecs.of_sign(blob):
            name = f"rnnmem/sign/{blob}"
            signs[name] = blob
            ops.append(Op(name, "Greater", (blob, blob), (name,)))
            blobs[name] = Blob(name, "bool", body.blobs[blob].shape)
    if not signs:
        return body, {}
    return body.replace(ops=(*body.ops, *ops), blobs={**body.blobs, **blobs}), signs
