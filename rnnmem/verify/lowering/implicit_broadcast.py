"""Lowering of implicit broadcasts: the original as if its ops broadcast the same operands.

    x ─► BroadcastTo ─► b ─► Mul(b, y)        is        Mul(x, y)

where x repeated along its axes of length 1 is b, and x and y alone broadcast to the result's shape:
then each element is the same product of the same two numbers. Where the rewritten Net does so is
only a hint, which says where to look; what is shown is shown by the original's own shapes.
"""

from __future__ import annotations

from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.analysis.symbolic_sizes import SymbolicSizes, broadcasts_itself
from rnnmem.ir.graph import Net, Op

_REPEATING = ("BroadcastTo", "Tile")
_POINTWISE = ("Mul", "RealDiv", "Sub")
_ROUNDED_ONE_BY_ONE = ("bfloat16", "float16", "float32", "float64")


def lower_original(original: Net, rewritten: Net) -> Net:
    """The original, with operands broadcast where those of the rewritten Net are.

    Args:
      original: the Net as imported.
      rewritten: what a rewrite made of it.
    """
    if not _differs(original, rewritten):
        return original
    return _lowered(original, known_net(original), rewritten)


def _differs(original: Net, rewritten: Net) -> bool:
    """Whether an operand of the same op was repeated in the one Net and is not in the other."""
    for op in original.ops:
        other = rewritten.op_by_name.get(op.name)
        if other is None or other is op:
            continue
        if any(_hinted(original, op, rewritten, other)):
            return True
        labels = op.nets.keys() & other.nets.keys()
        if any(_differs(op.nets[label], other.nets[label]) for label in labels):
            return True
    return False


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
    ops = []
    for op in net.ops:
        other = rewritten.op_by_name.get(op.name)
        if other is not None and other is not op:
            nets = {
                label: _lowered(below, known.inner[op.name, label], other.nets[label])
                if label in other.nets and (op.name, label) in known.inner
                else below
                for label, below in op.nets.items()
            }
            op = op.replace(inputs=_operands(net, known, op, rewritten, other), nets=nets)
        ops.append(op)
    return net.replace(ops=tuple(ops))


def _operands(net: Net, known: KnownNet, op: Op, rewritten: Net, other: Op) -> tuple[str, ...]:
    """The op's inputs, with what was repeated in place of what it gave."""
    inputs = list(op.inputs)
    for slot, hint in enumerate(_hinted(net, op, rewritten, other)):
        if hint:
            sizes = known.once(SymbolicSizes)
            source, beside = net.producer[inputs[slot]].inputs[0], inputs[1 - slot]
            is_rounded = net.blobs[source].dtype in _ROUNDED_ONE_BY_ONE
            if is_rounded and broadcasts_itself(*map(sizes.of, (source, inputs[slot], beside))):
                inputs[slot] = source
    return tuple(inputs)
