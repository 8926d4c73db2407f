"""Orders of a Net in which little is alive at once, and what must wait for them to hold.

What runs one after the other in an order takes turns once control edges keep it
(:mod:`rnnmem.passes.schedule.serialise`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from rnnmem.analysis.versions import SsaVersions, ssa
from rnnmem.grappler.fusion import is_handed_on
from rnnmem.ir.edges import Edge
from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net
from rnnmem.ir.op_table import ADDS
from rnnmem.ir.order import reached
from rnnmem.passes.schedule.in_place import last_readers
from rnnmem.simulate.program import in_place_inputs
from rnnmem.storage.estimate import bytes_inside, estimate_sizes
from rnnmem.storage.orders import lowest_peak

LARGE = 2**18
"""Bytes from which a buffer is worth a control edge."""


def orders(
    net: Net, sized: Net, planned: Net, congruent: frozenset[str], carried: bool
) -> Iterator[tuple[Net, Sequence[Edge]]]:
    """Nets in orders with a low peak, and the edges of ops that wait to write in place.

    First without any, of a body also the one that ends with what its next iteration begins with;
    then where the order lets ops write in place; then where ops that could were put off as far as
    they may be, so that more of them can.

    Args:
      net: as a graph optimizer knows it.
      sized: the same with the sizes of a call.
      planned: the same as it uses buffers.
      congruent: ops that a graph optimizer may merge with others.
      carried: whether it is a loop's body.
    """
    lowest = _ordered(planned)
    ending = _with_states_last(net, lowest) if carried else None
    if ending is not None:
        yield ending, ()
    yield lowest, ()
    for late in (False, True):
        given = _late(sized, planned) if late else lowest
        taking, waits = last_readers(net, ssa(given), congruent, LARGE, sized)
        if waits:
            yield _ordered(controlled(taking, waits)), waits


def _ordered(planned: Net) -> Net:
    """The Net in the order with the lowest peak of those that are tried."""
    past = ssa(planned)
    extra = [max((bytes_inside(inner) for inner in op.nets.values()), default=0) for op in past.ops]
    chosen = lowest_peak(past, estimate_sizes(past), extra)
    chosen = _put_off(past, chosen)
    return planned.replace(ops=tuple(past.ops[index] for index in chosen))


def _put_off(past: SsaVersions, chosen: Sequence[int]) -> list[int]:
    """The order, with ops that neither make nor read a large buffer right before who needs them.

    So that what leads to a large buffer may wait for one that goes before.
    """
    blobs = past.net.blobs
    place = {index: position for position, index in enumerate(chosen)}
    due = dict(place)
    for index in reversed(chosen):
        op = past.ops[index]
        large = any((blobs[blob].bytes or 0) >= LARGE for blob in (*op.inputs, *op.outputs))
        if past.after[index] and not large:
            due[index] = min(due[other] for other in past.after[index])
    return sorted(chosen, key=lambda index: (due[index], place[index]))


def _late(net: Net, planned: Net) -> Net:
    """The Net with ops that could write over what others read too as late as may be."""
    past = ssa(planned)
    puts_off = [
        any(
            len(net.readers[op.inputs[slot]]) > 1
            for slot in in_place_inputs(op, [past.net.blobs[blob] for blob in op.outputs], net)
        )
        for op in past.ops
    ]
    return _listed(planned, past, puts_off)


def _with_states_last(net: Net, order: Net) -> Net | None:
    """A body in which what its next iteration begins with is made last; None: there is nothing.

    So that nothing large of this iteration is left to run beside those of the next.
    """
    past, blobs = ssa(order), order.blobs
    number = {op.name: index for index, op in enumerate(past.ops)}
    large = {
        number[op.name]
        for op in past.ops
        if any((blobs[blob].bytes or 0) >= LARGE for blob in op.outputs)
    }
    leading: set[int] = set()
    for argument, result in zip(net.inputs, net.outputs, strict=False):
        maker = order.producer.get(result)
        if maker is None or blobs[argument].dtype not in BYTES_PER_ELEMENT:
            continue
        if _is_only_added_up(net, argument):
            continue  # a weight's gradient, without which the next iteration begins
        readers = [number[op.name] for op in order.readers.get(argument, ())]
        needed = set(reached([number[maker.name]], past.before.__getitem__))
        led_to: set[int] = set(reached(readers, lambda index: past.after[index]))
        if large & needed & led_to:
            leading |= needed
    if large <= leading:
        return None
    return _listed(order, past, [index in leading for index in range(len(past.ops))])


def _is_only_added_up(net: Net, blob: str) -> bool:
    return all(
        op.type in ADDS
        and is_handed_on(net, op.outputs[0])
        or op.type == "Identity"
        and _is_only_added_up(net, op.outputs[0])
        for op in net.readers.get(blob, ())
    )


def _listed(net: Net, past: SsaVersions, puts_off: Sequence[bool]) -> Net:
    """The Net with some ops as late as may be, and else in its own order."""
    waits = [len(others) for others in past.before]
    ready = [(puts_off[index], index) for index, count in enumerate(waits) if not count]
    heapq.heapify(ready)
    ops = []
    while ready:
        _, index = heapq.heappop(ready)
        ops.append(past.ops[index])
        for other in past.after[index]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, (puts_off[other], other))
    return net.replace(ops=tuple(ops))


def controlled(net: Net, edges: Sequence[Edge]) -> Net:
    """The Net with each waiting op waiting itself: what the delayed inputs amount to."""
    waits: dict[str, list[str]] = {}
    for edge in edges:
        waits.setdefault(edge.op, []).append(edge.after)
    ops = (
        op.replace(controls=(*op.controls, *waits[op.name])) if op.name in waits else op
        for op in net.ops
    )
    return net.replace(ops=tuple(ops))
