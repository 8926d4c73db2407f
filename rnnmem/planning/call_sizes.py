"""Sizes of a call, by which plans are compared where the function does not tell its own.

They choose among plans and promise nothing: every plan computes the same at all sizes. Bounds on
time and predicted peaks hold at these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnnmem.analysis.shape_rules import Fact
from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.ir.graph import Net
from rnnmem.simulate.timeline import blobs_peak, counted_peak, is_told

SMALL = 4 * 2**20
"""Bytes of the predicted peak, or of blobs alone, that must grow with the sizes of a call, or it
says nothing of those that follow: it may warm up.
"""
FEW = 1
"""Stands for dimensions where it is looked at what does not grow with them."""


@dataclasses.dataclass(frozen=True)
class CallSizes:
    """What is known of a function's inputs in one call.

    Attributes:
      facts: of each input, in order.
    """

    facts: tuple[Fact, ...]

    def known(self, net: Net) -> KnownNet:
        """The function, before or after it was rewritten, with its shapes in the call."""
        return known_net(net, self.facts, most=True)


def telling(net: Net, facts: Sequence[Fact]) -> CallSizes | None:
    """The sizes of a call, where it tells what the function does not; None where it does not.

    Args:
      net: the whole function, inlined.
      facts: what is known of its first inputs in the call.
    """
    declared = [net.blobs[blob].shape for blob in net.inputs]
    known = all(one.shape in (None, shape) for one, shape in zip(facts, declared, strict=False))
    if known and (not facts or is_told(net)):
        return None
    left = len(declared) - len(facts)
    sizes = CallSizes((*facts[: len(declared)], *[Fact()] * left))
    if known and is_told(known_net(net, None, most=True)):
        return sizes  # by the most that sizes may be which values decide
    in_call = sizes.known(net)
    if known:  # by values
        return sizes if _grows(0, counted_peak(in_call)) else None
    few = known_net(net, None, FEW)
    # Scratch space of a convolution may be larger than all that grows, or be what grows.
    tells = any(_grows(peak(few), peak(in_call)) for peak in (blobs_peak, counted_peak))
    return sizes if tells else None


def _grows(least: int | None, peak: int | None) -> bool:
    return least is not None and peak is not None and peak - least >= SMALL
