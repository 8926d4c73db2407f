"""A function as TensorFlow runs it: without step nets; loops and branches are ops of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence

from rnnmem.ir.order import reached

_PROXY = "PlaceholderWithDefault"
"""The type of completion proxies: they read a blob so that others may wait for its op."""
Output = tuple[str, int]
"""One result of an op: its name, and which."""


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
      after: names of the ops that it waits for beside those that it reads.
    """

    name: str
    type: str
    inputs: tuple[Output, ...]
    dtypes: tuple[str, ...]
    detail: tuple[Hashable, ...] = ()
    value: tuple[Hashable, ...] | None = None
    index: int = 0
    frame: str = ""
    after: tuple[str, ...] = ()

    def reading(self, given: Mapping[Output, Output]) -> FlatOp:
        """The same op where other outputs stand for some that it reads."""
        inputs = []
        for blob in self.inputs:
            while blob in given:
                blob = given[blob]
            inputs.append(blob)
        return dataclasses.replace(self, inputs=tuple(inputs))


def called_ops(
    body: Sequence[FlatOp], call: FlatOp, arguments: Sequence[Output]
) -> tuple[list[FlatOp], dict[Output, Output]] | None:
    """A function's ops in the place of a call, under other names; what gives the call's results.

    Whoever calls holds the arguments until the call returns, as a loop does what enters it. So a
    sum of three or more may overwrite no item of a list among them: where one reads an item, None.
    """
    items = {op.name for op in body if op.type in ("TensorListPopBack", "TensorListGetItem")}
    sums = [op for op in body if op.type == "AddN" and len(op.inputs) > 2]
    if any(name in items for op in sums for name, _ in op.inputs):
        return None
    made, results = [], {}
    for op in body:
        inputs = tuple((f"{call.name}//{source}", place) for source, place in op.inputs)
        if op.type == "_Retval":
            results[call.name, op.index] = inputs[0]
            continue
        after = tuple(f"{call.name}//{name}" for name in op.after)
        op = dataclasses.replace(op, name=f"{call.name}//{op.name}", inputs=inputs, after=after)
        if op.type == "_Arg":
            op = dataclasses.replace(op, type="Enter", inputs=(arguments[op.index],))
        made.append(op)
    return made, results


class FlatGraph:
    """A function as the graph optimizer left it, its ops in an order in which they may run."""

    def __init__(self, ops: Iterable[FlatOp]):
        self.ops = {op.name: op for op in ops}
        self.readers: dict[tuple[str, int], list[FlatOp]] = {}
        for op in self.ops.values():
            for blob in op.inputs:
                self.readers.setdefault(blob, []).append(op)
        self.order = self._ordered()

    def back_edge(self, merge: FlatOp) -> FlatOp | None:
        """The op whose result is the state in the next iteration; None where it is no loop's."""
        for source, _ in merge.inputs:
            if self.ops[source].type == "NextIteration":
                return self.ops[source]
        return None

    def merge_of(self, exit: FlatOp) -> FlatOp | None:
        """The Merge of the loop whose state an Exit gives."""
        switch = self.ops[exit.inputs[0][0]]
        found = self.ops[switch.inputs[0][0]] if switch.type == "Switch" else None
        return found if found is not None and found.type == "Merge" else None

    def accumulated(self, op: FlatOp) -> list[FlatOp]:
        """The ops that add to the temporary variable which the op takes away in the end."""
        readers = self.readers[op.inputs[0]] if op.type == "DestroyTemporaryVariable" else []
        return [one for one in readers if one.type == "AssignAdd"]

    def readers_beside(self, blob: Output, op: FlatOp) -> list[FlatOp]:
        """The readers of a blob but for completion proxies that an op waits for."""
        return [one for one in self.readers[blob] if not self._is_done(one, op)]

    def _is_done(self, reader: FlatOp, op: FlatOp) -> bool:
        """Whether a reader hands nothing on, and the op runs behind it, in one iteration."""

        def before(name: str) -> Iterable[str]:
            one = self.ops[name]
            sources = [source for source, _ in one.inputs if one.type not in ("Merge", "Enter")]
            return (source for source in (*sources, *one.after) if source in self.ops)

        alone = reader.type == _PROXY and (reader.name, 0) not in self.readers
        return alone and reader.name in reached([op.name], before)

    def _ordered(self) -> list[FlatOp]:
        """Back edges are no dependencies; what leaves a loop comes after the loop's step."""
        left: dict[str, int] = {}
        after: dict[str, list[str]] = {}
        for op in self.ops.values():
            sources = [name for name, _ in op.inputs if self.ops[name].type != "NextIteration"]
            if op.type == "Exit" and (merge := self.merge_of(op)) is not None:
                back = self.back_edge(merge)
                sources += [] if back is None else [back.name]
            sources += [one.name for one in self.accumulated(op)]
            left[op.name] = len(sources)
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
