"""Plans whose peak only the run can tell, held against the original at sizes that are assumed.

Where a trip count or a dimension is unknown, nothing is predicted; what a plan does to the peak
must be known all the same, or it is not applied. So both are simulated at a few sizes, small ones
among them, at which what is kept for a while weighs more than what is no longer saved:

    peak │ original     ╱       what is worth it at 64 iterations may lose at three: the states of a
         │ plan ─────╱─────    segment, or what one iteration computes again; and what lets
         │        ╱            something grow shows at many
         └──────────────── trips
"""

from __future__ import annotations

from rnnmem.analysis.shapes import known_net
from rnnmem.ir.graph import Net
from rnnmem.ir.op_table import LOOPS
from rnnmem.simulate.timeline import counted_peak

TRIPS = ((3, 0), (3, 1), (8, 3), (64, 3))
"""What stands for trip counts, of loops and of loops in them; a plan may be larger at none of them.

The first stands for dimensions, too: most are the length of a sequence that a loop runs over.
"""

MOST_TRIED = 6
"""Plans that are tried until one is no larger."""

CLOSE = 0.01
"""Part of a peak by which the order of ops may make two of them differ."""

SLACK = 16 * 1024
"""Bytes by which a peak may rise: they are not worth what is saved at other sizes."""

CLOSE_OF_ROWS = 0.02
"""The same part where logits are cut into chunks: how parts of one lie in memory shows at sizes at
which all rows are one chunk.
"""

Peaks = tuple[int | None, ...]
"""Predicted peaks at each of the sizes; None where not even those tell."""


def assumed_peaks(net: Net) -> Peaks:
    """Predicted peaks of a Net at each of the sizes that are assumed."""
    return net.once(_peaks_of)


def _peaks_of(net: Net) -> Peaks:
    loops = any(op.type in LOOPS for _, inner in net.walk() for op in inner.ops)
    apart = {trips: trips if loops else trips[:1] for trips in TRIPS}
    peaks = {
        one: counted_peak(known_net(net, None, one[0], unknown_trips=one))
        for one in dict.fromkeys(apart.values())
    }
    return tuple(peaks[apart[trips]] for trips in TRIPS)


def higher_peaks(peaks: Peaks, others: Peaks) -> Peaks:
    """The higher peak at each of the sizes; None where one of them is not told."""
    pairs = zip(peaks, others, strict=True)
    return tuple(None if one is None or other is None else max(one, other) for one, other in pairs)


def may_be_larger(net: Net, before: Peaks, in_call: int = 0) -> bool:
    """Whether a rewritten Net is above these peaks of the original, or nothing tells.

    Args:
      net: the Net.
      before: the original's peaks at the sizes that are assumed.
      in_call: its peak in a call, as in `are_larger`.
    """
    return are_larger(assumed_peaks(net), before, in_call=in_call) is not False


def are_larger(
    after: Peaks, before: Peaks, cuts_rows: bool = False, in_call: int = 0
) -> bool | None:
    """Whether one of the peaks is above what it was, by more than is not worth a word.

    None where one of them is not told.

    Args:
      after: peaks at each of the sizes.
      before: what they were.
      cuts_rows: whether logits are cut into chunks.
      in_call: the original's peak in a call, of which a hundredth more elsewhere is not worth it.
    """
    close, more = CLOSE_OF_ROWS if cuts_rows else CLOSE, SLACK + CLOSE * in_call
    larger = False
    for new, old in zip(after, before, strict=True):
        if new is None or old is None:
            return None
        larger |= new > (1 + close) * old + more
    return larger
