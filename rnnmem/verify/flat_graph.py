"""A function as TensorFlow runs it: without step nets; loops and branches are ops of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable


@dataclasses.dataclass(frozen=True, slots=True)
class FlatOp:
    """An op of a function without step nets: loops and branches are Switch, Merge and the like.

    Attributes:
      name: its name.
      type: its type.
      inputs: ``(op, output)`` that it reads, without control edges.
      dtypes: of its outputs.
      detail: what else says how it computes: the attributes that matter.
      value: of a constant, what stands for its content.
      index: which argument, or result, of the function it is.
      frame: of an Enter, the loop.
      parallel_iterations: of an Enter, how many iterations of the loop may be under way at once.
    """

    name: str
    type: str
    inputs: tuple[tuple[str, int], ...]
    dtypes: tuple[str, ...]
    detail: Hashable = ()
    value: tuple[Hashable, ...] | None = None
    index: int = 0
    frame: str = ""
    parallel_iterations: int = 0


class FlatGraph:
    """A function as the graph optimizer left it, its ops in an order in which they may run."""

    def __init__(self, ops: Iterable[FlatOp]):
        self.ops = {op.name: op for op in ops}
        self.readers: dict[tuple[str, int], list[FlatOp]] = {}
        for op in self.ops.values():
            for blob in op.inputs:
                self.readers.setdefault(blob, []).append(op)
        self._before: dict[str, list[str]] = {}
        self._after: dict[str, list[str]] = {}
        self.order = self._ordered()

    def back_edge(self, merge: FlatOp) -> FlatOp | None:
        """The op whose result is the state in the next iteration; None where it is no loop's."""
        for source, _ in merge.inputs:
            if self.ops[source].type == "NextIteration":
                return self.ops[source]
        return None

    def is_invariant(self, merge: FlatOp) -> bool:
        """Whether a loop's state is the same in all iterations."""
        back = self.back_edge(merge)
        source = self.ops[back.inputs[0][0]] if back is not None else merge
        while source.type == "Identity":
            source = self.ops[source.inputs[0][0]]
        return source.type == "Switch" and source.inputs[0][0] == merge.name

    def merge_of(self, exit: FlatOp) -> FlatOp | None:
        """The Merge of the loop whose state an Exit gives."""
        switch = self.ops[exit.inputs[0][0]]
        found = self.ops[switch.inputs[0][0]] if switch.type == "Switch" else None
        return found if found is not None and found.type == "Merge" else None

    def reached(self, names: Iterable[str], backwards: bool = False) -> set[str]:
        """The ops, and all that wait for one of them in one iteration; or that they wait for."""
        steps = self._before if backwards else self._after
        found = set(names)
        left = list(found)
        while left:
            new = [name for name in steps.get(left.pop(), ()) if name not in found]
            found.update(new)
            left += new
        return found

    def over_back_edges(self, names: Iterable[str], backwards: bool = False) -> set[str]:
        """What the next iteration starts with of these; or, backwards, the one before ends with."""
        ops = (self.ops[name] for name in names)
        if backwards:
            merges = (self.back_edge(op) for op in ops if op.type == "Merge")
            return {op.name for op in merges if op is not None}
        ends = (op for op in ops if op.type == "NextIteration")
        return {one.name for op in ends for one in self.readers.get((op.name, 0), ())}

    def _ordered(self) -> list[FlatOp]:
        """Back edges are no dependencies; what leaves a loop comes after the loop's step."""
        left: dict[str, int] = {}
        after = self._after
        for op in self.ops.values():
            sources = [name for name, _ in op.inputs if self.ops[name].type != "NextIteration"]
            if op.type == "Exit" and (merge := self.merge_of(op)) is not None:
                back = self.back_edge(merge)
                sources += [] if back is None else [back.name]
            left[op.name] = len(sources)
            self._before[op.name] = sources
            for name in sources:
                after.setdefault(name, []).append(op.name)
        ready = [name for name, count in left.items() if not count]
        order = []
        while ready:
            name = ready.pop()
            order.append(self.ops[name])
            for reader in after.get(name, ()):
                left[reader] -= 1
                if not left[reader]:
                    ready.append(reader)
        return order
