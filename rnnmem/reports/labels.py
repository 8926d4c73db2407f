"""Places of the peak and of the numbers in the picture: none on another, no line through any.

    ▼ 9.8 MiB predicted
    ├────╮               a number stands in its area at the peak where that is high enough, else in
   [1]   ╰──[2]          a column beside the peak, with a leader to its area
    ├───────[3]

All places are pixels, counted from the lower left.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

Point = tuple[float, float]
Line = tuple[Point, ...]

_FIRST, _STEP, _FARTHEST = 60, 15, 290
"""How far beside the peak a column may stand."""
_LIFTS = 8
"""Heights that the peak's text may stand at, half a text apart."""
_ASIDE = 12
"""Between the peak and its text."""
_IN_THE_WAY = 1e4
"""What a text costs that lies on another, in pixels of distance."""
_ELBOW = 6
"""The level piece of a leader in front of its number."""


@dataclasses.dataclass(frozen=True)
class Box:
    """A rectangle."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def size(self) -> Point:
        """Width and height."""
        return self.right - self.left, self.top - self.bottom

    def meets(self, other: Box) -> bool:
        """Whether two have more than a border in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.bottom < other.top and other.bottom < self.top

    def holds(self, other: Box) -> bool:
        """Whether another is inside."""
        across = self.left <= other.left and other.right <= self.right
        return across and self.bottom <= other.bottom and other.top <= self.top

    def is_crossed(self, line: Line) -> bool:
        """Whether a line through some points goes through the inside."""
        return any(self._is_cut(*ends) for ends in itertools.pairwise(line))

    def _is_cut(self, start: Point, end: Point) -> bool:
        if max(start[1], end[1]) <= self.bottom or min(start[1], end[1]) >= self.top:
            return False
        low, high = 0.0, 1.0  # the share of the line that is inside
        for at, to, least, most in (
            (start[0], end[0], self.left, self.right),
            (start[1], end[1], self.bottom, self.top),
        ):
            if at == to:
                if not least < at < most:
                    return False
                continue
            first, last = sorted(((least - at) / (to - at), (most - at) / (to - at)))
            low, high = max(low, first), min(high, last)
        return low < high


@dataclasses.dataclass(frozen=True)
class Task:
    """What is to be placed at one peak.

    Attributes:
      peak: the point.
      text: width and height of what is told of it.
      number: width and height of a number.
      thin: middles of the areas at the peak that a number does not fit in, rising.
      room: where everything must be.
      taken: what stands there already.
      lines: what is drawn there already; leaders may cross it, texts and numbers do not.
    """

    peak: Point
    text: Point
    number: Point
    thin: tuple[float, ...]
    room: Box
    taken: tuple[Box, ...] = ()
    lines: tuple[Box, ...] = ()


@dataclasses.dataclass(frozen=True)
class Column:
    """Numbers beside their areas.

    Attributes:
      numbers: the lowest first.
      leaders: from the areas to those.
    """

    numbers: tuple[Box, ...] = ()
    leaders: tuple[Line, ...] = ()


@dataclasses.dataclass(frozen=True)
class Places:
    """Where it stands: what is told of the peak, and the numbers beside their areas."""

    text: Box
    column: Column


def placed(task: Task) -> Places:
    """The nearest places at which nothing is in the way; the least in the way, where all are."""
    texts = [(far + _IN_THE_WAY * _around_text(task, box), box) for far, box in _texts(task)]
    columns = [(0.0, Column())]
    if task.thin:
        columns = [(far + _IN_THE_WAY * _around(task, one), one) for far, one in _columns(task)]
    pairs = itertools.product(texts, columns)
    best = math.inf
    found = Places(texts[0][1], columns[0][1])
    for (near, text), (far, column) in sorted(pairs, key=lambda pair: pair[0][0] + pair[1][0]):
        if near + far >= best:
            break
        cost = near + far + _IN_THE_WAY * _between(text, column)
        if cost < best:
            best, found = cost, Places(text, column)
    return found


def beside_line(
    height: float, size: Point, room: Box, taken: Sequence[Box], leaders: Sequence[Line]
) -> Box:
    """A place for what is told of a level line: the free one farthest right, above it or below.

    Args:
      height: of the line.
      size: of the text.
      room: where it must be.
      taken: what stands there already.
      leaders: lines that it must not stand on.
    """
    first = Box(room.right - size[0], height + 2, room.right, height + 2 + size[1])
    right = room.right
    while right - size[0] >= room.left:
        for bottom in (height + 2, height - 2 - size[1]):
            box = Box(right - size[0], bottom, right, bottom + size[1])
            free = not any(map(box.meets, taken)) and not any(map(box.is_crossed, leaders))
            if free and room.holds(box):
                return box
        right -= _STEP
    return first


def _texts(task: Task) -> Iterator[tuple[float, Box]]:
    (x, y), (width, height) = task.peak, task.text
    for lift in (number * height / 2 for number in range(_LIFTS)):
        for left in (x + _ASIDE, x - _ASIDE - width):
            bottom = y + _ELBOW + lift
            yield 3 * lift, Box(left, bottom, left + width, bottom + height)


def _columns(task: Task) -> Iterator[tuple[float, Column]]:
    x, (width, height) = task.peak[0], task.number
    floor = task.room.bottom + height / 2
    tight = _spread(task.thin, height + 2, floor)
    for far, sign in itertools.product(range(_FIRST, _FARTHEST, _STEP), (1, -1)):
        column = x + sign * far
        for lower in range(len(tight)):
            heights = _spread([one - lower * height / 2 for one in tight], height + 2, floor)
            numbers = tuple(
                Box(column - width / 2, at - height / 2, column + width / 2, at + height / 2)
                for at in heights
            )
            start, stop = x + sign * width, column - sign * (width / 2 + _ELBOW)
            leaders = tuple(
                ((x, middle), (start, middle), (stop, at), (column, at))
                for middle, at in zip(task.thin, heights, strict=True)
            )
            bent = sum(
                abs(at - middle) for middle, at in zip(task.thin, heights, strict=True)
            ) / len(heights)
            yield bent + far / 2, Column(numbers, leaders)


def _spread(wanted: Sequence[float], least: float, floor: float) -> list[float]:
    """Heights in their order, at least so far from each other and from the floor."""
    heights: list[float] = []
    for one in wanted:
        heights.append(max(one, heights[-1] + least) if heights else max(one, floor))
    return heights


def _around_text(task: Task, text: Box) -> int:
    """On how much of what is there the peak's text would lie."""
    there = (*task.taken, *task.lines)
    return sum(map(text.meets, there)) + (not task.room.holds(text))


def _around(task: Task, column: Column) -> int:
    """On how much of what is there a column would lie, or its leaders go through."""
    there = (*task.taken, *task.lines)
    count = sum(one.meets(other) for one in column.numbers for other in there)
    count += sum(not task.room.holds(one) for one in column.numbers)
    return count + sum(_crossings(one, column) for one in task.taken)


def _between(text: Box, column: Column) -> int:
    """How much of a column would lie on the peak's text."""
    return sum(map(text.meets, column.numbers)) + _crossings(text, column)


def _crossings(box: Box, column: Column) -> int:
    return sum(map(box.is_crossed, column.leaders))
