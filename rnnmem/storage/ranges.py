"""Live ranges over one order, and their assignment to storages.

A range lives from where it is defined to where it is last used, both included: two ranges may share
a storage if one is used last before the other is defined.

    b1 ├──10──┤                     exact: {b1, b3}, {b2}: 11
    b2             ├──1──┤          greedy by time: b2 follows b1, so b3 needs 10 more: 20
    b3                ├──10──┤

To find the least sum of storages is to colour an interval graph where a colour costs its largest
range (max-colouring, Pemmaraju, Raman and Varadarajan 2004), NP-hard. A lower bound is cheap: of
the ranges of at least some size as many storages are needed as are alive at once.
"""

from __future__ import annotations

import bisect
import dataclasses
import heapq
import math
from collections.abc import Sequence

import numpy as np

from rnnmem.errors import OptionError
from rnnmem.solver import milp

ALGORITHMS = ("greedy", "best_fit", "exact")
EXACT_AT_MOST = 400
"""Ranges up to which the exact method looks for a proof; beyond it is the best of the others."""
BEST_FIT_AT_MOST = 20_000
EXACT_SECONDS = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """A live range: ``defined`` and ``used`` are positions in an order, ``size`` is in bytes."""

    name: str
    defined: int
    used: int
    size: int


SharedStorages = list[list[Range]]


@dataclasses.dataclass(frozen=True)
class Assignment:
    """Ranges in storages.

    Attributes:
      storages: the ranges of each, in the order in which they are defined.
      optimal: whether no assignment uses fewer bytes.
    """

    storages: tuple[tuple[Range, ...], ...]
    optimal: bool

    @property
    def usage(self) -> int:
        """Bytes of all storages."""
        return _usage(self.storages)


def assign(ranges: Sequence[Range], algorithm: str = "greedy") -> Assignment:
    """Puts ranges into storages.

    Args:
      ranges: in any order.
      algorithm: ``greedy`` goes through time and takes the free storage that fits best;
        ``best_fit`` places the largest first; ``exact`` finds the fewest bytes, by an integer
        program where the others do not meet the lower bound, and is never worse than they are.

    Raises:
      OptionError: no such algorithm, or a range that ends before it starts.
    """
    if algorithm not in ALGORITHMS:
        raise OptionError(f"algorithm={algorithm!r} must be one of {', '.join(ALGORITHMS)}")
    for one in ranges:
        if one.used < one.defined or one.size < 0:
            raise OptionError(f"{one} is no range: it must end where it starts or later")
    least = lower_bound(ranges)
    found = _greedy(ranges)
    if algorithm != "greedy" and _usage(found) > least:
        if len(ranges) <= BEST_FIT_AT_MOST or algorithm == "best_fit":
            found = min(found, _largest_first(ranges), key=_usage)
    optimal = _usage(found) == least
    if algorithm == "exact" and not optimal and len(ranges) <= EXACT_AT_MOST:
        better, optimal = _integer_program(ranges, found)
        found = min(found, better, key=_usage)
    for shared_storage in found:
        shared_storage.sort(key=lambda one: (one.defined, one.used))
    return Assignment(
        tuple(tuple(shared_storage) for shared_storage in sorted(found, key=_start)), optimal
    )


def interference(ranges: Sequence[Range]) -> list[tuple[int, int]]:
    """Pairs of positions of ranges that are alive at the same time."""
    return [
        (i, j)
        for i, one in enumerate(ranges)
        for j, other in enumerate(ranges[i + 1 :], i + 1)
        if one.defined <= other.used and other.defined <= one.used
    ]


def lower_bound(ranges: Sequence[Range]) -> int:
    """Bytes that any assignment needs: of each size, as many storages as are alive at once."""
    total, above = 0, 0
    for size, group in _thresholds(ranges):
        total += size * max(0, group - above)
        above = max(above, group)
    return total


def _thresholds(ranges: Sequence[Range]):
    """``(size, most ranges of at least that size that are alive at once)``, largest size first."""
    if not ranges:
        return
    points = sorted({one.defined for one in ranges})
    place = {point: index for index, point in enumerate(points)}
    alive = np.zeros(len(points), np.int64)
    sizes = sorted({one.size for one in ranges}, reverse=True)
    if len(sizes) * len(points) > 10**8:  # too many to tell apart: a bound from some is one too
        sizes = sizes[:: len(sizes) * len(points) // 10**8 + 1]
    by_size = sorted(ranges, key=lambda one: -one.size)
    index = 0
    for size in sizes:
        while index < len(by_size) and by_size[index].size >= size:
            one = by_size[index]
            alive[place[one.defined] : bisect.bisect_right(points, one.used)] += 1
            index += 1
        yield size, int(alive.max())


def _usage(shared_storages) -> int:
    return sum(
        max((one.size for one in shared_storage), default=0) for shared_storage in shared_storages
    )


def _start(shared_storage: list[Range]) -> tuple[int, str]:
    return shared_storage[0].defined, shared_storage[0].name


def _greedy(ranges: Sequence[Range]) -> SharedStorages:
    """Goes through time; takes the smallest free storage that is large enough, else the largest."""
    shared_storages: SharedStorages = []
    sizes: list[int] = []
    free: list[tuple[int, int]] = []  # (size, track), sorted
    busy: list[tuple[int, int]] = []  # heap of (used, track)
    for one in sorted(ranges, key=lambda one: (one.defined, -one.size)):
        while busy and busy[0][0] < one.defined:
            shared_storage = heapq.heappop(busy)[1]
            bisect.insort(free, (sizes[shared_storage], shared_storage))
        place = bisect.bisect_left(free, (one.size, -1))
        if free:
            _, shared_storage = free.pop(min(place, len(free) - 1))
            shared_storages[shared_storage].append(one)
            sizes[shared_storage] = max(sizes[shared_storage], one.size)
        else:
            shared_storage = len(shared_storages)
            shared_storages.append([one])
            sizes.append(one.size)
        heapq.heappush(busy, (one.used, shared_storage))
    return shared_storages


def _largest_first(ranges: Sequence[Range]) -> SharedStorages:
    """Places the largest range first, where it leaves the least time unused before it."""
    shared_storages: SharedStorages = []
    starts: list[list[tuple[int, int]]] = []
    for one in sorted(ranges, key=lambda one: (-one.size, one.defined)):
        best, gap = None, None
        for index, held in enumerate(starts):
            place = bisect.bisect_right(held, (one.used, math.inf))
            if place and held[place - 1][1] >= one.defined:
                continue
            left = one.defined - held[place - 1][1] if place else one.defined + 1
            if gap is None or left < gap:
                best, gap = index, left
        if best is None:
            shared_storages.append([])
            starts.append([])
            best = len(shared_storages) - 1
        shared_storages[best].append(one)
        bisect.insort(starts[best], (one.defined, one.used))
    return shared_storages


def _integer_program(ranges: Sequence[Range], known: SharedStorages) -> tuple[SharedStorages, bool]:
    """Solves max-colouring by representatives: x[i, j] puts j where i is the largest.

    Each storage is represented by its largest range i (of equals the first), which pays for it. Of
    the ranges alive at one moment a storage holds at most one.
    """
    from scipy.optimize import Bounds, LinearConstraint
    from scipy.sparse import coo_array

    order = sorted(ranges, key=lambda one: (-one.size, one.defined))
    clash: list[set[int]] = [set() for _ in order]
    for i, j in interference(order):
        clash[i].add(j)
    pairs = [(i, j) for i in range(len(order)) for j in range(i, len(order)) if j not in clash[i]]
    number = {pair: index for index, pair in enumerate(pairs)}
    rows, columns, values = [], [], []
    low: list[float] = []
    high: list[float] = []

    def row(entries, least, most):
        for column, value in entries:
            rows.append(len(low))
            columns.append(column)
            values.append(value)
        low.append(least)
        high.append(most)

    for j in range(len(order)):
        row([(number[i, j], 1) for i in range(j + 1) if (i, j) in number], 1, 1)
    for clique in _cliques(order):
        for i in range(len(order)):
            held = [number[i, j] for j in clique if j != i and (i, j) in number]
            if held:
                row([*((column, 1) for column in held), (number[i, i], -1)], -np.inf, 0)
    cost = np.zeros(len(pairs))
    for i, one in enumerate(order):
        cost[number[i, i]] = one.size
    scale = max(1, cost.max())
    matrix = coo_array((values, (rows, columns)), shape=(len(low), len(pairs))).tocsr()
    solved = milp(
        cost / scale,
        integrality=np.ones(len(pairs)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, low, high),
        options={"time_limit": EXACT_SECONDS, "mip_rel_gap": 0.0},
    )
    if solved.x is None:
        return known, False
    shared_storages: dict[int, list[Range]] = {}
    for (i, j), chosen in zip(pairs, solved.x, strict=True):
        if chosen > 0.5:
            shared_storages.setdefault(i, []).append(order[j])
    return list(shared_storages.values()), bool(solved.status == 0)


def _cliques(ranges: Sequence[Range]) -> list[tuple[int, ...]]:
    """The maximal sets of ranges that are alive at one moment."""
    found: list[tuple[int, ...]] = []
    for moment in sorted({one.defined for one in ranges}):
        alive = tuple(i for i, one in enumerate(ranges) if one.defined <= moment <= one.used)
        if found and set(found[-1]) <= set(alive):
            found.pop()
        if not found or not set(alive) <= set(found[-1]):
            found.append(alive)
    return found
