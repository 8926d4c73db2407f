"""Lowering of implicit broadcasts: the original as if its ops broadcast the same operands.

    x ─► BroadcastTo ─► b ─► Mul(b, y)        is        Mul(x, y)

where x repeated along its axes of length 1 is b, and x and y alone broadcast to the result's shape:
then each element is the same product of the same two numbers. Where the rewritten Net does so is
only a hint, which says where to look; what is shown is shown by the original's own shapes.
"""

from __future__ import annotations

from rnnmem.analysis.shapes import with_known_shapes
from rnnmem.ir.graph import Net, Op, Shape

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
    return _lowered(original, with_known_shapes(original), rewritten)


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


def _lowered(net: Net, known: Net, rewritten: Net) -> Net:
    ops = []
    for op in net.ops:
        other = rewritten.op_by_name.get(op.name)
        if other is not None and other is not op:
            inner = known.op_by_name[op.name].nets
            nets = {
                label: _lowered(below, inner[label], other.nets[label])
                if label in other.nets
                else below
                for label, below in op.nets.items()
            }
            op = op.replace(inputs=_operands(net, known, op, rewritten, other), nets=nets)
        ops.append(op)
    return net.replace(ops=tuple(ops))


def _operands(net: Net, known: Net, op: Op, rewritten: Net, other: Op) -> tuple[str, ...]:
    """The op's inputs, with what was repeated in place of what it gave."""
    inputs = list(op.inputs)
    for slot, hint in enumerate(_hinted(net, op, rewritten, other)):
        if hint:
            source = net.producer[inputs[slot]].inputs[0]
            shown = [*inputs[:slot], source, *inputs[slot + 1 :]]
            if _is_the_same(known, op, inputs, shown, slot):
                inputs = shown
    return tuple(inputs)


def _is_the_same(known: Net, op: Op, before: list[str], after: list[str], slot: int) -> bool:
    """Whether the op broadcasts a source to what it would have read in that slot."""
    if known.blobs[after[slot]].dtype not in _ROUNDED_ONE_BY_ONE:
        return False
    repeated = known.blobs[before[slot]].shape
    source, other = (known.blobs[blob].shape for blob in (after[slot], after[1 - slot]))
    result = _broadcast(repeated, other)
    return (
        None not in (repeated, result)
        and _broadcast(source, repeated) == repeated
        and _broadcast(source, other) == result
    )


def _broadcast(one: Shape, other: Shape) -> Shape:
    """The shape of the two together, as NumPy has it; None where it is unknown or they clash."""
    if one is None or other is None or None in (*one, *other):
        return None
    rank = max(len(one), len(other))
    rows = [(1,) * (rank - len(shape)) + shape for shape in (one, other)]
    if any(1 not in pair and pair[0] != pair[1] for pair in zip(*rows, strict=True)):
        return None
    return tuple(pair[1] if pair[0] == 1 else pair[0] for pair in zip(*rows, strict=True))
