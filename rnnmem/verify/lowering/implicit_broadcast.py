"""Lowering of implicit broadcasts: the original as if its ops broadcast the same operands.

    x ─► BroadcastTo ─► b ─► Mul(b, y)        is        Mul(x, y)

where x repeated along its axes of length 1 is b, and x and y alone broadcast to the result's shape:
then each element is the same product of the same two numbers. So it is behind ops by a number,
which make of x repeated what they make of x, repeated:

    x ─► BroadcastTo ─► b ─► RealDiv(b, n) ─► Mul(c, y)        is        Mul(RealDiv(x, n), y)

where everything that reads b or c is such an op. Where the rewritten Net does so is only a hint,
which says where to look; what is shown is shown by the original's own shapes.
"""

from __future__ import annotations

from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.analysis.symbolic_sizes import SymbolicSizes, broadcasts_itself
from rnnmem.ir.graph import REAL_DTYPES, Blob, Net, Op
from rnnmem.verify.lowering.patterns import is_hinted

_REPEATING = ("BroadcastTo", "Tile")
_POINTWISE = ("Mul", "RealDiv", "Sub")


def lower_original(original: Net, rewritten: Net) -> Net:
    """The original, with operands broadcast where those of the rewritten Net are.

    Args:
      original: the Net as imported.
      rewritten: what a rewrite made of it.
    """
    if not is_hinted(original, rewritten, lambda *pair: any(_hinted(*pair))):
        return original
    return _lowered(original, known_net(original), rewritten)


def _hinted(original: Net, op: Op, rewritten: Net, other: Op) -> list[bool]:
    """For each input of the op, whether the rewritten Net reads no repeated blob there."""
    if op.type not in _POINTWISE or op.type != other.type or len(op.inputs) != len(other.inputs):
        return [False] * len(op.inputs)
    return [
        _repeated(original, mine) and not _repeated(rewritten, yours)
        for mine, yours in zip(op.inputs, other.inputs, strict=True)
    ]


def _repeated(net: Net, blob: str) -> bool:
    maker = net.producer.get(blob)
    return maker is not None and maker.type in _REPEATING


def _lowered(net: Net, known: KnownNet, rewritten: Net) -> Net:
    ops, small = [], dict[str, Blob | None]()
    for op in net.ops:
        other = rewritten.op_by_name.get(op.name)
        if other is not None and other is not op:
            nets = {
                label: _lowered(below, known.inner[op.name, label], other.nets[label])
                if label in other.nets and (op.name, label) in known.inner
                else below
                for label, below in op.nets.items()
            }
            hints = _hinted(net, op, rewritten, other)
            op = op.replace(inputs=_operands(net, known, op, hints, small), nets=nets)
        ops.append(op)
    changed = {blob.name: blob for blob in small.values() if blob is not None}
    return net.replace(ops=tuple(ops), blobs={**net.blobs, **changed} if changed else net.blobs)


def _operands(
    net: Net, known: KnownNet, op: Op, hints: list[bool], small: dict[str, Blob | None]
) -> tuple[str, ...]:
    """The op's inputs, with what was repeated in place of what it gave; adds what gets small."""
    inputs = list(op.inputs)
    for slot, hint in enumerate(hints):
        if hint:
            source = net.producer[op.inputs[slot]].inputs[0]
            found = _small(net, known, op, op.inputs[slot], source)
            if found is not None and found.keys().isdisjoint(small):
                inputs[slot] = source
                small.update(found)
    return tuple(inputs)


def _small(
    net: Net, known: KnownNet, reader: Op, repeated: str, source: str
) -> dict[str, Blob | None] | None:
    """What becomes small where an op reads a source in place of what it was repeated to.

    By the op that makes it: None of those that broadcast, which may do so with one operand only.
    In all, None where that changes a number that somebody reads.
    """
    blobs = net.blobs
    if reader.type not in _POINTWISE or blobs[source].dtype not in REAL_DTYPES:
        return None
    beside = [blob for blob in reader.inputs if blob != repeated]
    if len(beside) != 1:
        return None
    sizes = known.once(SymbolicSizes)
    if broadcasts_itself(*map(sizes.of, (source, repeated, *beside))):
        return {reader.name: None}
    made = reader.outputs[0]
    if blobs[beside[0]].shape != () or made in net.outputs:
        return None
    small: dict[str, Blob | None] = {}
    small[reader.name] = Blob(made, blobs[made].dtype, blobs[source].shape)
    for op in net.readers.get(made, ()):
        found = _small(net, known, op, made, source)
        if found is None or not found.keys().isdisjoint(small):
            return None
        small.update(found)
    return small
