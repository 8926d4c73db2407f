"""After how many loops over the chunks each op of a region can run."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence

from rnnmem.ir.graph import Net, Op


def levels(
    order: Sequence[Op],
    net: Net,
    chosen: Collection[str],
    told: Collection[str],
    is_wide: Callable[[str], bool],
) -> Mapping[str, int]:
    """Op -> how many loops are over before it can run, from the first op of the region on.

    What an op outside waits for is whole, so that a loop over all chunks stands in between.

    Args:
      order: the Net's ops, each behind what it waits for.
      net: the whole step.
      chosen: names of the region's ops.
      told: blobs that nothing need wait for: sizes that the number of rows tells.
      is_wide: whether an op, by name, runs in the loops alone.
    """
    level = collections.Counter[str]()
    producer, left = net.producer, len(chosen)
    for op in itertools.dropwhile(lambda one: one.name not in chosen, order):
        if not left:
            break
        inside, found = op.name in chosen, 0
        left -= inside
        read = (blob for blob in op.inputs if blob in producer and blob not in told)
        for name in (*[producer[blob].name for blob in read], *op.controls):
            step = 1 if name in chosen and not inside and is_wide(name) else 0
            found = max(found, level[name] + step)
        level[op.name] = found
    return level
