"""The numbers in the names that TensorFlow gives what a step net is given, and sums they reorder.

TensorFlow lowers loops and inlines calls one after the other and counts up, over the whole graph,
a number that goes into the names of what it adds (``Graph::NewName``). A sum sorts its addends by
name, so of two arguments of one step net ``_100`` comes before ``_99``. Any op that is added to a
function, or taken out of it, moves all numbers behind it (``lower_functional_ops.cc``,
``lower_while_op.cc``, ``inline_function_utils.cc``).
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from rnnmem.grappler.cse import reader_counts
from rnnmem.grappler.summation_order import addends_of, summation_trees
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.inline import is_open_call
from rnnmem.ir.op_table import BRANCHES, LOOPS, READ
from rnnmem.ir.order import through_identities

Path = tuple[str, ...]
"""Loops from the outermost one to a step net, each under the name that it has once inlined."""

KEPT = 3
"""Readers from which on TensorFlow's graph optimizer keeps the Identity of an argument."""


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Numbers of one loop's arguments.

    Attributes:
      switches: argument of the body -> the number of the Switch that gives it.
      inputs: argument of the body -> the number of its Identity.
      starts: argument of the body -> what the loop reads for it.
    """

    switches: Mapping[str, int]
    inputs: Mapping[str, int]
    starts: Mapping[str, str]


def argument_numbers(net: Net) -> dict[Path, Numbers] | None:
    """The numbers of all loops' arguments, as an eager call has the function lowered.

    Args:
      net: the function; calls in it may be inlined or not.

    Returns:
      Path of a loop -> its numbers; None where a branch stands in the way, which counts otherwise.
    """
    if any(op.type in BRANCHES for _, inner in net.walk() for op in inner.ops):
        return None
    return _Lowering().run(net)


@dataclasses.dataclass(frozen=True)
class _Call:
    """A call that is to be inlined: its body, and where it stands."""

    body: Net
    path: Path
    prefix: str
    start_edges: bool
    given: int
    loop: bool = False


class _Lowering:
    """Goes through the graph as TensorFlow does: what is added comes last."""

    def __init__(self):
        self.count = 0
        self.found: dict[Path, Numbers] = {}
        self.pending: deque[tuple[Op, Net, Path, str] | _Call] = deque()

    def run(self, net: Net) -> dict[Path, Numbers]:
        self._add(net, (), "", entered=False)
        while self.pending:
            one = self.pending.popleft()
            if isinstance(one, _Call):
                self._inline(one)
            else:
                self._lower(*one)
        return self.found

    def _draw(self, count: int) -> int:
        """Counts up; returns the first number."""
        first = self.count
        self.count += count
        return first

    def _add(self, net: Net, path: Path, prefix: str, *, entered: bool) -> None:
        """The loops and calls of a Net join the graph."""
        for op in net.ops:
            if op.type in LOOPS:
                self.pending.append((op, net, path, prefix))
            elif is_open_call(op):
                waits, within = bool(op.controls) or entered, f"{prefix}{op.name}/"
                self.pending.append(_Call(op.nets["f"], path, within, waits, len(op.inputs)))

    def _inline(self, call: _Call) -> None:
        self._draw(int(call.start_edges))
        first = self._draw(call.given)
        if call.loop:
            known = self.found[call.path]
            numbers = {blob: first + place for place, blob in enumerate(call.body.inputs)}
            self.found[call.path] = dataclasses.replace(known, inputs=numbers)
        self._draw(len(call.body.outputs) + 1)
        self._add(call.body, call.path, call.prefix, entered=call.start_edges)

    def _lower(self, op: Op, net: Net, path: Path, prefix: str) -> None:
        body, cond = op.nets["body"], op.nets["cond"]
        changing = [place for place, blob in enumerate(op.inputs) if not _is_handle(net, blob)]
        self._draw(2 + len(op.inputs) + int(bool(op.controls)) + len(changing) + 1)
        first = self._draw(len(changing))
        self._draw(1 + len(changing) + 1 + len(changing))
        path = (*path, f"{prefix}{op.name}")
        switches = {body.inputs[place]: first + number for number, place in enumerate(changing)}
        starts = dict(zip(body.inputs, op.inputs, strict=True))
        self.found[path] = Numbers(switches, {}, starts)
        given = len(op.inputs)
        self.pending.append(_Call(cond, (*path, "cond"), "", True, given))
        self.pending.append(_Call(body, path, "", True, given, loop=True))


def _is_handle(net: Net, blob: str) -> bool:
    return net.blobs[blob].dtype == "resource"


def sums_reordered(original: Net, inlined: Net, rewritten: Net) -> Iterator[Op]:
    """The sums whose addends sort otherwise in a rewritten function, by their numbers alone.

    Args:
      original: the function as it was traced.
      inlined: the same, inlined.
      rewritten: what is handed back instead.
    """
    suspects = list(_suspects(inlined, rewritten, ()))
    if not suspects:
        return
    before, after = argument_numbers(original), argument_numbers(rewritten)
    if before is None or after is None:
        return
    for path, root, arguments, kept in suspects:
        orders = []
        for numbers in (before, after):
            if path not in numbers:
                break
            known = numbers[path].inputs if kept else numbers[path].switches
            labels = {blob: f"_{known[blob]}" for blob in arguments}
            orders.append(sorted(arguments, key=labels.__getitem__))
        if len(orders) == 2 and orders[0] != orders[1]:
            yield root


def _suspects(
    before: Net, after: Net, path: Path
) -> Iterator[tuple[Path, Op, tuple[str, ...], bool]]:
    """Path of a step net, a sum in it, two or more arguments that numbers sort, and which ones."""
    loops = {op.name: op for op in before.ops if op.type in LOOPS}
    for op in after.ops:
        if op.type not in LOOPS or op.name not in loops:
            continue
        old, new = loops[op.name], op.nets["body"]
        inner = (*path, op.name)
        shared = set(old.nets["body"].inputs) & set(new.inputs)
        counts = None
        for tree in summation_trees(new):
            leaves = {through_identities(new, blob) for one in tree for blob in one.inputs}
            found = [blob for blob in new.inputs if blob in leaves & shared]
            if len(found) < 2:
                continue
            counts = counts or reader_counts(new)
            kept = tuple(blob for blob in found if counts[blob] >= KEPT)
            if len(kept) > 1:
                yield inner, tree[0], kept, True
            starts = dict(zip(new.inputs, op.inputs, strict=True))
            alike: dict[str, list[str]] = {}
            for blob in found:
                if blob not in kept:
                    alike.setdefault(starts[blob], []).append(blob)
            for some in alike.values():
                if len(some) > 1:
                    yield inner, tree[0], tuple(some), False
        yield from _suspects(old.nets["body"], new, inner)


def sums_what_is_given(op: Op) -> bool:
    """Whether a branch sorts what it is given among what it computes, in the op or inside it.

    Inside, an op is named ``IF/then/_3/OP`` and an input ``IF/SOURCE/_4``, after the op outside
    that gives it: ``while/body/_1/OP`` in a forward loop, ``gradient_tape/while/...`` in the
    gradient loop. So an input that comes behind the other addends of a sum comes in front of them
    there, or the other way round. What a branch reads of a variable is an input there too.
    """
    inner = op.nets.values()
    if op.type in BRANCHES and any(map(_sorts_inputs, inner)):
        return True
    return any(sums_what_is_given(one) for net in inner for one in net.ops)


def _sorts_inputs(net: Net) -> bool:
    given = {*net.inputs, *(op.outputs[0] for op in net.ops if op.type == READ)}
    groups: list[Sequence[str]] = [addends_of(net, tree) for tree in summation_trees(net)]
    groups += [op.inputs for op in net.ops if op.type == "Mul" and _takes_a_constant(net, op)]
    return any(
        len({through_identities(net, blob) in given for blob in blobs}) == 2 for blobs in groups
    )


def _takes_a_constant(net: Net, product: Op) -> bool:
    """Whether the optimizer multiplies one factor, by the order of their names, with a constant."""
    readers = net.readers.get(product.outputs[0], ())
    return (
        net.fan_out(product.outputs[0]) == 1
        and len(readers) == 1
        and readers[0].type == "Mul"
        and any(
            source.type == "Const"
            for blob in readers[0].inputs
            if (source := net.producer.get(through_identities(net, blob))) is not None
        )
    )
