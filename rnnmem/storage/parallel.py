"""Sharing that is safe however the ops interleave: b follows a only if each user of a precedes b.

        x ─► a ─► b ─► c ─┐          c may take a's storage: all that reads a comes before c
             └► d ─► e ───┴► f       e may not take b's: nothing orders c, which reads b, before e
                                     f may take any that c and e no longer need: it joins both

This is what Caffe2's memonger does with tokens that split at a fork and meet at a join; here the
order is asked for directly (:mod:`rnnmem.analysis.reachability`).
"""

from __future__ import annotations

from rnnmem.analysis.reachability import Reach
from rnnmem.analysis.versions import History
from rnnmem.storage.pool import Pool, Track
from rnnmem.storage.units import Unit


def assign_parallel(past: History, units: list[Unit], level: int, by_use: bool) -> list[Track]:
    """Puts units into storages.

    Args:
      past: the Net's history.
      units: in the order in which they are first written.
      level: see :data:`rnnmem.storage.units.LEVELS`.
      by_use: without sizes: prefer the free storage already shared by most.
    """
    reach = Reach(past.before, {op for unit in units for op in unit.last})
    pools: dict[tuple, Pool] = {}
    tracks: list[Track] = []
    ending: dict[int, list[Track]] = {}
    waiting = iter(units)
    unit = next(waiting, None)

    def may(track: Track) -> bool:
        return all(map(reach.comes_before, track.units[-1].last))

    for others in past.before:
        now = reach.advance()
        # What ends with the op before this one has its place on a chain by now.
        for ended in ending.pop(now - 1, ()):
            last = ended.units[-1]
            pools[last.kind].give(ended, reach.chain.get(last.used))
        near = tuple(dict.fromkeys(reach.chain[op] for op in others if op in reach.chain))
        while unit is not None and unit.defined == now:
            pool = pools.setdefault(unit.kind, Pool(level, by_use))
            track = pool.take(unit, may, near)
            if track is None:
                track = Track([], 0, len(tracks))
                tracks.append(track)
            track.add(unit)
            ending.setdefault(unit.used, []).append(track)
            unit = next(waiting, None)
    return tracks
