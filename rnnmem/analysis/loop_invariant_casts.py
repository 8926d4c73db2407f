"""Casts of what stays the same in a loop: recomputed once beside the gradient loop.

Under mixed precision each iteration casts every weight. One cast beside the gradient loop gives the
same bits as one an iteration, and no graph optimizer fuses a cast with its reader, so nothing else
changes. The forward loop is left as it is.
"""

from __future__ import annotations

from collections.abc import Collection

from rnnmem.analysis.loops import Loop
from rnnmem.ir.graph import Op


def is_hoisted(forward: Loop, op: Op, reads: Collection[str]) -> bool:
    """Whether what stands for the op in the gradient is made once, not in each iteration.

    Args:
      forward: the forward loop.
      op: an op of its step net that is recomputed.
      reads: blobs of the step net that one read beside the loop stands for.
    """
    if op.type != "Cast" or op.controls:
        return False
    (source,) = op.inputs
    return source in reads or source in forward.invariants
