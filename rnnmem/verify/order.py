"""An order in which a Net's ops may run, whatever order they are listed in."""

from __future__ import annotations

from rnnmem.errors import NetError
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.order import topological
from rnnmem.verify.errors import refused


class RunningOrder:
    """The running orders of the Nets of one check, each found once."""

    def __init__(self) -> None:
        """None is known yet."""
        self._orders: dict[int, tuple[Net, tuple[Op, ...]]] = {}  # with the Net: its id stays so

    def of(self, net: Net) -> tuple[Op, ...]:
        """The ops, each after what it reads and waits for.

        Raises:
          CheckError: there is no such order.
        """
        if id(net) not in self._orders:
            try:
                self._orders[id(net)] = net, net.of_ops(topological)
            except NetError as error:
                raise refused("cycle", str(error), net) from None
        return self._orders[id(net)][1]
