"""A loop's iterations in segments: only the state at the start of each is kept."""

from __future__ import annotations

import dataclasses

from rnnmem.analysis.segment_lengths import longest_segment, segment_count
from rnnmem.analysis.trip_count import LONG_TRIPS
from rnnmem.passes.checkpoint.revolve import first_saves
from rnnmem.sizes import counted, format_bytes


@dataclasses.dataclass(frozen=True)
class Segments:
    """A loop's iterations in runs: only the state at the start of each is kept.

    The gradient runs a segment again before it goes through it, and only then saves what it reads.
    Segment k has ``length + k * growth`` iterations: equal ones where the trip count is known,
    growing ones where only the run can tell, so that memory grows with its root either way.

    With slots the states of some segments only are kept, as the binomial schedule over the segments
    says; from these the gradient goes on to the segment whose turn it is, keeping states again in
    slots that have become free (`rnnmem.passes.checkpoint.schedule`). Where only the run can tell
    the trip count that schedule is online: the forward loop overwrites slots as it goes.

    The last iterations may save what is wanted as they run: the gradient goes through them first,
    and runs none of them again (`end`). So the time that running again takes can be chosen.

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
      replays: how often an iteration runs again, on average.
      online: whether the schedule is for any number of segments, in ``slots`` slots.
      end: the iteration behind the last segment, from which on what is wanted is saved and nothing
        runs again; 0: the loop's end. Only where the trip count is known, without slots.
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
    replays: float = 1.0
    online: bool = False
    end: int = 0

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
        cut = self.end or trips
        count = segment_count(cut, self.length, self.growth)
        count = min(count, self.slots + 1) if self.slots else count
        longest = longest_segment(cut, self.length, self.growth)
        return count * self.bytes + max(trips - cut, longest) * self.saved_bytes

    def seconds_again(self, trips: int) -> float:
        """Estimated time to run iterations again, on average over all."""
        part = self.end / trips if self.end else 1.0
        return part * self.replays * self.seconds

    @property
    def sentence(self) -> str:
        """What is decided, in words."""
        length, state = counted(self.length, "iteration"), format_bytes(self.bytes)
        if self.online:
            return (
                f"{length}; {state} of state kept for {self.slots} at once, however many there "
                f"are; iterations run again {self.replays:.1f} times in the gradient where there "
                f"are {LONG_TRIPS}, more often the more there are"
            )
        if self.slots:
            return (
                f"{length}; {state} of state kept for "
                f"{self.slots + 1} of {self.count} at once, iterations run again "
                f"{self.replays:.1f} times in the gradient"
            )
        longer = f", each {self.growth} longer than the one before" if self.growth else ""
        but = f"; those from iteration {self.end} on do not" if self.end else ""
        return (
            f"{length}{longer}; {state} of state kept for each, "
            f"its iterations run again in the gradient{but}"
        )
