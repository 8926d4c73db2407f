"""What plans for one function depend on."""

from __future__ import annotations

import dataclasses

from rnnmem.analysis.machine import CPU, Machine
from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.ir.builders import Encode
from rnnmem.ir.graph import Net
from rnnmem.passes.registry import AROUND_LOOPS, PASSES, Kind, Pass, passes_of
from rnnmem.passes.rematerialise.select import REMATERIALISE
from rnnmem.planning.call_sizes import CallSizes


@dataclasses.dataclass(frozen=True)
class Setting:
    """What plans for one function depend on, beside its Net and the bounds that the user gave.

    Attributes:
      machine: what estimates of time assume.
      constant: encodes a number as the exporter wants it: (value, dtype) -> Constant.
      passes: names of those that may be used.
      keeps_alive: whether a graph optimizer that fuses by neighbourhood runs afterwards; else it is
        XLA, under which a list in a branch would be copied whole.
      reads_again: whether the gradient may read variables; not where it is a function of its own,
        which runs who knows when.
      scheduling_edges: whether plans are tried with large buffers taking turns where no other plan
        fits.
      runs_once: names of ops that do not run again, though they might.
      sizes: those of a call, where the function does not tell its own; None where it does, or
        nothing tells them.
    """

    machine: Machine
    constant: Encode
    passes: frozenset[str] = passes_of(["default"])
    keeps_alive: bool = True
    reads_again: bool = False
    scheduling_edges: bool = False
    runs_once: frozenset[str] = frozenset()
    sizes: CallSizes | None = None

    def known(self, net: Net) -> KnownNet:
        """The whole function, rewritten or not, with its shapes: in the call, where there is one.

        They are for estimates. What is decided on them must be right whatever the sizes are.
        """
        return known_net(net) if self.sizes is None else self.sizes.known(net)

    def keeps_bits(self, one: Pass) -> bool:
        """Whether a pass was held against kernels of this machine's kind."""
        return not one.on_cpu_alone or self.machine.device == CPU.device

    @property
    def in_loops(self) -> frozenset[str]:
        """Whether blobs may be computed again, and in which forms they may be saved."""
        known = frozenset(one.name for one in PASSES if one.kind is Kind.LOOP)
        return self.passes & (known if self.keeps_alive else REMATERIALISE) - {"checkpoint"}

    @property
    def outside_of_loops(self) -> bool:
        """Whether residuals of straight-line code may be computed again."""
        return self.keeps_alive and "straight_line" in self.passes

    @property
    def segments(self) -> bool:
        """Whether loops may be cut into segments."""
        return self.keeps_alive and {"rematerialise", "checkpoint"} <= self.passes

    @property
    def around_loops(self) -> tuple[Pass, ...]:
        """What loops that are rewritten may bring along."""
        not_for_xla = set() if self.keeps_alive else {"unstacked_lists"}  # rebuilt ones are
        return tuple(one for one in AROUND_LOOPS if one.name in self.passes - not_for_xla)
