"""An order in which a Net's ops may run, whatever order they are listed in."""

from __future__ import annotations

import graphlib

from rnnmem.ir.graph import Net, Op
from rnnmem.verify.errors import refused


class RunningOrder:
    """The running orders of the Nets of one check, each found once."""

    def __init__(self) -> None:
        """None is known yet."""
        self._orders: dict[int, tuple[Net, tuple[Op, ...]]] = {}

    def of(self, net: Net) -> tuple[Op, ...]:
        """The ops, each after what it reads and waits for.

        Raises:
          CheckError: there is no such order.
        """
        if id(net) not in self._orders:
            ops = net.ops if _listed_as_they_run(net) else _sorted(net)
            self._orders[id(net)] = (net, ops)
        return self._orders[id(net)][1]


def _listed_as_they_run(net: Net) -> bool:
    made, run = set(net.inputs), set()
    for op in net.ops:
        if not (made.issuperset(op.inputs) and run.issuperset(op.controls)):
            return False
        made.update(op.outputs)
        run.add(op.name)
    return True


def _sorted(net: Net) -> tuple[Op, ...]:
    maker = {blob: op.name for op in net.ops for blob in op.outputs}
    waits = {
        op.name: [*(maker[blob] for blob in op.inputs if blob in maker), *op.controls]
        for op in net.ops
    }
    by_name = {op.name: op for op in net.ops}
    try:
        return tuple([by_name[name] for name in graphlib.TopologicalSorter(waits).static_order()])
    except graphlib.CycleError as error:
        circle = error.args[1]
        text = f"{' -> '.join(circle)} wait for each other"
        raise refused("cycle", text, net, circle) from None
