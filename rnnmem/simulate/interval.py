"""Between which bytes the peak of a run lies, whatever order its ops run in.

    bytes
      │   ┌ high: the worse order of ready ops, an op held up at the worst moment, the larger
      │   │       branch, what nobody waits for done last, chunks laid out in arenas that
      │   │       earlier runs have broken up
      │   │
      │   └ low:  of several orders the one that holds least, nothing held up, the smaller branch,
      │           chunks laid out at best
      └──────────

Each is the peak of a run that TensorFlow's executor may make, and a little more or less than that:
arenas are broken up in more ways than are tried.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rnnmem.analysis.machine import CPU, LESS_HELD, MORE_WASTE
from rnnmem.analysis.shapes import KnownNet
from rnnmem.ir.graph import Net
from rnnmem.simulate import bfc
from rnnmem.simulate.buffers import Ledger
from rnnmem.simulate.folding import Simplified
from rnnmem.simulate.setting import Deals, Setting
from rnnmem.simulate.timeline import (
    most_iterations,
    peaks_where_all_goes_wrong,
    prepared,
    run,
)

_GOOD: tuple[Mapping[str, Any], ...] = (
    {"deals": Deals.OLDEST, "in_turn": True},
    {"deals": Deals.NEWEST, "in_turn": True},
    {"deals": Deals.LEAST, "in_turn": True},
    {"deals": Deals.LEAST},
)
"""Orders that hold little: iterations one after the other, as nothing piles up then; or several at
once, where what they add up is made later than what they let go of."""

BEFORE_AND_AFTER = 2
"""Copies of a variable that grows: what an iteration reads, and what it makes of that."""

Interval = tuple[int, int]
"""The lowest peak and the highest, in bytes above what is resident."""


def peak_interval(net: Net | KnownNet, threads: int = CPU.threads) -> Interval | None:
    """Between which bytes the measured peak of a run lies.

    Args:
      net: the whole function, inlined; or what `known_net` found of it.
      threads: that run ops side by side.

    Returns:
      Bytes above what is resident, the lowest and the highest; None where a size that matters is
      unknown.
    """
    found = simulated_interval(net, threads)
    if found is None:
        return None
    (low, high), (part, more) = found, MORE_WASTE
    high += _growing(net)
    return round(low * (1 - LESS_HELD)), round(high * (1 + part)) + more


def _growing(net: Net | KnownNet) -> int:
    """Bytes that the last iteration of a loop holds more than the middle one, of which all are."""
    grows = net.growing.values() if isinstance(net, KnownNet) else ()
    return BEFORE_AND_AFTER * max(grows, default=0)


def simulated_interval(net: Net | KnownNet, threads: int = CPU.threads) -> Interval | None:
    """The same of those runs that are simulated."""
    machine = dataclasses.replace(CPU, threads=threads)
    program = prepared(net, machine, simplified=Simplified(dead_in_branches=True))
    if program.unknown:
        return None
    low, high = peaks_where_all_goes_wrong(program, machine)
    as_simple_as_may_be = Simplified(dead_in_branches=True, equal_constants=True)
    least_run = prepared(net, machine, simplified=as_simple_as_may_be)
    most = most_iterations(least_run)
    ledgers = [run(least_run, Setting(Ledger(), 1, most, is_good=True, **order)) for order in _GOOD]
    least = min(ledgers, key=lambda one: one.peak)
    return min(low, bfc.least_peak(least.log, least.peak)), high
