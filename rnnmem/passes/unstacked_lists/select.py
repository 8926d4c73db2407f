"""Which lists of rows are not made, because loops may read what they were made of.

A sequence is turned to [time, batch, features] and cut into a list, of which an iteration reads one
element. If the sequence is an argument, it is there anyway; if a loop made it, its list is:

    x [B, T, F] ─► Transpose ─► FromTensor ─► list ─► loop: GetItem(list, t)
    x [B, T, F] ────────────────────────────────────► loop: Gather(x, t, axis 1)

    loop ─► list ─► Stack ─► Transpose ─► Transpose ─► FromTensor ─► equal list ─► next loop
    loop ─► list ────────────────────────────────────────────────────────────────► next loop

Rows that a sum of three may begin with stay in their lists, which hold them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rnnmem.analysis.loops import Loop, LoopPair
from rnnmem.grappler.summation_order import Sums, sums_of
from rnnmem.ir.graph import Net, Op
from rnnmem.ir.marks import TRIPS
from rnnmem.ir.op_table import CUT, GET, LOOPS, RESERVE, SET, STACK, types
from rnnmem.ir.order import constant_value, through_identities
from rnnmem.passes.decision import Offer, Site
from rnnmem.passes.schedule.gradient_start import LARGE
from rnnmem.passes.unstacked_lists.decision import UnstackedList

_ASKS = types("list", "shape", "length") | {"ZerosLike"}
"""Op types that read no element of a list."""


def offer(site: Site) -> Offer:
    """What loops that are rewritten bring along."""
    return Offer(lambda opened, _: unstacked_lists(site.net, opened, site.pairs))


def unstacked_lists(
    net: Net, pairs: Iterable[LoopPair], known: Iterable[LoopPair]
) -> tuple[UnstackedList, ...]:
    """The lists that the loop pairs do not need.

    Args:
      net: the Net around the loops, with all shapes that are known.
      pairs: the loop pairs that are rewritten.
      known: all loop pairs of the Net.
    """
    forward = {pair.forward.op.name: pair for pair in pairs}
    read: dict[str, tuple[Loop, LoopPair | None]] = {}
    for name, pair in forward.items():
        read[name] = pair.forward, pair
        read |= {one.loop.op.name: (one.loop, None) for one in pair.gradients}
    made_by = {pair.forward.op.name: pair for pair in known}
    found = []
    for cut in net.ops:
        if cut.type != CUT or not _is_large(net.blobs[cut.inputs[0]].bytes):
            continue
        one, (held,) = _behind(net, cut), cut.outputs
        names = {op.name for op in net.readers.get(held, ())}
        if one is None or not names or held in net.outputs or not names <= read.keys():
            continue
        readers = [read[name] for name in sorted(names)]
        if one.axis is None:
            right = _same_list(net, cut, one, readers, made_by)
        else:
            right = names <= forward.keys() and one.source not in sums_of(net).addends
            right = right and all(_takes_rows(net, one, *reader) for reader in readers)
        if right:
            found.append(one)
    return tuple(found)


def _is_large(size: int | None) -> bool:
    return size is None or size >= LARGE


def _behind(net: Net, cut: Op) -> UnstackedList | None:
    """What the elements of the list that the op cuts are items of; None where that is no help."""
    (held,), blob = cut.outputs, cut.inputs[0]
    shape = net.blobs[blob].shape
    if not shape:
        return None
    axes, backwards = list(range(len(shape))), False
    while (op := net.producer.get(blob)) is not None:
        moved = _axes(net, op.inputs[1]) if len(op.inputs) == 2 else None
        if op.type == "Transpose" and isinstance(moved, tuple):
            axes = [moved[axis] for axis in axes]
        elif op.type == "ReverseV2" and moved == (axes[0],):
            backwards = not backwards
        elif op.type != "Identity":
            break
        blob = op.inputs[0]
    length = shape[0] if backwards else 0
    if axes[1:] != sorted(axes[1:]) or length is None:
        return None
    if op is None:
        return UnstackedList(held, blob, axes[0], length)
    kept = op.type == STACK and axes[0] == 0 and not backwards
    return UnstackedList(held, through_identities(net, op.inputs[0])) if kept else None


def _axes(net: Net, blob: str) -> object:
    """Axes that a constant gives, or the way back from such a turn."""
    op = net.producer.get(blob)
    if op is None or op.type != "InvertPermutation":
        return constant_value(net, blob)
    turned = constant_value(net, op.inputs[0])
    return tuple(map(turned.index, range(len(turned)))) if isinstance(turned, tuple) else None


def _takes_rows(net: Net, one: UnstackedList, loop: Loop, pair: LoopPair | None) -> bool:
    """Whether a forward loop only takes elements of the list, the same list in each iteration."""
    summed = Sums(loop.body, carried=True)
    return all(
        loop.body.inputs[place] in loop.invariants
        and not net.fan_out(loop.op.outputs[place])
        and _stays_there(loop, place, [loop.body.inputs[place]])
        and all(
            _takes(loop.body, op, True) and not _in_sum(pair, summed, op.outputs[0])
            for op in _reading(loop.body, loop.body.inputs[place])
        )
        for place in _places(loop, one.list)
    )


def _in_sum(pair: LoopPair | None, summed: Sums, blob: str) -> bool:
    """Whether a sum of three may begin with a blob of a loop's body, there or in the gradient."""
    return blob in summed.addends or any(
        summed.share(link.pushed, blob)
        and link.popped in Sums(gradient.loop.body, carried=True).addends
        for gradient in (pair.gradients if pair is not None else ())
        for link in gradient.links
    )


def _same_list(
    net: Net,
    cut: Op,
    one: UnstackedList,
    readers: Iterable[tuple[Loop, LoopPair | None]],
    made_by: dict[str, LoopPair],
) -> bool:
    """Whether the loops find in the list behind a stack all that they ask the new list for."""
    maker = net.producer.get(one.source)
    if maker is None or maker.type not in LOOPS:
        return False
    body, pair = maker.nets["body"], made_by.get(maker.name)
    summed = Sums(body, carried=True)
    for path, inner in body.walk():
        for op in inner.ops:
            if op.type == SET and (path or _in_sum(pair, summed, op.inputs[2])):
                return False
    whole = _is_whole(
        net, maker, maker.outputs.index(one.source), constant_value(net, cut.inputs[1])
    )
    return all(_reads_elements(net, *reader, one.list, whole) for reader in readers)


def _is_whole(net: Net, maker: Op, place: int, shape: object) -> bool:
    """Whether a loop sets every element of a list that knows their shape, counting from zero."""
    start = net.producer.get(through_identities(net, maker.inputs[place]))
    body = maker.nets["body"]
    put = body.producer.get(through_identities(body, body.outputs[place]))
    if start is None or start.type != RESERVE or put is None or put.type != SET:
        return False
    trips, counter = maker.attributes.get(TRIPS), through_identities(body, put.inputs[1])
    if trips is None or constant_value(net, start.inputs[1]) != trips:
        return False
    if constant_value(net, start.inputs[0]) != shape or counter not in body.inputs:
        return False
    if through_identities(body, put.inputs[0]) != body.inputs[place]:
        return False
    at = body.inputs.index(counter)
    step = body.producer.get(through_identities(body, body.outputs[at]))
    return (
        constant_value(net, through_identities(net, maker.inputs[at])) == 0
        and step is not None
        and step.type == "AddV2"
        and through_identities(body, step.inputs[0]) == counter
        and constant_value(body, step.inputs[1]) == 1
    )


def _reads_elements(net: Net, loop: Loop, pair: LoopPair | None, held: str, whole: bool) -> bool:
    """Whether a loop only takes and replaces elements of a list, in a variable of its own."""
    summed = Sums(loop.body, carried=True)
    for place in _places(loop, held):
        body, argument, result = loop.body, loop.body.inputs[place], loop.op.outputs[place]
        asked = net.readers.get(result, ())
        if result in net.outputs:
            return False
        if asked and not (whole and all(op.type in _ASKS for op in asked)):
            return False
        lists = [through_identities(body, body.outputs[place])]
        while (put := body.producer.get(lists[-1])) is not None and put.type == SET:
            lists.append(through_identities(body, put.inputs[0]))
        if lists[-1] != argument or not _stays_there(loop, place, lists):
            return False
        for op in (op for blob in lists for op in _reading(body, blob)):
            if op.type == SET and op.outputs[0] in lists and op.inputs[2] not in lists:
                continue
            if whole and op.type in _ASKS:
                continue
            if not _takes(body, op, whole) or _in_sum(pair, summed, op.outputs[0]):
                return False
    return True


def _stays_there(loop: Loop, place: int, lists: list[str]) -> bool:
    """Whether the variable alone hands the lists on, and nobody asks them whether to go on."""
    body, cond = loop.body, loop.cond
    handed = [at for at, one in enumerate(body.outputs) if through_identities(body, one) in lists]
    return handed == [place] and not cond.fan_out(cond.inputs[place])


def _places(loop: Loop, held: str) -> list[int]:
    return [place for place, blob in enumerate(loop.op.inputs) if blob == held]


def _reading(body: Net, blob: str) -> Iterator[Op]:
    """The ops that read a blob, behind those that hand it on."""
    for op in body.readers.get(blob, ()):
        if op.type == "Identity":
            yield from _reading(body, op.outputs[0])
        else:
            yield op


def _takes(body: Net, op: Op, whole: bool) -> bool:
    """Whether the op takes an element by its number, from a list that has it or knows its shape."""
    shape = constant_value(body, op.inputs[2]) if op.type == GET else None
    known = whole or (isinstance(shape, tuple) and min(shape, default=0) >= 0)
    return shape is not None and known and body.blobs[op.inputs[1]].dtype == "int32"
