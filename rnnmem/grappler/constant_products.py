"""Constants that TensorFlow multiplies with one factor of a product, rather than with the product.

``arithmetic_optimizer.cc`` (``MinimizeBroadcasts``) multiplies the smallest factors of a tree of
products first; of those of one size, the one whose name sorts first
(``common_subgraph_elimination.cc``)::

    P = (x * y) * c    becomes    P = x * (c * y)    where y sorts before x

What a gradient multiplies, a factor of the forward part among it, is then there twice: ``c * y``
runs as soon as ``y`` is there, and is held until ``x`` comes. Half precision is left as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.order import topological

_DTYPES = frozenset({"float32", "float64", "complex64", "complex128"})


@dataclasses.dataclass(frozen=True)
class Moved:
    """What becomes of the products of a Net.

    Attributes:
      ops: name -> the op as it runs, of those that read something else.
      gone: blob -> the blob that stands for it, of products by a constant that another takes over.
      early: names of ops for which nothing waits any more.
      factors: name of an op that multiplies a constant with a factor -> which input that was.
    """

    ops: Mapping[str, Op]
    gone: Mapping[str, str]
    early: frozenset[str]
    factors: Mapping[str, int]

    def as_it_runs(self, op: Op) -> Op:
        """An op of the Net with what it reads and waits for."""
        found = self.ops.get(op.name, op)
        if self.early.isdisjoint(found.controls):
            return found
        return found.replace(controls=tuple(one for one in found.controls if one not in self.early))


def constants_moved(net: Net) -> Moved:
    """The products of a Net in the order in which TensorFlow multiplies them."""
    constants = _constants(net.of_ops(topological))
    ops: dict[str, Op] = {}
    gone: dict[str, str] = {}
    early: set[str] = set()
    factors: dict[str, int] = {}
    for op in reversed(net.ops):
        if op.name in ops or not (split := _by_constant(net, op, constants)):
            continue
        product, constant = split
        child = _product(net, product, constants)
        if child is None:
            continue
        factor, first = sorted(child.inputs, key=sorted_as)
        inner = net.producer.get(first)
        if (
            inner is not None
            and net.fan_out(first) == 1
            and (below := _by_constant(net, inner, constants))
        ):
            ops[inner.name] = inner
            gone[first] = first = below[0]
            if first in net.producer:
                early.add(net.producer[first].name)
        ops[child.name] = child.replace(inputs=(constant, factor))
        factors[child.name] = child.inputs.index(factor)
        ops[op.name] = op.replace(type="Mul", inputs=(first, product))
    return Moved(ops, gone, frozenset(early), factors)


def sorted_as(blob: str) -> str:
    """How a graph optimizer sorts a blob among what an op reads."""
    return blob.removesuffix(":0")


def _constants(ops: tuple[Op, ...]) -> set[str]:
    """Blobs that are computed before any run; the ops are in an order in which they may run."""
    found: set[str] = set()
    for op in ops:
        if op.type == "Const" or (op.inputs and not op.stateful and found.issuperset(op.inputs)):
            found.update(op.outputs)
    return found


def _by_constant(net: Net, op: Op, constants: Set[str]) -> tuple[str, str] | None:
    """What an op multiplies with a constant or divides by it, and the constant."""
    commutes = op.type == "Mul"
    if not (commutes or op.type == "RealDiv") or net.blobs[op.outputs[0]].dtype not in _DTYPES:
        return None
    factor, constant = op.inputs
    if commutes and factor in constants:
        factor, constant = constant, factor
    if factor in constants or constant not in constants:
        return None
    return (factor, constant) if net.blobs[constant].shape == () else None


def _product(net: Net, blob: str, constants: Set[str]) -> Op | None:
    """The product of two values that one op alone reads."""
    op = net.producer.get(blob)
    if op is None or op.type != "Mul" or net.fan_out(blob) > 1:
        return None
    shapes = {net.blobs[one].shape for one in (*op.inputs, blob)}
    return op if len(shapes) == 1 and constants.isdisjoint(op.inputs) else None
