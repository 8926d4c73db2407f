"""How long a loop's segments are.

Segment k has ``length + k * growth`` iterations. With a known trip count T equal ones of about
sqrt(T * state bytes / saved bytes) keep least (Griewank 1992; Chen et al. 2016). Where only the run
can tell, growing ones keep within a constant factor of that for every T, without being told T.
"""

from __future__ import annotations

import math


def segment_count(trips: int, length: int, growth: int) -> int:
    """How many segments ``trips`` iterations have."""
    if not growth:
        return -(-trips // length)
    # The smallest n with n * length + growth * n * (n - 1) / 2 >= trips.
    half = length - growth / 2
    count = max(0, math.floor((math.sqrt(half * half + 2 * growth * trips) - half) / growth) - 1)
    while count * length + growth * count * (count - 1) // 2 < trips:
        count += 1
    return count


def longest_segment(trips: int, length: int, growth: int) -> int:
    """Iterations of the longest of them."""
    count = segment_count(trips, length, growth)
    return min(trips, length + max(0, count - 1) * growth)


def best_length(trips: int, state_bytes: int, saved_bytes: int) -> int:
    """Iterations of each segment so that states and one segment together keep fewest bytes."""
    return max(1, min(trips, round(math.sqrt(trips * state_bytes / max(1, saved_bytes)))))


def best_growth(state_bytes: int, saved_bytes: int) -> int:
    """The growth that keeps fewest bytes as the trip count, which nobody knows, rises.

    With segments that grow by g, T iterations have sqrt(2T / g) of them, the longest sqrt(2Tg).
    """
    return max(1, round(state_bytes / max(1, saved_bytes)))
