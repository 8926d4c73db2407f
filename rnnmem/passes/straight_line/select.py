"""Which residuals outside of loops run again, and when: for each bound on time the best regions.

The forward part is cut into segments where it is narrow. What each saves is a minimum cut at a
price, as in a step net; what it reads of segments before it is saved for it. Its clones start when
the gradient arrives there, so that one segment's are alive at a time: by segments of about the root
of all ops, memory falls to the root (Chen et al. 2016). How fine the segments are, and the price,
is tried; what no gradient arrives at, or may not run twice, stays as it was.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from rnnmem.analysis.training_regions import NestedStep
from rnnmem.grappler.fusion import may_have_proxy
from rnnmem.grappler.summation_order import merged_sums, merged_trees
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Blob, Net, Op
from rnnmem.ir.marks import OWNED
from rnnmem.ir.op_table import ASKS_SHAPE
from rnnmem.ir.order import reached
from rnnmem.ir.requests import RECOMPUTE
from rnnmem.passes.rematerialise.min_cut import SavedSet, Step, choose_saved_set, is_constant
from rnnmem.passes.rematerialise.requests import asked, granting, ops_kept
from rnnmem.passes.straight_line.decision import Region
from rnnmem.passes.straight_line.races import Races
from rnnmem.passes.straight_line.segments import ANYWHERE, SMALL, Line

PRICES = (0.0, 3e8, 1e9, 3e9, 1e10)
"""Bytes for which a second is spent; a residual that costs more stays as it was."""
MOST = 8
"""Candidates that are handed on, those of the least estimated peak."""
LEAST = 2**20
"""Bytes of residuals below which nothing is tried."""
DEAREST = 1e15
"""Bytes for a second at which nothing runs again but what the user asked for."""
NEAR = 64
"""Ops of the gradient that are looked at for one to wait for."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Regions that go together.

    Attributes:
      regions: in the order of the gradient.
      peak: bytes of residuals that are held at the worst moment, an estimate.
      spared: bytes by which that is less than without them, an estimate.
      seconds: estimated time of all clones.
      asked: how many blobs run again that the user asked to recompute.
    """

    regions: tuple[Region, ...]
    peak: int
    spared: int
    seconds: float
    asked: int = 0


def candidates(
    net: Net,
    seconds: Callable[[Op, Net], float],
    most: float,
    sizes: Mapping[str, Blob] | None = None,
    nested_step: NestedStep | None = None,
    runs_once: frozenset[str] = frozenset(),
) -> tuple[Candidate, ...]:
    """Choices of regions, those of the least estimated peak first; see `Choices`."""
    return Choices(net, seconds, sizes, nested_step, runs_once).within(most)


class Choices:
    """Choices of regions for a Net; most of them do not depend on the time that is allowed.

    Args:
      net: the whole step, inlined, with all shapes that are known.
      seconds: estimated time of one run of an op of a Net.
      sizes: the blobs with sizes, where the Net does not tell all.
      nested_step: where the Net is a step net; None for an outermost one.
      runs_once: names of ops that do not run again, though they might.
    """

    def __init__(
        self,
        net: Net,
        seconds: Callable[[Op, Net], float],
        sizes: Mapping[str, Blob] | None = None,
        nested_step: NestedStep | None = None,
        runs_once: frozenset[str] = frozenset(),
    ):
        passing = () if nested_step is None else set(net.inputs).difference(net.outputs)
        held = merged_sums(net).addends.intersection(passing)
        self.net, self.seconds = net, seconds
        self.line = net.once(Line) if sizes is None else Line(net, sizes)
        once = {one.name for blob in held for one in net.readers.get(blob, ())}
        self.once = runs_once | once | ops_kept(net)
        self.asked = asked(net, RECOMPUTE)

    def within(self, most: float) -> tuple[Candidate, ...]:
        """Those whose clones take no more time, those of the least estimated peak first.

        Where the user asked to recompute something, those that do so for most, whatever it takes.
        """
        if not self.asked and (self.line.waiting.sum() < LEAST or most <= 0):
            return ()
        found = [made for segmented in self._segmented for made in segmented.within(most)]
        orderly = list(itertools.islice(self._orderly(found), MOST))
        most_asked = max((one.asked for one in orderly), default=0)
        return tuple(one for one in orderly if one.asked == most_asked)

    def _orderly(self, found: Iterable[_Choice]) -> Iterator[Candidate]:
        """The choices, best first, without regions that would decide a race; estimated so."""
        seen: set[tuple[Region, ...]] = set()
        left = [(_rank(one.candidate), number, one) for number, one in enumerate(found)]
        heapq.heapify(left)
        while left:
            _, number, one = heapq.heappop(left)
            if one.candidate.regions in seen:
                continue
            settled = one if one.is_settled else one.settled(self._races)
            if settled is one:
                seen.add(one.candidate.regions)
                yield one.candidate
            elif settled is not None:
                heapq.heappush(left, (_rank(settled.candidate), number, settled))

    @functools.cached_property
    def _segmented(self) -> list[_Segmented]:
        line = self.line
        cuts = dict.fromkeys((*line.all_cuts, *self._behind_asked))
        return [_Segmented(line, one, self.seconds, self.once, self.asked) for one in cuts]

    @property
    def _behind_asked(self) -> Iterator[tuple[int, ...]]:
        """One cut behind all residuals that the user asked to recompute."""
        ends = [self.line.net.producer[one] for one in self.line.residuals if one in self.asked]
        places = [place for op in ends if (place := self.line.position(op)) is not None]
        if places:
            yield (max(places) + 1,)

    @functools.cached_property
    def _races(self) -> Races:
        return Races(self.line, self.seconds)


def _rank(candidate: Candidate) -> tuple[float, ...]:
    """What is better comes first."""
    return -candidate.asked, candidate.peak, candidate.seconds


@dataclasses.dataclass(frozen=True)
class _Choice:
    """A candidate, and what it was made of.

    Attributes:
      candidate: itself.
      segmented: the line, as it is cut.
      chosen: by segment, what is saved.
      regions: by segment, what runs again.
      is_settled: whether no region decides who comes first of a sum and a reader.
    """

    candidate: Candidate
    segmented: _Segmented
    chosen: dict[int, SavedSet]
    regions: dict[int, Region]
    is_settled: bool = False

    def settled(self, races: Races) -> _Choice | None:
        """The choice without regions that would decide a race; None where none is left."""
        settled = {number: races.settled(region) for number, region in self.regions.items()}
        kept = {number: one for number, one in settled.items() if one is not None}
        return self.segmented.choice(self.chosen, kept, is_settled=True) if kept else None


class _Segmented:
    """A line that is cut in segments."""

    def __init__(
        self,
        line: Line,
        cuts: Sequence[int],
        seconds: Callable[[Op, Net], float],
        runs_once: frozenset[str],
        asked: frozenset[str],
    ):
        self.line, self.net, self.seconds, self.runs_once = line, line.net, seconds, runs_once
        self.asked = asked
        self.ends = (*cuts,)
        self.ops: list[list[Op]] = [[] for _ in cuts]
        self.segment: dict[str, int] = {}  # op -> its segment, but for the last one
        for position, index in sorted(self._placed()):
            op, number = self.net.ops[index], bisect.bisect_right(self.ends, position)
            self.ops[number].append(op)
            self.segment[op.name] = number
        self._arrived: dict[tuple[int, int], tuple[str, ...]] = {}
        self.sums = {op.name for tree in merged_trees(self.net) for op in tree}
        self.steps = [self._step(number) for number in range(len(cuts))]

    def _placed(self) -> Iterator[tuple[int, int]]:
        """(position, place) of each op of the forward part that stands before the last segment."""
        for index, op in enumerate(self.net.ops):
            position = self.line.position(op)
            if position is not None and position < self.ends[-1]:
                yield position, index

    def _is_gradient(self, op: Op) -> bool:
        return self.line.place[op.name] >= self.line.turn and op.name not in self.segment

    def _readers(self, blob: str) -> list[Op]:
        """The ops of the gradient that read a blob, beside its shape."""
        return [
            one
            for one in self.net.readers.get(blob, ())
            if one.type not in ASKS_SHAPE and self._is_gradient(one)
        ]

    def _step(self, number: int) -> Step:
        ops = self.ops[number]
        written = [blob for op in ops for blob in op.outputs]
        live_in = frozenset(
            blob for blob in written if blob not in self.line.given and self._readers(blob)
        )
        sums = merged_sums(self.net)
        given = {blob for op in ops for blob in op.inputs}.difference(written)
        outside = set(self.net.outputs)
        wanted = live_in & self.asked - outside
        step = Step(
            body=self.net.replace(ops=tuple(ops)),
            invariants=frozenset(given | outside | (self.line.given - live_in)),
            live_in=live_in - outside,
            pushed=live_in - outside,
            seconds=self.seconds,
            free=live_in & (sums.addends | self._small(live_in) - wanted) - outside,
            never=frozenset(op.name for op in ops if self._stays(op, given)),
            addends=sums.addends,
        )
        return granting(step, wanted)

    def _small(self, residuals: Collection[str]) -> set[str]:
        """Those for which no clone need run, perhaps long before the readers of the others."""
        least = SMALL * sum(map(self.line.held, residuals))
        plain = (one for one in residuals if self.net.blobs[one].dtype in BYTES_PER_ELEMENT)
        return {one for one in plain if self.line.held(one) < least}

    def _stays(self, op: Op, given: Collection[str]) -> bool:
        """Loops, sums, and buffers that chunks of rows are written into run once.

        So does what waits for others without reading of them, and what reads something of a segment
        before that has no more readers than it had.
        """
        kept = op.name in self.sums or op.name in self.runs_once
        missing = any(blob in given and blob in self.line.out_of_reach for blob in op.inputs)
        return bool(op.nets or op.controls) or kept or missing or OWNED in op.attributes

    def within(self, most: float) -> Iterator[_Choice]:
        """Choices at one price each, and between, that take no longer."""
        needed = {at: one.seconds for at, one in self._at_prices[-1][1].items() if one.asked}
        for chosen, regions in self._at_prices:
            taken = dict(_best_first(regions, most, needed))
            if taken:
                yield self.choice(chosen, taken)

    def choice(
        self, chosen: Mapping[int, SavedSet], regions: dict[int, Region], is_settled: bool = False
    ) -> _Choice:
        """The choice of these regions, of segments of which that is saved."""
        own = {number: chosen[number] for number in regions}
        return _Choice(self._candidate(own, regions), self, own, regions, is_settled)

    @functools.cached_property
    def _at_prices(self) -> list[tuple[dict[int, SavedSet], dict[int, Region]]]:
        """At each price what is saved, and what runs again, of the segments where that gains."""
        found = []
        for price in (*PRICES, *([DEAREST] if self.asked else [])):
            chosen: dict[int, SavedSet] = {}
            regions: dict[int, Region] = {}
            read: set[str] = set()  # by clones of segments behind: that is held for them anyway
            for number, step in reversed([*enumerate(self.steps)]):
                free = step.free | read & step.body.producer.keys() - step.recomputed
                step = dataclasses.replace(step, free=free)
                one = choose_saved_set(step, price) if step.live_in else None
                region = None if one is None else self._region(step, one)
                if one is not None and region is not None:
                    chosen[number], regions[number] = one, region
                    read |= self._boundary(region)
            found.append((chosen, regions))
        return found

    def _region(self, step: Step, chosen: SavedSet) -> Region | None:
        """What runs again of a segment; None where nothing is gained, or nothing to wait for."""
        body = step.body.op_by_name
        ops = [body[name] for name in chosen.recomputed]
        made = {blob for op in ops if not is_constant(op) for blob in op.outputs}
        readers = {one.name: one for blob in made & step.live_in for one in self._readers(blob)}
        if not readers:
            return None
        places = [self.line.place[name] for name in readers]
        after = self._arriving(min(places), max(places))
        roots = {self.line.root.get(blob, blob) for blob in step.live_in}
        kept = {self.line.root.get(blob, blob) for blob in chosen.saved}
        spared = sum(map(self.line.held, roots - kept)) - sum(map(self.line.held, kept - roots))
        wanted = len(made & step.live_in & step.recomputed)
        if not after or spared <= 0 and not wanted:
            return None
        clones = [op for op in ops if not is_constant(op)]
        return Region(
            ops=tuple(op.name for op in ops),
            readers=tuple(sorted(readers, key=self.line.place.__getitem__)),
            after=after,
            bytes=max(0, spared),
            seconds=sum(self.seconds(op, self.net) for op in clones),
            line=str(clones[0].source),
            asked=wanted,
        )

    def _arriving(self, first: int, last: int) -> tuple[str, ...]:
        """Blobs of the gradient made before a region's first reader that it reads: what arrives."""
        if (first, last) not in self._arrived:  # as at another price
            self._arrived[first, last] = self._found_arriving(first, last)
        return self._arrived[first, last]

    def _found_arriving(self, first: int, last: int) -> tuple[str, ...]:
        line, ops = self.line, self.net.ops
        arriving = [
            blob
            for blob in dict.fromkeys(blob for op in ops[first : last + 1] for blob in op.inputs)
            if self._is_arriving(blob, first)
        ]
        good = [blob for blob in arriving if may_have_proxy(self.net, blob)]
        if not good:
            before = (
                blob for op in ops[line.turn : first][: -NEAR - 1 : -1] for blob in op.outputs
            )
            usable = (one for one in before if self._is_arriving(one, first))
            usable = (one for one in usable if may_have_proxy(self.net, one))
            good = list(itertools.islice(usable, 1))
        earliest = min((line.place[self.net.producer[blob].name] for blob in good), default=0)
        sources = {blob: self.net.producer[blob] for blob in good}
        needed = set(
            reached(
                (one for op in sources.values() for one in self._needs(op.name, earliest)),
                lambda name: self._needs(name, earliest),
            )
        )
        return tuple(blob for blob in good if sources[blob].name not in needed)

    def _needs(self, name: str, earliest: int) -> list[str]:
        """Ops that an op reads from, of those that do not come before a place."""
        sources = (self.net.producer.get(blob) for blob in self.net.op_by_name[name].inputs)
        return [
            one.name for one in sources if one is not None and self.line.place[one.name] >= earliest
        ]

    def _is_arriving(self, blob: str, first: int) -> bool:
        op = self.net.producer.get(blob)
        if op is None or not self._is_gradient(op) or op.type in ASKS_SHAPE:
            return False
        place = self.line.place[op.name]
        return (
            place < first
            and self.line.available[place] != ANYWHERE
            and op.name not in (self.line.constant)
        )

    def _candidate(self, chosen: dict[int, SavedSet], regions: dict[int, Region]) -> Candidate:
        saved = [self._saved(number, chosen.get(number)) for number in range(len(self.ends))]
        for number, region in regions.items():
            boundary = self._boundary(region)
            for blob in boundary:
                owner = self.segment.get(self.net.producer[blob].name, number)
                saved[owner].add(self.line.root.get(blob, blob))
        held, peak = 0, 0
        for number, blobs in enumerate(saved):
            held += sum(map(self.line.held, blobs))
            clones = self._clones(regions[number]) if number in regions else 0
            peak = max(peak, held + clones)
        rest = float(self.line.waiting[self.ends[-1] :].sum())
        ordered = sorted(regions.items(), reverse=True)
        peak = int(max(peak, held + rest))
        return Candidate(
            tuple(region for _, region in ordered),
            peak,
            int(self.line.waiting.sum()) - peak,
            sum(region.seconds for region in regions.values()),
            sum(region.asked for region in regions.values()),
        )

    def _saved(self, number: int, chosen: SavedSet | None) -> set[str]:
        """Buffers that a segment saves; all of its residuals where nothing of it runs again."""
        blobs = self.steps[number].live_in if chosen is None else chosen.saved
        return {self.line.root.get(blob, blob) for blob in blobs}

    def _boundary(self, region: Region) -> set[str]:
        """Blobs that clones read of what is not cloned."""
        ops = [self.net.op_by_name[name] for name in region.ops]
        made = {blob for op in ops for blob in op.outputs}
        read = {blob for op in ops for blob in op.inputs}
        return {one for one in read - made - self.line.given if one in self.net.producer}

    def _clones(self, region: Region) -> int:
        """Bytes that the clones of a region hold for its gradient."""
        made = {
            self.line.root.get(blob, blob)
            for name in region.ops
            for blob in self.net.op_by_name[name].outputs
            if self._readers(blob)
        }
        return sum(map(self.line.held, made))


def _best_first(
    regions: dict[int, Region], most: float, needed: Mapping[int, float]
) -> Iterator[tuple[int, Region]]:
    """The regions that spare most bytes a second, while the time allows.

    Args:
      regions: by the number of their segment.
      most: seconds that are allowed.
      needed: of the segments that the user asked to recompute something of, the seconds of that
        alone, which are allowed whatever else is.
    """
    left = most
    for number, region in sorted(
        regions.items(), key=lambda one: (-(one[1].bytes or 0) / max(one[1].seconds, 1e-9), one[0])
    ):
        if region.seconds <= max(left, needed.get(number, -1.0)):
            left -= region.seconds
            yield number, region
