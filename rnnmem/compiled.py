"""What is to be compiled, and what became of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from rnnmem.analysis.loops import loops_of, own_loop_pairs
from rnnmem.analysis.machine import Machine
from rnnmem.analysis.shape_rules import Fact
from rnnmem.analysis.tape import ends_with_gradient
from rnnmem.analysis.training_regions import nested_steps
from rnnmem.ir.graph import Net
from rnnmem.planning.options import Options
from rnnmem.planning.plan import Plan
from rnnmem.planning.search import Search
from rnnmem.tf import private

T = TypeVar("T")


class Memo:
    """What was made last of each kind; other plans for the same function begin with it."""

    def __init__(self):
        self._last: dict[str, tuple[tuple, Any]] = {}

    def latest(self, kind: str, of: tuple, make: Callable[[], T]) -> T:
        """What was made last of the same, or is made now in its place."""
        if kind not in self._last or self._last[kind][0] != of:
            self._last.pop(kind, None)  # not held while the next one is made
            self._last[kind] = of, make()
        return self._last[kind][1]


@dataclasses.dataclass(frozen=True)
class Target:
    """What is to be compiled.

    Attributes:
      concrete: the function as TensorFlow traced it.
      options: what the user asks for.
      machine: what estimates of time assume; None: it is found out.
      differentiated: whether it is compiled together with the gradient that somebody asked for;
        such a Net is split again, and no loop may hold ops of both halves.
      left: why nothing may be changed; empty where something may.
      memo: what plans for the function begin with.
      given: what is known of the function's inputs in a call; empty: nobody calls it yet.
    """

    concrete: Any
    options: Options
    machine: Machine | None = None
    differentiated: bool = False
    left: str = ""
    memo: Memo = dataclasses.field(default_factory=Memo, compare=False)
    given: tuple[Fact, ...] = ()

    @property
    def by_xla(self) -> bool:
        """Whether XLA compiles it."""
        return private.is_compiled(self.concrete)

    @property
    def by_chunks(self) -> bool:
        """Whether softmax losses may, or by a saved plan must, run by chunks."""
        saved = self.options.plan
        if saved is None:
            return bool(self.chunk_passes)
        return not self.differentiated and saved.cuts_rows

    @property
    def chunk_passes(self) -> tuple[str, ...]:
        """The passes that may be used by which softmax losses run by chunks."""
        known = [one for one in ("row_chunks", "chunked_loss") if one in self.options.passes]
        return () if self.differentiated else tuple(known)  # in which no loop may stand

    def within(self, max_slowdown: float) -> Target:
        """The same within a bound on time, and no budget."""
        options = dataclasses.replace(self.options, budget=None, max_slowdown=max_slowdown)
        return dataclasses.replace(self, options=options)

    def leaving(self, reason: str) -> Target:
        """The same where nothing is to be changed; a budget must be met so."""
        options = dataclasses.replace(self.options, allow=(), plan=None)
        return dataclasses.replace(self, options=options, left=reason)


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What became of a Net.

    Attributes:
      net: the Net, as it was normalised.
      plan: the decisions.
      rewritten: what is to run instead; None: nothing was changed.
      search: the choice of the plan, or one at the sizes of the call where that found none at them;
        None where nothing was planned.
    """

    net: Net
    plan: Plan = Plan()
    rewritten: Net | None = None
    search: Search | None = None


def waits_for_gradient(net: Net) -> bool:
    """Whether the Net has loops and no gradient yet: somebody may differentiate it later."""
    if not loops_of(net) or own_loop_pairs(net) or ends_with_gradient(net):
        return False
    return not any(one.has_loops for one in nested_steps(net))
