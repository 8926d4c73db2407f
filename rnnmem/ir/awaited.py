"""What only control outputs need, in a function whose call may be inlined.

TensorFlow inlines a call without state and forgets its control outputs; what they alone need is
pruned then. What is only to run beside a loop is handed out by that loop, so whoever reads another
result of the loop waits for it:

    While ─┬─► keep-alive list ─► Identity ┄┐        a control output
           └─► state ─► Identity ◄┄┄┄┄┄┄┄┄┄┄┘─► readers
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rnnmem.ir.graph import Blob, DType, Net, Op
from rnnmem.ir.op_table import LOOPS, is_pure
from rnnmem.ir.order import through_identities, topological

_NO_NUMBERS = ("resource", "variant")


def with_awaited_results(net: Net, *, prunable: bool = False) -> Net:
    """The Net in which loops' control outputs run wherever a result of the loop is read.

    Args:
      net: a function.
      prunable: whether they run nowhere else, so that they are pruned with the loop.
    """
    waits: dict[str, list[str]] = {}  # loop -> ops that stand for what it hands out
    for name in net.control_outputs:
        op = net.op_by_name[name]
        if is_pure(op) and (loop := _loop_behind(net, op)) is not None:
            waits.setdefault(loop.name, []).append(name)
    added: dict[str, Op] = {}  # blob -> the op that hands it on
    for name, held in waits.items():
        loop = net.op_by_name[name]
        for place in _read(net, loop, held):
            added[loop.outputs[place]] = _handing_on(net, loop, place, held)
    if not added:
        return net
    instead = {blob: op.outputs[0] for blob, op in added.items()}
    awaited = {name for op in added.values() for name in op.controls}
    kinds = {one: Blob(one, *_kind(net, blob)) for blob, one in instead.items()}
    ops = [op if op.name in awaited else _reading(op, instead) for op in net.ops]
    return net.replace(
        ops=topological([*ops, *added.values()]),
        blobs={**net.blobs, **kinds},
        outputs=tuple(instead.get(one, one) for one in net.outputs),
        control_outputs=tuple(
            name for name in net.control_outputs if not prunable or name not in awaited
        ),
    )


def with_gates(net: Net, original: Net) -> Net:
    """The Net in which what the results wait for is a control output too, where others were added.

    Results wait for one op that waits for all control outputs. Where the function is called, the
    caller's results wait for that op and for the call. TensorFlow sees that the first follows from
    the second while both wait for the same; once the call waits for more, only as a control output
    does it. Else results of two calls, zeros for example, would no longer be alike and be merged.

    Args:
      net: with the control outputs that were added.
      original: the Net without them.
    """
    if set(net.control_outputs) <= set(original.control_outputs):
        return net
    makers = [net.producer[blob] for blob in net.outputs if blob in net.producer]
    gates = dict.fromkeys(name for op in makers for name in op.controls)
    return net.replace(control_outputs=tuple(dict.fromkeys((*gates, *net.control_outputs))))


def _reading(op: Op, instead: Mapping[str, str]) -> Op:
    if instead.keys().isdisjoint(op.inputs):
        return op
    return op.replace(inputs=tuple(instead.get(one, one) for one in op.inputs))


def _loop_behind(net: Net, op: Op) -> Op | None:
    """The loop that hands out what the op stands for."""
    source = net.producer.get(through_identities(net, op.outputs[0])) if op.outputs else None
    return source if source is not None and source.type in LOOPS else None


def _read(net: Net, loop: Op, held: Collection[str]) -> list[int]:
    """Places of the loop's results that somebody reads, but for lists."""
    return [
        place
        for place, blob in enumerate(loop.outputs)
        if net.blobs[blob].dtype not in _NO_NUMBERS
        and (blob in net.outputs or any(op.name not in held for op in net.readers.get(blob, ())))
    ]


def _handing_on(net: Net, loop: Op, place: int, held: Collection[str]) -> Op:
    """An op that hands a result on, after what is waited for; sums sort by names: as the loop's."""
    blob, name = loop.outputs[place], f"{loop.name}/awaited_{place:04}"
    kind = {"T": DType(net.blobs[blob].dtype)}
    return Op(name, "Identity", (blob,), (f"{name}:0",), kind, controls=tuple(held))


def _kind(net: Net, blob: str):
    return net.blobs[blob].dtype, net.blobs[blob].shape
