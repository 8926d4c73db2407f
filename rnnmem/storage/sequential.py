"""Sharing over one order: ops run one after the other, so a range of positions says all."""

from __future__ import annotations

import heapq

from rnnmem.storage.pool import Pool, Track
from rnnmem.storage.ranges import Range, assign
from rnnmem.storage.units import Unit


def assign_sequential(
    units: list[Unit], level: int, by_use: bool, algorithm: str
) -> tuple[list[Track], bool]:
    """Puts units into storages.

    Args:
      units: in the order in which they are first written.
      level: see :data:`rnnmem.storage.units.LEVELS`; planned ahead, a storage has its full size
        from the start, so ``best_fit`` and ``exact`` treat level 1 as level 2.
      by_use: without sizes: prefer the free storage already shared by most.
      algorithm: see :func:`rnnmem.storage.ranges.assign`.

    Returns:
      The storages, and whether no others need fewer bytes.
    """
    if algorithm == "greedy":
        return _through_time(units, level, by_use), False
    kinds: dict[tuple, list[Unit]] = {}
    for unit in units:
        kinds.setdefault(unit.kind, []).append(unit)
    tracks, optimal = [], True
    for group in kinds.values():
        by_name = {unit.name: unit for unit in group}
        ranges = [
            Range(unit.name, unit.defined, unit.used, 1 if by_use else unit.size) for unit in group
        ]
        found = assign(ranges, algorithm)
        best = _through_time(group, level, by_use)
        needed = len(best) if by_use else sum(track.size for track in best)
        if needed < found.usage:
            tracks += best
        else:
            tracks += [_track([by_name[one.name] for one in some]) for some in found.storages]
        optimal = optimal and found.optimal
    return tracks, optimal


def _track(units: list[Unit]) -> Track:
    return Track(units, max(unit.size for unit in units), 0)


def _through_time(units: list[Unit], level: int, by_use: bool) -> list[Track]:
    pools: dict[tuple, Pool] = {}
    tracks: list[Track] = []
    ending: list[tuple[int, int]] = []
    for unit in units:
        while ending and ending[0][0] < unit.defined:
            ended = tracks[heapq.heappop(ending)[1]]
            pools[ended.units[-1].kind].give(ended)
        pool = pools.setdefault(unit.kind, Pool(level, by_use))
        track = pool.take(unit, lambda _: True)
        if track is None:
            track = Track([], 0, len(tracks))
            tracks.append(track)
        track.add(unit)
        heapq.heappush(ending, (unit.used, track.number))
    return tracks
