"""A whole step as a line: where its gradient begins, and where its forward part is narrow.

    ops      c0 ─ c1 ─ c2 ─ │ ─ d0 ─ d1 ─ d2 ─ │ ─ loss │ gradient of d │ gradient of c
    read     └──────────────┴── by the gradient ───────┘ turn

Blobs are read again and again, with one long gap between two uses where they wait for the gradient;
the *turn* is where most bytes wait. Where few bytes cross from one op of the forward part to the
next, a segment may end: its ops run again from what crosses there.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping

import numpy as np

from rnnmem.analysis.tape import given_ops, has_scope, is_float, is_of_tape
from rnnmem.grappler.cse import fan_out
from rnnmem.grappler.summation_order import merged_sums
from rnnmem.ir.graph import Blob, Net, Op
from rnnmem.ir.handed_on import handed_on
from rnnmem.ir.op_table import ASKS_SHAPE, BROADCASTS, READ, Work, facts, may_fuse
from rnnmem.ir.order import all_waiting_for, topological

SMALL = 0.01
"""Part of the largest residual, or of all of a segment, below which another one is small."""
SEGMENTS = (2, 4, 8, 12, 18, 27, 40)
"""Into how many segments the forward part is cut."""
LOWER = 0.9
"""Part of what segments hold that others must stay below to be tried, too."""
BISECTIONS = 8
"""Tries in which the least that segments may hold is found."""
ANYWHERE = -1
"""The place of what depends on constants, arguments and variables alone."""


class Line:
    """The ops of a Net in their order, and what of them is forward.

    Args:
      net: a whole step, inlined, with all shapes that are known; its ops as they were traced.
      sizes: the blobs with sizes, where the Net does not tell all.
    """

    def __init__(self, net: Net, sizes: Mapping[str, Blob] | None = None):
        self.sizes = net.blobs if sizes is None else sizes
        self.net = net.replace(ops=topological(net.ops))
        self.place = {op.name: index for index, op in enumerate(self.net.ops)}

    @functools.cached_property
    def given(self) -> frozenset[str]:
        """Blobs that are there anyway: arguments, what is read of variables, constants."""
        found = set(self.net.inputs)
        for op in self.net.ops:
            if op.type == READ or op.name in self.constant:
                found.update(op.outputs)
        return frozenset(found)

    @functools.cached_property
    def constant(self) -> frozenset[str]:
        """Names of the ops that compute from nothing but constants and shapes."""
        return given_ops(self.net)

    @functools.cached_property
    def root(self) -> Mapping[str, str]:
        """Blob -> the blob whose buffer it stands in, for those that stand in another's."""
        found: dict[str, str] = {}
        for op in self.net.ops:
            for read, written in handed_on(op):
                found[written] = found.get(read, read)
        return found

    def held(self, blob: str) -> int:
        """Bytes of the buffer that a blob stands in; of what is there anyway, none."""
        root = self.root.get(blob, blob)
        return 0 if root in self.given else self.sizes[root].bytes or 0

    @functools.cached_property
    def turn(self) -> int:
        """The place of the first op of the gradient.

        TensorFlow's tape names its ops; in other Nets it is where most bytes wait to be read.
        """
        first = next((at for at, op in enumerate(self.net.ops) if is_of_tape(self.net, op)), None)
        return self._widest if first is None else first

    @property
    def _widest(self) -> int:
        """Where most bytes wait to be read."""
        uses: dict[str, list[int]] = {}
        for index, op in enumerate(self.net.ops):
            for blob in (*op.inputs, *op.outputs):
                uses.setdefault(self.root.get(blob, blob), []).append(index)
        waiting = np.zeros(len(self.net.ops) + 1)
        for blob, places in uses.items():
            size = self.held(blob)
            if size and len(places) > 1:
                gaps = [(after - before, before) for before, after in itertools.pairwise(places)]
                gap, start = max(gaps)
                waiting[start + 1] += size
                waiting[start + gap + 1] -= size
        return int(np.argmax(np.cumsum(waiting)))

    @functools.cached_property
    def available(self) -> list[int]:
        """For each op, the place in the forward part from which on it could run."""
        found: list[int] = []
        of: dict[str, int] = dict.fromkeys(self.given, ANYWHERE)
        for index, op in enumerate(self.net.ops):
            if index < self.turn:
                found.append(index)
            else:
                others = [found[self.place[name]] for name in op.controls if name in self.place]
                found.append(max([of[blob] for blob in op.inputs] + others, default=ANYWHERE))
            for blob in op.outputs:
                of.setdefault(blob, found[-1])
        return found

    @functools.cached_property
    def residuals(self) -> list[str]:
        """Blobs of the forward part that ops of the gradient read, beside their shape."""
        found = dict.fromkeys(
            blob
            for op in self.net.ops[self.turn :]
            if op.type not in ASKS_SHAPE
            for blob in op.inputs
            if blob not in self.given
        )
        ends = self.net.producer
        return [one for one in found if one in ends and self.place[ends[one].name] < self.turn]

    @functools.cached_property
    def last(self) -> int:
        """The place of the op that writes the last large residual."""
        size_of = {one: self.held(one) for one in self.residuals}
        least = SMALL * max(size_of.values(), default=0)
        large = (blob for blob, size in size_of.items() if size >= max(1, least))
        return max((self.place[self.net.producer[one].name] for one in large), default=0)

    @functools.cached_property
    def positions(self) -> list[int | None]:
        """For each op, where it stands in the forward part; None: it is of the gradient.

        What the gradient computes of residuals alone, before anything arrives, stands behind them.
        """
        apart = self.constant | self._arriving
        return [
            index
            if index < self.turn
            else early
            if 0 <= early < self.last and facts(op) is not None and op.name not in apart
            else None
            for index, (op, early) in enumerate(zip(self.net.ops, self.available, strict=True))
        ]

    @functools.cached_property
    def _arriving(self) -> frozenset[str]:
        """Names of the ops that compute from the gradient of a sum or a mean, and make products.

        It is a constant, repeated, so that of one loss may run before another loss is computed.
        """
        return frozenset(all_waiting_for(self.net, self._repeated))

    @property
    def _repeated(self) -> set[str]:
        """Names of the ops that repeat such a constant, of which products are made early."""
        found: set[str] = set()
        early: set[str] = set()  # of which products are made
        for index in reversed(range(len(self.net.ops))):
            op = self.net.ops[index]
            if self.available[index] >= self.last:
                continue
            known = facts(op)
            readers = (one.name for blob in op.outputs for one in self.net.readers.get(blob, ()))
            multiplies = known is not None and known.work is Work.PRODUCT
            if not multiplies and early.isdisjoint(readers):
                continue
            early.add(op.name)
            repeats = op.type in BROADCASTS and is_float(self.net.blobs[op.outputs[0]])
            if repeats and (index >= self.turn or has_scope(op)):
                found.add(op.name)
        return found

    def position(self, op: Op) -> int | None:
        """Where the op stands in the forward part; None: it is of the gradient."""
        return self.positions[self.place[op.name]]

    @functools.cached_property
    def waiting(self) -> np.ndarray:
        """For each place of the forward part, bytes written there that the gradient reads."""
        found = np.zeros(self.turn)
        seen: set[str] = set()
        for op in self.net.ops[self.turn :]:
            if op.type in ASKS_SHAPE or self.position(op) is not None:
                continue
            for blob in op.inputs:
                root = self.root.get(blob, blob)
                producer = self.net.producer.get(root)
                if producer is None or root in seen:
                    continue
                seen.add(root)
                position = self.position(producer)
                if position is not None:
                    found[position] += self.held(root)
        return found

    @functools.cached_property
    def out_of_reach(self) -> frozenset[str]:
        """Blobs that clones do not read: one more reader of them might change bits.

        An addend that the gradient does not hold, and what a graph optimizer may fuse with its only
        reader.
        """
        net, held, addends = self.net, set(self.residuals), merged_sums(self.net).addends
        return frozenset(
            blob
            for op in net.ops[: self.turn]
            for blob in op.outputs
            if blob not in self.given
            and blob not in held
            and (blob in addends or self._may_be_fused(op, blob))
        )

    def _may_be_fused(self, op: Op, blob: str) -> bool:
        readers = self.net.readers.get(blob, ())
        return fan_out(self.net, blob) == 1 and any(may_fuse(op, one) for one in readers)

    @functools.cached_property
    def crossing(self) -> np.ndarray:
        """For each place, bytes that clones behind it may read of the forward part before it."""
        first: dict[str, int] = {}
        ends: dict[str, int] = {}
        for index, op in enumerate(self.net.ops[: self.turn]):
            for blob in op.inputs:
                if blob not in self.out_of_reach:
                    ends[self.root.get(blob, blob)] = index
            for blob in op.outputs:
                first.setdefault(self.root.get(blob, blob), index)
        found = np.zeros(self.turn + 1)
        for blob, end in ends.items():
            if blob in first:
                found[first[blob] + 1] += self.held(blob)
                found[end + 1] -= self.held(blob)
        return np.cumsum(found)[: self.turn]

    @functools.cached_property
    def open_crossing(self) -> np.ndarray:
        """The same where all that crosses is within reach, and infinite elsewhere."""
        found = self.crossing.copy()
        for index, op in enumerate(self.net.ops[: self.turn]):
            for blob in self.out_of_reach.intersection(op.outputs):
                reads = [self.place[one.name] for one in self.net.readers.get(blob, ())]
                end = max((one for one in reads if one < self.turn), default=index)
                found[index + 1 : end + 1] = math.inf
        return found

    @property
    def all_cuts(self) -> tuple[tuple[int, ...], ...]:
        """Some ways to cut the forward part in segments.

        Segments end where something out of reach crosses only if less is held by that.
        """
        found: dict[tuple[int, ...], None] = {}
        least = math.inf
        for crossing in (self.open_crossing, self.crossing):
            held, places = self.balanced(crossing)
            if held < LOWER * least:
                found[places] = None
                found.update((self.cuts(count, crossing), None) for count in SEGMENTS)
            least = min(least, held)
        return tuple(filter(None, found))

    def cuts(self, count: int, crossing: np.ndarray) -> tuple[int, ...]:
        """Places that cut the forward part in about so many segments of equal residuals.

        Args:
          count: how many segments.
          crossing: for each place, bytes that cross it.
        """
        most = float(self.waiting.sum()) / count
        found: list[int] = []
        start, best, sum_ = 0, None, 0.0
        for place in range(1, self.turn):
            sum_ += self.waiting[place - 1]
            if sum_ > most and best is not None:
                found.append(best)
                sum_ = float(self.waiting[best:place].sum())
                start, best = best, None
            wide = crossing[place]
            narrow = best is None or wide <= crossing[best]
            if wide < math.inf and sum_ >= most / 2 and narrow and place > start:
                best = place
        return tuple(found)

    def balanced(self, crossing: np.ndarray) -> tuple[float, tuple[int, ...]]:
        """Places that cut the forward part so that about the least is held at the worst moment.

        A segment runs again while what the ones before it have saved is held, so each is smaller
        than the one before.

        Args:
          crossing: for each place, bytes that cross it.

        Returns:
          The bytes that are held then, at most, and the places.
        """
        found: tuple[int, ...] = ()
        low, high = 0.0, float(self.waiting.sum())
        bytes_crossing = crossing.tolist()
        for _ in range(BISECTIONS):
            most = (low + high) / 2
            cuts = self._within(most, bytes_crossing)
            low, high = (most, high) if cuts is None else (low, most)
            found = found if cuts is None else cuts
        return high, found

    def _within(self, most: float, crossing: list[float]) -> tuple[int, ...] | None:
        """Places by which no segment, with what was saved before it, has more; None: none do."""
        found: list[int] = []
        start, best, saved, sum_ = 0, None, 0.0, 0.0
        waiting = self.waiting.tolist()
        for place in range(1, self.turn):
            sum_ += waiting[place - 1]
            if saved + sum_ > most:
                if best is None:
                    return None
                found.append(best)
                saved += crossing[best]
                sum_ = sum(waiting[best:place])
                start, best = best, None
                if saved + sum_ > most:
                    return None
            wide = crossing[place]
            narrow = best is None or wide <= crossing[best]
            if wide < math.inf and narrow and place > start and 2 * (saved + sum_) >= most + saved:
                best = place
        return tuple(found)
