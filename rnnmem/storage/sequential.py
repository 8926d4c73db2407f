"""Sharing over one order: ops run one after the other, so a range of positions says all."""

from __future__ import annotations

import heapq

from rnnmem.storage.buffers import LiveBuffer
from rnnmem.storage.pool import Pool, SharedStorage
from rnnmem.storage.ranges import Range, assign


def assign_sequential(
    live_buffers: list[LiveBuffer], level: int, by_use: bool, algorithm: str
) -> tuple[list[SharedStorage], bool]:
    """Puts units into storages.

    Args:
      live_buffers: in the order in which they are first written.
      level: see :data:`rnnmem.storage.buffers.LEVELS`; planned ahead, a storage has its full size
        from the start, so ``best_fit`` and ``exact`` treat level 1 as level 2.
      by_use: without sizes: prefer the free storage already shared by most.
      algorithm: see :func:`rnnmem.storage.ranges.assign`.

    Returns:
      The storages, and whether no others need fewer bytes.
    """
    if algorithm == "greedy":
        return _through_time(live_buffers, level, by_use), False
    kinds: dict[tuple, list[LiveBuffer]] = {}
    for live_buffer in live_buffers:
        kinds.setdefault(live_buffer.kind, []).append(live_buffer)
    shared_storages, optimal = [], True
    for group in kinds.values():
        by_name = {live_buffer.name: live_buffer for live_buffer in group}
        ranges = [
            Range(
                live_buffer.name,
                live_buffer.defined,
                live_buffer.used,
                1 if by_use else live_buffer.size,
            )
            for live_buffer in group
        ]
        found = assign(ranges, algorithm)
        best = _through_time(group, level, by_use)
        needed = len(best) if by_use else sum(shared_storage.size for shared_storage in best)
        if needed < found.usage:
            shared_storages += best
        else:
            shared_storages += [
                _shared_storage([by_name[one.name] for one in some]) for some in found.storages
            ]
        optimal = optimal and found.optimal
    return shared_storages, optimal


def _shared_storage(live_buffers: list[LiveBuffer]) -> SharedStorage:
    return SharedStorage(live_buffers, max(live_buffer.size for live_buffer in live_buffers), 0)


def _through_time(live_buffers: list[LiveBuffer], level: int, by_use: bool) -> list[SharedStorage]:
    pools: dict[tuple, Pool] = {}
    shared_storages: list[SharedStorage] = []
    ending: list[tuple[int, int]] = []
    for live_buffer in live_buffers:
        while ending and ending[0][0] < live_buffer.defined:
            ended = shared_storages[heapq.heappop(ending)[1]]
            pools[ended.live_buffers[-1].kind].give(ended)
        pool = pools.setdefault(live_buffer.kind, Pool(level, by_use))
        shared_storage = pool.take(live_buffer, lambda _: True)
        if shared_storage is None:
            shared_storage = SharedStorage([], 0, len(shared_storages))
            shared_storages.append(shared_storage)
        shared_storage.add(live_buffer)
        heapq.heappush(ending, (live_buffer.used, shared_storage.number))
    return shared_storages
