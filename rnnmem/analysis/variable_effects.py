"""Which variables an op may write, and which stay as they are while a loop runs.

A variable is known by the Net's input that holds its handle: TensorFlow gives a function one input
for each variable. A handle that comes from anywhere else may belong to any variable.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

from rnnmem.analysis.branches import given_inside
from rnnmem.analysis.loops import Loop
from rnnmem.ir.graph import FunctionRef, Net, Op
from rnnmem.ir.op_table import LOOPS, READERS, is_pure
from rnnmem.ir.order import all_needed_by, all_waiting_for

ANY = ""
"""Stands for every variable at once."""

Written = frozenset[str]


def handle_of(net: Net, blob: str) -> str:
    """Where a handle comes from: through Identity, and past loops that only carry it."""
    while (op := net.producer.get(blob)) is not None:
        if op.type == "Identity":
            blob = op.inputs[0]
            continue
        place = op.outputs.index(blob)
        if op.type not in LOOPS or place not in Loop(net, op).invariants.values():
            break
        blob = op.inputs[place]
    return blob


def written_by(net: Net, op: Op, variable_of: Callable[[str], str]) -> Written:
    """The variables that the op, or one that it runs, may write.

    Args:
      net: the Net around the op.
      op: the op.
      variable_of: what handle a blob of ``net`` holds; ``ANY`` where that is not known.
    """
    if not op.nets:
        if is_pure(op) or op.type in READERS:
            return frozenset()
        if "PyFunc" in op.type or any(names_a_function(one) for one in op.attributes.values()):
            return frozenset({ANY})
        handles = (blob for blob in op.inputs if net.blobs[blob].dtype == "resource")
        return frozenset(variable_of(blob) for blob in handles)
    given = given_inside(op)
    carried = Loop(net, op).invariants.values() if op.type in LOOPS else range(len(given))
    found: Written = frozenset()
    for inner in op.nets.values():
        known = {inner.inputs[place]: variable_of(given[place]) for place in carried}

        def inside(blob: str, inner: Net = inner, known: Mapping[str, str] = known) -> str:
            return known.get(handle_of(inner, blob), ANY)

        for one in inner.ops:
            found |= written_by(inner, one, inside)
    return found


def names_a_function(value: object) -> bool:
    """Whether an attribute's value names library functions, which nobody looks into."""
    if isinstance(value, tuple):
        return any(names_a_function(one) for one in value)
    return isinstance(value, FunctionRef)


@dataclasses.dataclass(frozen=True)
class Writers:
    """The ops of a Net that may write variables, and their turn.

    Attributes:
      net: the Net.
      variables: its inputs that hold the handle of a variable each, of which no two are the same;
        None: all are, as in an outermost Net.
    """

    net: Net
    variables: frozenset[str] | None = None

    def variable_of(self, blob: str) -> str:
        """The Net's input that holds the handle, or ``ANY``."""
        handle = handle_of(self.net, blob)
        known = self.net.inputs if self.variables is None else self.variables
        return handle if handle in known else ANY

    @functools.cached_property
    def written(self) -> Mapping[str, Written]:
        """Op name -> what it may write, for every op that may write anything."""
        pairs = ((op.name, written_by(self.net, op, self.variable_of)) for op in self.net.ops)
        return {name: written for name, written in pairs if written}

    def of(self, variable: str) -> tuple[str, ...]:
        """Names of the ops that may write the variable."""
        return tuple(name for name, some in self.written.items() if some & {variable, ANY})

    def unchanged_by(self, loop: Op, blob: str) -> bool:
        """Whether the variable of a handle is the same from the loop's first op to its last.

        It is where nothing in the loop may write it, and all that may runs before it or after it.
        """
        variable = self.variable_of(blob)
        if variable == ANY or loop.name in self.of(variable):
            return False
        return self.in_turn(loop, blob)

    def in_turn(self, op: Op, blob: str) -> bool:
        """Whether all others that may write the variable of a handle run before the op or after."""
        writers = set(self.of(self.variable_of(blob))) - {op.name}
        return writers <= self.before(op.name) | self.after(op.name)

    @functools.cached_property
    def _known(self) -> dict[tuple[Callable, str], set[str]]:
        return {}

    def before(self, name: str) -> set[str]:
        """Names of the ops that must have run before the op."""
        return self._others(all_needed_by, name)

    def after(self, name: str) -> set[str]:
        """Names of the ops that must not run before the op has."""
        return self._others(all_waiting_for, name)

    def _others(self, find: Callable[[Net, list[str]], set[str]], name: str) -> set[str]:
        if (find, name) not in self._known:
            self._known[find, name] = find(self.net, [name]) - {name}
        return self._known[find, name]
