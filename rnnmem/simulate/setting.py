"""Which of the runs that TensorFlow's executor may make of a program is simulated."""

from __future__ import annotations

import dataclasses
import enum

from rnnmem.analysis.machine import STALL, STEADY_AFTER
from rnnmem.simulate.buffers import Ledger
from rnnmem.simulate.steps import Step


class Deals(enum.Enum):
    """Which of several ops that become ready together is dealt out first.

    TensorFlow's executor does any of it, as threads happen to wake.
    """

    OLDEST = "the first one"
    NEWEST = "the last one"
    LEAST = "in a loop, the one that asks for least; outside, a loop before what asks for more"


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What all runs of one simulation share.

    Attributes:
      ledger: where buffers are booked.
      threads: that run ops side by side.
      steady_state: the most iterations of a loop that are simulated before the simulation leaps, so
        that a large function takes no longer.
      events: takes (op, bytes alive) of every op; None: nobody asks for them.
      deals: which of several ready ops runs first.
      stalled: an op whose thread is held up while it runs, until nothing but loops can go on.
      scratch_lasts: whether each op that asks for bytes of its own while it runs is held up so.
      sums_lag: whether of the sums of a loop only those are held up that nothing but later sums
        waits for; else those that its iterations wait for are, too.
      keepalives_lag: whether keep-alive uses, for which nobody waits, come when nothing else can.
      in_turn: whether the iterations of a loop come one after the other.
      is_good: whether a branch runs that of its Nets which holds least; else the one that holds
        most.
      scratch: whether ops are given the bytes that they ask for while they run.
    """

    ledger: Ledger
    threads: int
    steady_state: int
    events: list[tuple[str, int]] | None = None
    deals: Deals = Deals.OLDEST
    stalled: Step | None = None
    scratch_lasts: bool = False
    sums_lag: bool = False
    keepalives_lag: bool = False
    in_turn: bool = False
    is_good: bool = False
    scratch: bool = True

    def window(self, loop: Step) -> int:
        """Iterations of a loop under way at once."""
        return 1 if self.in_turn else min(loop.window, self.steady_state)

    def iterations(self, loop: Step) -> int:
        """Iterations of a loop until all are alike, or as many as may be simulated."""
        spares = loop.window >= self.steady_state
        return self.steady_state if spares else self.window(loop) + STEADY_AFTER

    def seconds(self, step: Step) -> float:
        """How long a step runs."""
        held_up = step is self.stalled or (self.scratch_lasts and step.scratch)
        return STALL if held_up else step.seconds
