"""Which sums of slices' gradients are put side by side.

Who reads parts of a blob (``x[:, t]`` in a loop that Python unrolls, the gates ``z[:, :h]`` of a
cell) gets a gradient for each, as large as the blob and zeros but for the part, and their sum:

    d_0 ─► StridedSliceGrad ─► [B, T, H] ─┐
    d_1 ─► StridedSliceGrad ─► [B, T, H] ─┼─► AddN           T times as much as the sum itself
    ...                                   │
    d_0 ... d_T ─► ConcatV2 ─► [B, T, H] ─┴─► AddV2(0)       the same numbers

Where windows have no element in common, each number is that of one part and zeros, which change
nothing but the sign of a negative zero; so one zero is still added. Of two layers of such windows,
or of one beside another addend, each number is a sum of two, which may change places; of three the
order shows.
"""

from __future__ import annotations

from collections.abc import Iterator

from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.analysis.slice_windows import Window, holes, layers, window
from rnnmem.grappler.summation_order import adders_of
from rnnmem.ir.graph import REAL_DTYPES, Net, Op
from rnnmem.ir.op_table import ADDS, Work, facts
from rnnmem.ir.order import is_constant, through_identities
from rnnmem.passes.decision import Step
from rnnmem.passes.slice_gradients.decision import Part, SliceGradients

SUM = "AddN"
_FEW_BYTES = 2**14
"""Of a sum that is smaller no more ops may start than before."""


def decide(step: Step) -> tuple[SliceGradients, ...]:
    """The sums of slices' gradients of a step, at any depth."""
    return slice_gradients(known_net(step.net))


def slice_gradients(known: KnownNet, path: tuple[str, ...] = ()) -> tuple[SliceGradients, ...]:
    """The sums of slices' gradients of a Net and its step nets.

    Args:
      known: the Net with its shapes.
      path: of the Net.
    """
    found: list[SliceGradients] = []
    for op in known.net.ops:
        if op.type == SUM:
            found += _of_sum(known, op, path)
        for label in op.nets:
            if (op.name, label) in known.inner:
                inner = known.inner[op.name, label]
                found += slice_gradients(inner, (*path, op.name, label))
    return tuple(found)


def _of_sum(known: KnownNet, total: Op, path: tuple[str, ...]) -> Iterator[SliceGradients]:
    """The decision on one sum, if there is one."""
    net = known.net
    blob = net.blobs[total.outputs[0]]
    parts = sorted(_windows(known, total), key=lambda one: (one[1].start, one[1].end))
    windows = [one for _, one in parts]
    groups = [group for group in layers(windows) if len(group) > 1]  # alone it is made whole
    chosen = [windows[at] for group in groups for at in group]
    joined = {parts[at][0].outputs[0] for group in groups for at in group}
    others = [one for one in total.inputs if one not in joined]
    if not groups or len(groups) + len(others) > 2:
        return
    if blob.dtype not in REAL_DTYPES or len({(one.axis, one.size) for one in chosen}) > 1:
        return
    if adders_of(net, blob.name) or any(_is_sum(net, one) for one in others):
        return
    beside = [holes([windows[at] for at in group]) for group in groups]
    small = blob.bytes is not None and blob.bytes < _FEW_BYTES
    if any(_is_known(net, one.given) for one in windows):  # zeros around it are made before any run
        return
    if _are_one_function(net, chosen) or (small and _more_ops(chosen, beside)):
        return
    yield SliceGradients(
        total=total.name,
        layers=tuple(
            tuple(Part(parts[at][0].name, *zeros) for at, zeros in zip(group, some, strict=True))
            for group, some in zip(groups, beside, strict=True)
        ),
        axis=chosen[0].axis,
        rank=len(known.facts[blob.name].shape or ()),
        path=path,
    )


def _windows(known: KnownNet, total: Op) -> Iterator[tuple[Op, Window]]:
    """The slices' gradients that nobody else reads, with their windows."""
    for blob in total.inputs:
        op = known.net.producer.get(blob)
        found = window(known, op) if op is not None and known.net.fan_out(blob) == 1 else None
        if op is not None and found is not None:
            yield op, found


def _is_sum(net: Net, blob: str) -> bool:
    op = net.producer.get(through_identities(net, blob))
    return op is not None and op.type in ADDS


def _is_known(net: Net, blob: str) -> bool:
    op = net.producer.get(blob)
    return op is not None and is_constant(net, op)


def _are_one_function(net: Net, windows: list[Window]) -> bool:
    """Whether TensorFlow would compute one function of them behind where they are joined."""
    makers = [net.producer.get(one.given) for one in windows]
    first = makers[0]
    if first is None or len(first.inputs) != 1 or any(one.dropped for one in windows):
        return False
    known = facts(first)
    alike = all(one is not None and one.type == first.type for one in makers)
    return alike and known is not None and known.work is Work.POINTWISE


def _more_ops(windows: list[Window], beside: list[list[tuple[int, int]]]) -> bool:
    """Whether more ops start than before, the zero's apart."""
    padded = sum(one != (0, 0) for some in beside for one in some)
    joining = 2 * len(beside) - 1
    return padded + sum(one.dropped for one in windows) + joining > len(windows)
