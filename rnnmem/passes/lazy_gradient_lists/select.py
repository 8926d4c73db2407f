"""Which lists of gradients begin without elements instead of with a zero for each.

TensorFlow sums the gradients of what a loop reads from a list in a list of its own. It begins with
zeros as large as the whole sequence, of which an iteration adds to one element:

    ZerosLike(list) = sum ─► gradient step net   sum ─► AddN(sum, SetItem(Reserve, t, d)) ─► sum

Where a list has no element, adding takes the other's, and reading gives zeros. So the sum may begin
with no element at all: it grows while the lists of what was saved shrink.

    Reserve = sum ─► gradient step net   sum ─► AddN(sum, SetItem(Reserve, t, 0 + d)) ─► sum

A zero is still added to each gradient, which takes the sign off a negative zero.
"""

from __future__ import annotations

from collections.abc import Iterable

from rnnmem.analysis.loops import Loop, LoopPair
from rnnmem.ir.graph import REAL_DTYPES, Net, Op
from rnnmem.ir.op_table import CUT, LOOPS, RESERVE, SET, types
from rnnmem.ir.order import constant_value, through_identities
from rnnmem.passes.decision import Offer, Site
from rnnmem.passes.lazy_gradient_lists.decision import LazyGradientList
from rnnmem.passes.schedule.gradient_start import LARGE

READS_ZEROS = types("list", "get", "stack")
"""Op types to which an element that is missing is a zero, in a list of a known element shape."""


def offer(site: Site) -> Offer:
    """What loops that are rewritten bring along."""
    return Offer(lambda opened, _: lazy_gradient_lists(site.net, opened))


def lazy_gradient_lists(net: Net, pairs: Iterable[LoopPair]) -> tuple[LazyGradientList, ...]:
    """The lists of gradients that the gradient loops of the pairs may begin without elements.

    Args:
      net: the Net around the loops, with all shapes that are known.
      pairs: the loop pairs that are rewritten.
    """
    found = []
    for loop in (gradient.loop for pair in pairs for gradient in pair.gradients):
        for index, start in enumerate(loop.op.inputs):
            zeros = net.producer.get(start)
            if zeros is None or zeros.type != "ZerosLike" or net.fan_out(start) != 1:
                continue
            if _is_large(net, zeros.inputs[0]) and _reads_zeros(net, loop.op.outputs[index]):
                items = _items(loop, index)
                if items:
                    found.append(LazyGradientList(zeros.name, loop.op.name, items))
    return tuple(found)


def _is_large(net: Net, blob: str) -> bool:
    """Whether it is a list, cut from a large tensor, of elements whose shape the list knows."""
    maker = net.producer.get(_as_it_came(net, blob))
    if maker is None or maker.type != CUT or net.blobs[maker.inputs[0]].dtype not in REAL_DTYPES:
        return False
    size = net.blobs[maker.inputs[0]].bytes
    shape = constant_value(net, maker.inputs[1])
    known = isinstance(shape, tuple) and min(shape, default=0) >= 0
    return known and (size is None or size >= LARGE)


def _as_it_came(net: Net, blob: str) -> str:
    """What a loop that only hands it on was given."""
    while True:
        blob = through_identities(net, blob)
        op = net.producer.get(blob)
        if op is None or op.type not in LOOPS:
            return blob
        index = op.outputs.index(blob)
        if op.nets["body"].inputs[index] not in Loop(net, op).invariants:
            return blob
        blob = op.inputs[index]


def _reads_zeros(net: Net, blob: str) -> bool:
    """Whether all that read the loop's result find zeros where it has no element."""
    return blob not in net.outputs and all(
        reader.type in READS_ZEROS
        or reader.type == "Identity"
        and _reads_zeros(net, reader.outputs[0])
        for reader in net.readers.get(blob, ())
    )


def _items(loop: Loop, index: int) -> tuple[str, ...]:
    """The ops that put gradients into lists of their own, which are all that the variable gains."""
    body, cond = loop.body, loop.cond
    blob = body.inputs[index]
    if cond.fan_out(cond.inputs[index]) or through_identities(body, body.outputs[index]) == blob:
        return ()
    while body.fan_out(blob) == 1 and len(body.readers.get(blob, ())) == 1:
        (op,) = body.readers[blob]
        if op.type != "Identity":
            break
        blob = op.outputs[0]
    else:
        return ()
    result = through_identities(body, body.outputs[index])
    if op.type != "AddN" or result != op.outputs[0] or not _is_alone(body, op, index):
        return ()
    others = [one for one in op.inputs if one != blob]
    puts = [body.producer[one] for one in others if one in body.producer]
    new = len(puts) == len(others) and all(_puts_into_a_new_list(body, one) for one in puts)
    return tuple(one.name for one in puts) if new else ()


def _is_alone(body: Net, op: Op, index: int) -> bool:
    """Whether nobody but the next iteration reads what the op writes."""
    blob = op.outputs[0]
    while body.fan_out(blob) == 1:
        if blob == body.outputs[index]:
            return True
        (reader,) = body.readers[blob]
        blob = reader.outputs[0]
    return False


def _puts_into_a_new_list(body: Net, put: Op) -> bool:
    into = body.producer.get(put.inputs[0]) if put.type == SET else None
    return (
        into is not None
        and into.type == RESERVE
        and body.fan_out(into.outputs[0]) == 1
        and body.fan_out(put.outputs[0]) == 1
    )
