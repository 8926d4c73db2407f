"""The order in which TensorFlow lists what a racing sum adds up, and what else reads it.

Of ops that are ready together the one that is listed first starts first. So that order decides
which addend is the last to be there, and whether another reader of an addend is done by then:

    a ─┬─► x ─┬─► Shape, Add ─► Shape      x listed first: Add has let go of it when AddN begins
       ├─► y ─┤                            y listed first: Add holds it, and AddN begins with y
       └──────┴─► AddN

TensorFlow lists ops by their distance from the function's results, and any rewrite changes some.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from rnnmem.grappler.summation_races import BesideShapes
from rnnmem.ir.graph import Op

_RENAMED = re.compile(r"/_\d+(?=/|$)|ArithmeticOptimizer/|AddOpsRewrite_(Leaf_\d+_)?")


class Node(Protocol):
    """A NodeDef."""

    name: str
    op: str
    input: Iterable[str]


class Listing:
    """A function as the graph optimizer left it: its ops in order, under the names of a Net.

    Attributes:
      inputs: op -> what it reads.
      types: op -> its type.
      readers: op -> what reads it.
    """

    def __init__(self, nodes: Iterable[Node]):
        """Looks at lowered, inlined ops."""
        nodes = list(nodes)
        self.types = {name_in_net(one.name): one.op for one in nodes}
        self.inputs: dict[str, list[str]] = {}
        self.readers: dict[str, list[str]] = {}
        names = [name_in_net(one.name) for one in nodes]
        self._place = {name: place for place, name in enumerate(names)}
        self._doubtful = {name for name, count in Counter(names).items() if count > 1}
        for name, one in zip(names, nodes, strict=True):
            self.inputs[name] = [
                name_in_net(blob) for blob in one.input if not blob.startswith("^")
            ]
            for blob in self.inputs[name]:
                self.readers.setdefault(blob, []).append(name)

    def sums(self, found: BesideShapes) -> list[str]:
        """The AddN of three values or more that the optimizer made of a tree of additions."""
        ends = tuple(f"{found.loop}/body/{op.name}" for op in found.ops)
        return [
            name
            for name, type in self.types.items()
            if type == "AddN" and len(self.inputs[name]) > 2 and _ends(name, ends)
        ]

    def around(self, name: str) -> list[str]:
        """A sum, what it adds up and what else reads that, in order; empty where it is not clear.

        Constants are always held, and so is what is pushed, whatever else reads it.
        """
        found = {name}
        for addend in self.inputs[name]:
            readers = self.readers[addend]
            if self.types.get(addend) != "Const":
                found |= {addend, *(one for one in readers if self.types[one] != _PUSH)}
        if not found.isdisjoint(self._doubtful):
            return []
        return sorted(found, key=lambda one: self._place[one])


_PUSH = "TensorListPushBack"


def reordered(found: Iterable[BesideShapes], before: Listing, after: Listing) -> Op | None:
    """The first op of a sum that may begin with another addend than before; None: none may."""
    for one in found:
        if before.sums(one) != after.sums(one) or not all(
            before.inputs[name] == after.inputs[name]
            and _in_one_order(before.around(name), after.around(name))
            for name in before.sums(one)
        ):
            return one.ops[0]
    return None


def _in_one_order(one: list[str], other: list[str]) -> bool:
    common = set(one) & set(other)
    return bool(common) and [name for name in one if name in common] == [
        name for name in other if name in common
    ]


def _ends(name: str, ends: tuple[str, ...]) -> bool:
    return f"/{name}".endswith(tuple(f"/{end}" for end in ends))


def name_in_net(blob: str) -> str:
    """The name of the op that writes a blob, or of an op, without what TensorFlow adds to it.

    Lowering a loop and making a sum do.
    """
    return _RENAMED.sub("", blob.lstrip("^").partition(":")[0])
