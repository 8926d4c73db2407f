"""Ops of a large net by the user's layer, so that a drawing of it has a node a layer.

model/block_1/dense/MatMul                      block
gradient_tape/model/block_1/dense/MatMul        block, gradient
model/block_1/dense/Tanh/rnnmem/clone           block, again
mul_7, made at train.py:88                      train.py:88
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence

from rnnmem.ir.graph import Op
from rnnmem.ir.names import GRADIENT_SCOPES, Scopes

FEWEST = 4
"""Layers that a drawing has at least; where names tell fewer, there is none."""
ALONE = 20
"""Ops between layers, such as the sum of a residual block, that have a node each, at most."""
_LOOSE = "other ops"


def layers(ops: Sequence[Op], runs_again: Callable[[Op], bool]) -> dict[str, str]:
    """Names of the ops -> the layer that each belongs to.

    Args:
      ops: of one net.
      runs_again: whether an op computes again what another computed.
    """
    named = Scopes(op.name for op in ops)
    scopes = {op.name: named.of(op.name) for op in ops}
    depth = _depth(list(scopes.values()))
    between = sum(0 < len(one) <= depth for one in scopes.values())
    found = {}
    for op in ops:
        around = scopes[op.name]
        if around[depth:]:
            layer = around[depth]
        elif around:
            layer = op.name.rpartition("/")[2] if between <= ALONE else around[-1]
        else:
            layer = str(op.source) or _LOOSE
        of = ", gradient" if op.name.startswith(GRADIENT_SCOPES) else ""
        found[op.name] = layer + (", again" if runs_again(op) else of)
    return found if len(set(found.values())) >= FEWEST else {}


def _depth(scopes: Sequence[tuple[str, ...]]) -> int:
    """How many scopes are around the layers: the model's own tells nothing."""
    deepest = max(map(len, scopes), default=0)
    for depth in range(deepest):
        counted = collections.Counter(one[depth] for one in scopes if len(one) > depth)
        if len(counted) >= FEWEST:
            return depth
    return 0
