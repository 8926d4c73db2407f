"""Where a control edge may stand: at ops that TensorFlow's graph optimizer does not fuse.

Grappler leaves ops with control edges out of its fusions, and merges ops that compute the same only
where their edges are the same; both change bits. So an edge starts at an op that it never fuses,
and ends there too, or at a delayed input on what is hidden from it anyway. A sum of two that a loop
only hands on to its next iteration may have one more reader, a completion proxy, at which an edge
starts.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

from rnnmem.analysis.versions import SsaVersions
from rnnmem.grappler.cse import fan_out
from rnnmem.grappler.merged_gradients import merged_gradients
from rnnmem.grappler.summation_order import Sums, merged_sums
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net, Op, Shape
from rnnmem.ir.marks import OWN_KERNEL
from rnnmem.ir.op_table import (
    ADDS,
    APART,
    FILLERS,
    MATRIX_PRODUCTS,
    OPAQUE_SOURCES,
    OpFacts,
    Work,
    facts,
    may_fuse,
    types,
)
from rnnmem.ir.order import is_constant, reached

CALM = types("calm")
"""Op types that no matrix product is fused with; sums of equal shapes are others."""

HIDING = types("hides")
"""Op types that hide from a graph optimizer what stands before them."""

PRODUCTS = MATRIX_PRODUCTS | {"Conv2D"}
"""Op types that are worth a delayed input: large results from little."""


_OF_WEIGHTS = MATRIX_PRODUCTS | types("sums_products") | {"BiasAddGrad"}
"""Op types that make gradients of weights, which a graph optimizer fuses with no calm op."""

NEAR = 64
"""Ops around another that are looked at, for one at which an edge may stand."""


class Sources:
    """Finds ops to wait for: an op that is never fused, or the nearest such op behind it.

    Args:
      net: the Net.
      past: its history, in the order in which the ops shall run.
      congruent: see `rnnmem.grappler.cse.congruent_ops`.
    """

    def __init__(self, net: Net, past: SsaVersions, congruent: frozenset[str]):
        self.net, self.past, self.congruent = net, past, congruent

    def from_(self, user: int, waiting: int) -> int | None:
        """An op that runs after ``user`` in any case, before ``waiting`` in the order."""
        after = self.past.after
        behind = reached([user], lambda index: (one for one in after[index] if one < waiting))
        return next(filter(self._is_apart, itertools.islice(behind, NEAR)), None)

    def may_have_proxy(self, index: int) -> bool:
        """Whether the op is a sum that nobody looks at but who carries it to the next iteration.

        What another reader does to it is nothing then: it is the root of its sum in any case, and
        no sum of three or more depends on who holds it.
        """
        op = self.net.op_by_name[self.past.ops[index].name]
        return (
            op.type == "AddN"
            and len(op.inputs) == 2
            and op.name not in self.congruent
            and self.net.blobs[op.outputs[0]].dtype in BYTES_PER_ELEMENT
            and op.outputs[0] not in self._addends
            and is_handed_on(self.net, op.outputs[0])
        )

    @functools.cached_property
    def _addends(self) -> frozenset[str]:
        return Sums(self.net, carried=True).addends

    def _is_apart(self, index: int) -> bool:
        op = self.net.op_by_name[self.past.ops[index].name]
        return op.name not in self.congruent and is_apart(self.net, op)


def is_handed_on(net: Net, blob: str) -> bool:
    """Whether the blob becomes a result of the Net, through Identity or not, and nothing else."""
    readers = net.readers.get(blob, ())
    if not readers:
        return blob in net.outputs
    return blob not in net.outputs and all(
        one.type == "Identity" and is_handed_on(net, one.outputs[0]) for one in readers
    )


def waiting_places(
    net: Net, past: SsaVersions, index: int, congruent: frozenset[str]
) -> Iterator[tuple[int, int | None]]:
    """Where an edge may stand that holds up an op: there, or at what it needs, the nearest first.

    Args:
      net: the Net.
      past: its history.
      index: of the op.
      congruent: see `rnnmem.grappler.cse.congruent_ops`.

    Yields:
      ``(index, slot)`` of an op that may wait, with the input that passes a delayed input; None:
      itself.
    """
    for one in itertools.islice(reached([index], past.before.__getitem__), NEAR):
        name = past.ops[one].name
        slot = None if name in congruent else target(net, name)
        if slot is not None:
            yield one, None if slot < 0 else slot


def is_merged(op: Op) -> bool:
    """Whether TensorFlow may compute the op in another way with its one reader: a guess if so."""
    known = facts(op)
    return known is None or known.folds or known.work in (Work.POINTWISE, Work.PRODUCT)


def _is_never_fused(net: Net, op: Op) -> bool:
    """Whether no graph optimizer fuses the op; the gradient of a convolution only oneDNN's does."""
    apart = op.type in APART or bool(op.attributes.get(OWN_KERNEL))
    return apart and not _may_be_dropped(net, op)


def _may_be_dropped(net: Net, op: Op) -> bool:
    """Whether a graph optimizer may find out that a sum of a gradient adds nothing up.

    It goes then, so that products on both sides of it are grouped anew, but not from between them
    where somebody waits for it.
    """
    if op.type != "Sum":
        return False
    made, axes = _before_dropped(net, op.inputs[0]), net.producer.get(op.inputs[1])
    if made is None or axes is None or axes.type != "BroadcastGradientArgs":
        return False
    if made.type == "AddN" or (facts(made) or _FOLDS).work is not Work.POINTWISE:
        return False
    slot = axes.outputs.index(op.inputs[1])
    mine, other = (_told(net, axes.inputs[one]) for one in (slot, 1 - slot))
    if mine is None or other is None:
        return True
    sizes = zip(reversed(mine), reversed(other), strict=False)
    return len(mine) >= len(other) and not any(a == 1 and b != 1 for a, b in sizes)


def _before_dropped(net: Net, blob: str) -> Op | None:
    """What makes a blob, or what it would be made by once sums that may be dropped are gone."""
    made = net.producer.get(blob)
    if made is None or made.type != "Reshape":  # a gradient's sum is given its operand's shape
        return made
    inner = net.producer.get(made.inputs[0])
    if inner is None or not _may_be_dropped(net, inner):
        return made
    return _before_dropped(net, inner.inputs[0])


def _told(net: Net, vector: str) -> Shape:
    """The sizes that a vector holds, None for one that is not known; None: not how many."""
    source = net.producer.get(vector)
    if source is not None and source.type == "Shape":
        return net.blobs[source.inputs[0]].shape
    (length,) = net.blobs[vector].shape or (None,)
    return None if length is None else (None,) * length


def is_apart(net: Net, op: Op) -> bool:
    """Whether a control edge at the op takes it out of no fusion."""
    if _is_never_fused(net, op):
        return True
    sources = [net.producer[blob] for blob in op.inputs if blob in net.producer]
    if any(source.type == "Pad" or (facts(source) or _FOLDS).folds for source in sources):
        return False
    return may_be_awaited(net, op)


def may_be_awaited(net: Net, op: Op) -> bool:
    """Whether a control edge from the op takes it out of no fusion."""
    if _is_never_fused(net, op):
        return True
    if op.type != "MatMul" or any(blob in net.outputs for blob in op.outputs):
        return False
    return all(
        reader.type in CALM or _adds_alike(net, reader)
        for reader in net.readers.get(op.outputs[0], ())
    )


def may_have_proxy(net: Net, blob: str) -> bool:
    """Whether one more reader of a blob, a completion proxy, changes neither a fusion nor a sum."""
    if net.blobs[blob].dtype not in BYTES_PER_ELEMENT or blob in merged_sums(net).addends:
        return False
    readers, made = net.readers.get(blob, ()), net.producer[blob]
    if made.name in merged_gradients(net):
        return False  # the filter's gradient may read what would wait for the bias's
    if fan_out(net, blob) > 1 or any(_is_returned(net, reader) for reader in readers):
        return True
    return bool(readers) and (
        not may_fuse(made, readers[0]) or (made.type in _OF_WEIGHTS and readers[0].type in CALM)
    )


def _is_returned(net: Net, op: Op) -> bool:
    """Whether the op hands a result to the caller and to nobody else: there is nothing to fuse."""
    return (
        op.type == "Identity" and op.outputs[0] in net.outputs and net.fan_out(op.outputs[0]) == 1
    )


_FOLDS = OpFacts(Work.MOVES, folds=False)


def _adds_alike(net: Net, op: Op) -> bool:
    """Whether the op adds matrices of one shape: no bias."""
    shapes = {net.blobs[blob].shape for blob in op.inputs}
    return op.type in ADDS and len(shapes) == 1 and len((*shapes,)[0] or ()) > 1


def target(net: Net, name: str) -> int | None:
    """The input of an op that may be delayed, -1 where the op itself may wait, or None."""
    op = net.op_by_name[name]
    if is_apart(net, op) or op.type in FILLERS and not is_constant(net, op):
        return -1
    if op.type not in PRODUCTS:
        return None
    for slot, blob in enumerate(op.inputs):
        source = net.producer.get(blob)
        opaque = source is None or source.type in OPAQUE_SOURCES or source.type in HIDING
        kind = net.blobs[blob]
        if opaque and kind.dtype in BYTES_PER_ELEMENT and kind.bytes != 0:
            return slot
    return None
