"""Which ops run once where TensorFlow would compute an op of a rewritten function in another way.

A clone is computed in another way where TensorFlow fuses or folds it otherwise than the op; what
reads a clone, where TensorFlow does not know that it has the sizes of the op:

    forward     s ─► Softmax ─► ...         the op: s and d have the same sizes, as TensorFlow sees
    gradient    (d * clone of s) / 8        the clone: it does not, and divides another factor
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence

from rnnmem.analysis.shapes import known_net
from rnnmem.analysis.symbolic_sizes import sizing_ops
from rnnmem.compiled import Compiled
from rnnmem.grappler.constant_products import constants_moved
from rnnmem.ir.order import reached, waiting_for
from rnnmem.passes.rematerialise.clone import AGAIN
from rnnmem.passes.straight_line.apply import CLONE
from rnnmem.planning.plan import Plan

_NEAR = 12
"""Ops that are looked at for clones, from the one on that is computed in another way."""
_is_clone = re.compile(f"(.*)/{CLONE}").fullmatch


@dataclasses.dataclass(frozen=True)
class Otherwise:
    """An op that TensorFlow would compute in another way than in the original.

    Attributes:
      op: its name.
      made: the rewritten function.
      plan: by which that was made.
      ops_left: gives the names of the ops that TensorFlow makes of the original.
    """

    op: str
    made: Compiled
    plan: Plan
    ops_left: Callable[[], Sequence[str]]

    def running_once(self, once: frozenset[str]) -> frozenset[str]:
        """Names of ops that are to run once, beside those that do already.

        That of which it is a clone. Or, where it is none, the ops whose clones have other sizes for
        TensorFlow: those that it reads, or what it reads does; if these do already, all.
        """
        if found := self._cloned_outside() or self._cloned_in_loop():
            return frozenset({found}) - once
        return self._read_again() - once or self._sizing_again() - once

    def _read_again(self) -> frozenset[str]:
        """Ops outside of loops whose clones are what the op reads that was found, or near before.

        With it those that others of its kind read: in each layer of a network is one.
        """
        rewritten, moved = self.made.rewritten, self.made.net.once(constants_moved).ops
        if rewritten is None:
            return frozenset()
        found = [op for op in rewritten.op_by_name if f"/{self.op}".endswith(f"/{op}")]
        if any(op in moved for op in found):
            found = [op for op in rewritten.op_by_name if op in moved]

        def before(name: str) -> Iterator[str]:
            read = () if _is_clone(name) else rewritten.op_by_name[name].inputs
            return (rewritten.producer[one].name for one in read if one in rewritten.producer)

        near = (itertools.islice(reached([op], before), _NEAR) for op in found)
        clones = map(_is_clone, itertools.chain.from_iterable(near))
        return frozenset(one[1] for one in clones if one)

    def _sizing_again(self) -> frozenset[str]:
        """Ops outside of loops that run again and whose results have sizes of their own.

        TensorFlow does not know that a clone has the same, and keeps reshapes that it would drop.
        """
        again = {name for region in self.plan.of("straight_line") for name in region.ops}
        return sizing_ops(known_net(self.made.net), again) if again else frozenset()

    def _cloned_outside(self) -> str:
        """That op where it is outside of loops; empty: it is not."""
        name, is_clone, _ = f"/{self.op}".partition(f"/{CLONE}")
        regions = self.plan.at_every_depth("straight_line") if is_clone else ()
        found = (op for one in regions for op in one.ops if name.endswith(f"/{op}"))
        return max(found, key=len, default="")

    def _cloned_in_loop(self) -> str:
        """That op, or the branch or loop op that it is inside of, where it is in a loop."""
        _, is_clone, name = self.op.rpartition(f"{AGAIN}/")
        again = {op for one in self.plan.every_loop() for op in one.recomputed if is_clone}
        if name in again:
            return self._as_it_is_left(name)
        return max((op for op in again if name.startswith(f"{op}/")), key=len, default="")

    def _as_it_is_left(self, name: str) -> str:
        """The op of a step net, or what TensorFlow makes of it with others: the first behind it.

        What is fused is nowhere, and to save it would change how the loop computes.
        """
        nets = (one for _, one in self.made.net.walk())
        net = next((one for one in nets if name in one.op_by_name), None)
        if net is None:
            return name
        left = self.ops_left()
        behind = reached([name], functools.partial(waiting_for, net))
        return next((op for op in behind if any(one.endswith(f"/{op}") for one in left)), name)
