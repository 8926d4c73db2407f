"""Sharing that is safe however the ops interleave: b follows a only if each user of a precedes b.

        x ─► a ─► b ─► c ─┐          c may take a's storage: all that reads a comes before c
             └► d ─► e ───┴► f       e may not take b's: nothing orders c, which reads b, before e
                                     f may take any that c and e no longer need: it joins both

This is what Caffe2's memonger does with tokens that split at a fork and meet at a join; here the
order is asked for directly (:mod:`rnnmem.analysis.reachability`).
"""

from __future__ import annotations

from rnnmem.analysis.reachability import HappensBeforeSoFar
from rnnmem.analysis.versions import SsaVersions
from rnnmem.storage.buffers import LiveBuffer
from rnnmem.storage.pool import Pool, SharedStorage


def assign_parallel(
    past: SsaVersions, live_buffers: list[LiveBuffer], level: int, by_use: bool
) -> list[SharedStorage]:
    """Puts units into storages.

    Args:
      past: the Net's history.
      live_buffers: in the order in which they are first written.
      level: see :data:`rnnmem.storage.buffers.LEVELS`.
      by_use: without sizes: prefer the free storage already shared by most.
    """
    happens_before = HappensBeforeSoFar(
        past.before, {op for live_buffer in live_buffers for op in live_buffer.last}
    )
    pools: dict[tuple, Pool] = {}
    shared_storages: list[SharedStorage] = []
    ending: dict[int, list[SharedStorage]] = {}
    waiting = iter(live_buffers)
    live_buffer = next(waiting, None)

    def may(shared_storage: SharedStorage) -> bool:
        return all(map(happens_before.comes_before, shared_storage.live_buffers[-1].last))

    for others in past.before:
        now = happens_before.advance()
        # What ends with the op before this one has its place on a chain by now.
        for ended in ending.pop(now - 1, ()):
            last = ended.live_buffers[-1]
            pools[last.kind].give(ended, happens_before.chain.get(last.used))
        near = tuple(
            dict.fromkeys(happens_before.chain[op] for op in others if op in happens_before.chain)
        )
        while live_buffer is not None and live_buffer.defined == now:
            pool = pools.setdefault(live_buffer.kind, Pool(level, by_use))
            shared_storage = pool.take(live_buffer, may, near)
            if shared_storage is None:
                shared_storage = SharedStorage([], 0, len(shared_storages))
                shared_storages.append(shared_storage)
            shared_storage.add(live_buffer)
            ending.setdefault(live_buffer.used, []).append(shared_storage)
            live_buffer = next(waiting, None)
    return shared_storages
