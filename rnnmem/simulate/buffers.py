"""What is alive: buffers, lists of buffers, and the account of bytes that they are booked in.

A blob is a name; a buffer is memory. Several blobs may share a buffer, and a list keeps the buffers
of its elements alive. A buffer that many iterations of a loop make alike stands once, in a Series:

    list A  [h1][h2][h x 146][h149][h150]     pushed by every iteration
    list B  [h1][h2][h x 146][h149][h150]     written by every iteration: the same buffers
                     └──── one Series: 146 buffers are alive until both lists have let them go
"""

from __future__ import annotations

import collections
import dataclasses
import math

from rnnmem.ir.graph import Shape
from rnnmem.ir.lines import Line


@dataclasses.dataclass(slots=True, eq=False)
class Origin:
    """Where buffers come from: told once for each output of an op in its place.

    Attributes:
      op: name of the op.
      blob: what it writes.
      source: the user's line.
      loops: names of the loops around it.
      saved_in: name of the accumulator that its buffers were pushed to; empty: none.
      is_result: whether the function hands its buffers out.
      dtype: of the blob.
      shape: of the blob.
      saved_loops: names of the loops around the push; an inner loop may save what it is given.
    """

    op: str = ""
    blob: str = ""
    source: str | Line = ""
    loops: tuple[str, ...] = ()
    saved_in: str = ""
    is_result: bool = False
    dtype: str = ""
    shape: Shape = None
    saved_loops: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[str, ...]:
        """Names of the loops around the step net that saves it, else around what makes it."""
        return self.saved_loops if self.saved_in else self.loops


_NOWHERE = Origin()


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """The entries of an account's log that one run of a loop wrote.

    Attributes:
      loops: names of the loops around it, and its own last.
      start: length of the log before it.
      end: length of the log behind it.
      trips: how many iterations it has.
      extrapolation: length of the log before and behind the iterations that were not simulated one
        by one.
      skipped: how many those are.
      steady_state: iterations simulated in front of them.
    """

    loops: tuple[str, ...]
    start: int
    end: int
    trips: int
    extrapolation: tuple[int, int] = (0, 0)
    skipped: int = 0
    steady_state: int = 0


class LimitReached(Exception):
    """As much is alive as somebody set as the limit: they ask for no more."""


class Ledger:
    """Bytes alive, and every change of them in order.

    Whoever books raises `LimitReached` once so much is alive.
    """

    def __init__(self, limit: float = math.inf):
        self.live = 0
        self.limit = limit
        self.peak = 0
        self.peak_entries = 0  # length of the log at the peak
        self.log: list[tuple[Buffer | Series, int, int]] = []  # who, change, alive then
        self.spans: list[Span] = []

    def book(self, holder: Buffer | Series, change: int) -> None:
        """Changes the bytes alive by what a holder got or gave back."""
        self.live = live = self.live + change
        self.log.append((holder, change, live))
        if live > self.peak:
            self.peak = live
            self.peak_entries = len(self.log)
            if live >= self.limit:
                raise LimitReached


class Buffer:
    """One piece of memory; it lives as long as something refers to it."""

    __slots__ = ("ledger", "bytes", "origin", "refs")

    def __init__(self, ledger: Ledger, size: int, origin: Origin):
        self.ledger = ledger
        self.bytes = size
        self.origin = origin
        self.refs = 1
        # `Account.book`, written out here and below: nothing runs oftener.
        ledger.live = live = ledger.live + size
        ledger.log.append((self, size, live))
        if live > ledger.peak:
            ledger.peak = live
            ledger.peak_entries = len(ledger.log)
            if live >= ledger.limit:
                raise LimitReached

    def drop(self) -> None:
        """One reference less."""
        self.refs = left = self.refs - 1
        if not left:
            ledger, size = self.ledger, self.bytes
            ledger.live = live = ledger.live - size
            ledger.log.append((self, -size, live))


class Series:
    """Equal buffers of successive iterations, held by one list or more.

    Lists take and give them at the same end, so as many are alive as the longest list has.
    """

    __slots__ = ("ledger", "bytes", "counts", "live", "origin", "refs", "template")

    def __init__(self, ledger: Ledger, size: int, origin: Origin, template: tuple = ()):
        self.ledger = ledger
        self.bytes = size
        self.origin = origin
        self.template = template
        self.live = 0
        self.refs = 0  # of an element that was read; the lists are what keeps it alive
        # Each holder with its count: an id that is free again must not find another's.
        self.counts: dict[int, tuple[object, int]] = {}

    def drop(self) -> None:
        """One reader of an element less."""
        self.refs -= 1

    def set_count(self, holder: object, count: int) -> int:
        """A list's run now has that many; returns how many more are alive."""
        if count:
            self.counts[id(holder)] = holder, count
        else:
            self.counts.pop(id(holder), None)
        most = max([held for _, held in self.counts.values()], default=0)
        change = most - self.live
        if change:
            self.live = most
            self.ledger.book(self, change * self.bytes)
        return change


class Member:
    """One of a series, popped off a list while another list still keeps it alive."""

    __slots__ = ("refs", "series")

    def __init__(self, series: Series, rank: int):
        self.series = series
        self.refs = 1
        series.set_count(self, rank)

    @property
    def ledger(self) -> Ledger:
        """Where it is booked."""
        return self.series.ledger

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.series.bytes

    @property
    def origin(self) -> Origin:
        """Where it comes from."""
        return self.series.origin

    def drop(self) -> None:
        """One reference less."""
        self.refs -= 1
        if not self.refs:
            self.series.set_count(self, 0)


class ListValue:
    """The value of a list: runs of elements, oldest first.

    A run is ``[element, count]``; an element is a Buffer, a Series, another list, or None where its
    memory is resident. A Buffer that is there more than once is one, which rows of it share.
    """

    __slots__ = ("ledger", "gone", "length", "new", "placed", "refs", "runs", "size")

    def __init__(self, ledger: Ledger, length: int | None):
        self.ledger = ledger
        self.runs: collections.deque[list] = collections.deque()
        self.size = 0
        self.length = length
        self.refs = 1
        self.forget()

    def forget(self) -> None:
        """Starts to record again what is added and taken."""
        self.new: list = []  # appended since
        self.placed: list = []  # put in front since
        self.gone = 0  # taken off the end since

    def drop(self) -> None:
        """One reference less."""
        self.refs -= 1
        if not self.refs:
            for run in self.runs:
                self._release(run)
            self.runs.clear()

    def clone(self) -> ListValue:
        """A list with the same elements, whose buffers it shares."""
        copy = ListValue(self.ledger, self.length)
        for element, count in self.runs:
            copy._add(element, count, front=False)
        copy.new, copy.placed, copy.gone = list(self.new), list(self.placed), self.gone
        return copy

    def append(self, element) -> None:
        """Adds one element at the end, and refers to it."""
        self._add(element, 1, front=False)
        self.new.append(element)

    def place(self, element, count: int = 1) -> None:
        """Puts elements where the last ones were taken off: they are not the next to go."""
        self._add(element, count, front=True)
        self.placed.append(element)

    def peek(self) -> Series | None:
        """An element that is read and stays in the list, where many are alike."""
        return next((run[0] for run in self.runs if isinstance(run[0], Series)), None)

    def extend(self, element, count: int) -> None:
        """Adds equal elements at the end."""
        if count:
            self._add(element, count, front=False)

    def extend_front(self, element, count: int) -> None:
        """Adds equal elements in front."""
        if count:
            self._add(element, count, front=True)

    def pop(self):
        """Takes the last element off; the caller has its reference now."""
        if self.new:
            self.new.pop()
        else:
            self.gone += 1
        if not self.runs:
            return None
        self.size -= 1
        run = self.runs[-1]
        element, count = run
        if count == 1:
            self.runs.pop()
        else:
            run[1] = count - 1
        if isinstance(element, Series):
            freed = element.set_count(run, count - 1)
            if freed:
                return _one_of(element)
            return None if element.template else Member(element, count)
        return element

    def pop_many(self, count: int) -> None:
        """Takes elements off the end and lets them go."""
        self.gone += count
        while count and self.runs:
            run = self.runs[-1]
            taken = min(count, run[1])
            count -= taken
            self.size -= taken
            if isinstance(run[0], Series):
                run[0].set_count(run, run[1] - taken)
            elif run[0] is not None:
                _let_go(run[0], taken)
            run[1] -= taken
            if not run[1]:
                self.runs.pop()

    @property
    def origin(self) -> Origin:
        """Where its elements come from."""
        return next((run[0].origin for run in self.runs if run[0] is not None), _NOWHERE)

    def bytes(self) -> int:
        """Bytes of all elements."""
        return sum(
            count * (element.bytes() if isinstance(element, ListValue) else element.bytes)
            for element, count in self.runs
            if element is not None
        )

    def _add(self, element, count: int, front: bool) -> None:
        self.size += count
        last = self.runs[0 if front else -1] if self.runs else None
        if last and last[0] is element and (element is None or isinstance(element, Series)):
            last[1] += count
            if element is not None:
                element.set_count(last, last[1])
            return
        run = [element, count]
        if isinstance(element, Series):
            element.set_count(run, count)
        elif element is not None:
            element.refs += count
        if front:
            self.runs.appendleft(run)
        else:
            self.runs.append(run)

    def _release(self, run: list) -> None:
        if isinstance(run[0], Series):
            run[0].set_count(run, 0)
        elif run[0] is not None:
            _let_go(*run)


def _let_go(element: Buffer | ListValue | Member, count: int) -> None:
    """Drops references to one element that a list holds as often."""
    element.refs -= count - 1
    element.drop()


Value = Buffer | ListValue | Member | None


def shares(holder: Buffer | Series, change: int) -> list[tuple[Origin, int]]:
    """What a change of a holder's bytes consists of: where from, and how many of them.

    An element of a series may be a list, of buffers that several ops made:

        series of lists [h][g][g]      change +3 buffers      h: +1 buffer, g: +2 buffers
    """
    template = holder.template if isinstance(holder, Series) else ()
    if not template or not change:
        return [(holder.origin, change)]
    elements = change // holder.bytes
    return [(origin, elements * size * count) for size, origin, count in template if size]


def _one_of(series: Series) -> Buffer | ListValue:
    """One element taken out of a series, as a value of its own."""
    if not series.template:
        return Buffer(series.ledger, series.bytes, series.origin)
    value = ListValue(series.ledger, None)
    for size, origin, count in series.template:
        value.extend(origin and Series(series.ledger, size, origin), count)
    return value


def series_like(
    element: Buffer | Series | ListValue, earlier: Buffer | Series | ListValue | None = None
) -> Series:
    """A series of elements like this one.

    Of a list, without those elements that one in its place held already, an iteration earlier.
    """
    if not isinstance(element, ListValue):
        return Series(element.ledger, element.bytes, element.origin)
    known = {id(held) for held, _ in earlier.runs} if isinstance(earlier, ListValue) else set()
    template = tuple(
        (0, None, count)
        if held is None or id(held) in known
        else (held.bytes() if isinstance(held, ListValue) else held.bytes, held.origin, count)
        for held, count in element.runs
    )
    size = sum(size * count for size, _, count in template)
    return Series(element.ledger, size, element.origin, template)
