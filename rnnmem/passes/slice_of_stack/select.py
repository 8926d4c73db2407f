"""Which rows of stacked lists are read from the list, and their gradients put into one.

What a loop wrote into a list is stacked, and often one row is all that is used: the last output.
Its gradient is a tensor as large, of zeros but for that row, cut into a list again:

    loop ─► list ─► Stack [T, B, H] ─► StridedSlice ─► row        gradient ─► StridedSliceGrad
                                                       [T, B, H] ─► FromTensor ─► gradient loop

    loop ─► list ─► GetItem ─► row          gradient ─► SetItem(Reserve, t) ─► gradient loop

In a list that knows the shape of its elements, one that is missing is read as zeros.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from rnnmem.analysis.loops import LoopPair
from rnnmem.grappler.summation_order import Sums, sums_of
from rnnmem.ir.graph import REAL_DTYPES, Net, Op, Shape
from rnnmem.ir.op_table import CUT, GET, LOOPS, SET, STACK, types
from rnnmem.ir.order import constant_value, through_identities
from rnnmem.passes.decision import Offer, Site
from rnnmem.passes.schedule.gradient_start import LARGE
from rnnmem.passes.slice_of_stack.decision import SliceOfStack

SLICE = "StridedSlice"
SLICE_GRADIENT = "StridedSliceGrad"
FINDS_ZEROS = types("list", "get", "length", "shape") | {"Identity"}
"""Op types that read an element which is missing as zeros, or read none."""
_MASKS = {"shrink_axis_mask": 1, "begin_mask": 0, "new_axis_mask": 0, "ellipsis_mask": 0}


def offer(site: Site) -> Offer:
    """What loops that are rewritten bring along."""
    return Offer(lambda opened, _: slices_of_stacks(site.net, opened))


def slices_of_stacks(net: Net, pairs: Iterable[LoopPair]) -> tuple[SliceOfStack, ...]:
    """The rows that need no stack beside the loop pairs, and the gradients of rows.

    Args:
      net: the Net around the loops, with all shapes that are known.
      pairs: the loop pairs that are rewritten.
    """
    found: list[SliceOfStack] = []
    for pair in pairs:
        rows = [_rows(net, stack) for stack in _stacks(net, pair)]
        found += itertools.chain(*rows)
        # A gradient loop that waits for no stack may begin while another stack's gradient is made.
        for gradient in pair.gradients if all(rows) else ():
            for blob in dict.fromkeys(gradient.loop.op.inputs):
                cut = net.producer.get(through_identities(net, blob))
                if cut is not None and cut.type == CUT:
                    found += _gradient(net, cut)
    return tuple(dict.fromkeys(found))


def _stacks(net: Net, pair: LoopPair) -> Iterator[Op]:
    """The large stacks of the lists that a forward loop made."""
    made = pair.forward.op.outputs
    for op in net.ops:
        if op.type == STACK and through_identities(net, op.inputs[0]) in made:
            if _is_large(net, op.outputs[0]):
                yield op


def _rows(net: Net, stack: Op) -> list[SliceOfStack]:
    """The rows of a stack, where all that is read of it are rows."""
    (blob,) = stack.outputs
    readers = net.readers.get(blob, ())
    rows = [_row(net, one, net.blobs[blob].shape) for one in readers]
    if not readers or blob in net.outputs or None in rows:
        return []
    # A sum would be begun with another addend if the list held this one a little longer.
    if any(one.type != SLICE or one.outputs[0] in sums_of(net).addends for one in readers):
        return []
    pairs = zip(readers, rows, strict=True)
    return [SliceOfStack(one.name, stack.name, row) for one, row in pairs if row is not None]


def _gradient(net: Net, cut: Op) -> list[SliceOfStack]:
    """The gradient of one row that is cut into a list, if nobody needs the zeros around it."""
    made = net.producer.get(cut.inputs[0])
    if made is None or made.type != SLICE_GRADIENT or net.fan_out(cut.inputs[0]) != 1:
        return []
    shape = net.blobs[cut.inputs[0]].shape
    row, held = _row(net, made, shape), _numbers(net, cut.inputs[1])
    given = net.blobs[made.inputs[4]]
    known = shape is not None and held == shape[1:] == given.shape
    if row is None or not known or not _is_large(net, cut.inputs[0]):
        return []
    if given.dtype not in REAL_DTYPES or given.name in sums_of(net).addends:
        return []
    return [SliceOfStack(cut.name, made.name, row)] if _finds_zeros(net, cut.outputs[0]) else []


def _is_large(net: Net, blob: str) -> bool:
    return (net.blobs[blob].bytes or 0) >= LARGE


def _row(net: Net, op: Op, shape: Shape) -> int | None:
    """The row of a tensor of that shape which the op takes, or whose gradient it gives."""
    begin, strides = (
        (_numbers(net, op.inputs[slot]) for slot in (1, 3)) if _is_one(op) else ((), ())
    )
    length = shape[0] if shape and None not in shape else None
    if length is None or begin is None or len(begin) != 1 or strides != (1,):
        return None
    row = begin[0] + length if begin[0] < 0 else begin[0]
    return row if 0 <= row < length else None


def _is_one(op: Op) -> bool:
    """Whether the op takes one row and hands it on without the first axis, or is its gradient."""
    masks = all(op.attributes.get(name) == mask for name, mask in _MASKS.items())
    return op.type in (SLICE, SLICE_GRADIENT) and masks


def _numbers(net: Net, blob: str) -> tuple[int, ...] | None:
    """A vector of constants."""
    value = constant_value(net, through_identities(net, blob))
    return value if isinstance(value, tuple) else None


def _finds_zeros(net: Net, blob: str) -> bool:
    """Whether whoever reads the list, in loops too, finds zeros where it has no element."""
    return blob not in net.outputs and all(
        _in_loop(op, blob) and all(_finds_zeros(net, one) for one in _handed_out(op, blob))
        if op.type in LOOPS
        else op.type in FINDS_ZEROS and (op.type != "Identity" or _finds_zeros(net, op.outputs[0]))
        for op in net.readers.get(blob, ())
    )


def _handed_out(op: Op, blob: str) -> Iterator[str]:
    return (op.outputs[place] for place, one in enumerate(op.inputs) if one == blob)


def _in_loop(loop: Op, blob: str) -> bool:
    """Whether a loop does nothing with a list but read and replace elements."""
    body, cond = loop.nets["body"], loop.nets["cond"]
    summed = Sums(body, carried=True).addends
    for place, start in enumerate(loop.inputs):
        if start != blob:
            continue
        if cond.fan_out(cond.inputs[place]):
            return False
        pending = [body.inputs[place]]
        while pending:
            held = pending.pop()
            if any(one == held and at != place for at, one in enumerate(body.outputs)):
                return False
            for op in body.readers.get(held, ()):
                if op.type == SET and op.inputs.count(held) == 1 and op.inputs[0] == held:
                    pending += op.outputs
                elif op.type == "Identity":
                    pending += op.outputs
                elif op.type not in FINDS_ZEROS or op.type == GET and op.outputs[0] in summed:
                    return False
    return True
