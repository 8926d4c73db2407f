"""Which ops of gradient step nets broadcast an operand themselves, so that nobody makes it whole.

The gradient of a sum is the same number for everything that was added up. TensorFlow makes a blob
as large as that of it before it multiplies, though the product would broadcast it by itself:

    g [B, 1, H] ─► Tile ─► [B, S, H] ─► Mul ─► [B, S, H]
                                  y ────┘
    g [B, 1, H] ──────────────────────► Mul ─► [B, S, H]         the same products, one by one

A blob that any other op reads, too, must be made in any case, so all of its readers are looked at.
What is added up right behind is left alone: a graph optimizer takes common factors out of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rnnmem.analysis.loops import LoopPair
from rnnmem.grappler.summation_order import Sums
from rnnmem.ir.graph import Blob, Net, Op, Shape
from rnnmem.ir.op_table import ADDS, BROADCASTS, SAME_BUFFER, types
from rnnmem.passes.decision import Offer, Site
from rnnmem.passes.implicit_broadcast.decision import ImplicitBroadcast
from rnnmem.passes.schedule.gradient_start import LARGE

POINTWISE = types("implicit")
"""Op types that broadcast by themselves, and round each element as it would be without."""
DTYPES = frozenset({"bfloat16", "float16", "float32", "float64"})


def offer(site: Site) -> Offer:
    """What loops that are rewritten bring along."""
    found = [implicit_broadcasts_of(pair, site.seconds) for pair in site.pairs]
    of_pair = {
        pair.path: implicit_broadcasts
        for pair, (implicit_broadcasts, _) in zip(site.pairs, found, strict=True)
    }
    return Offer(
        lambda opened, _: tuple(
            implicit_broadcast for pair in opened for implicit_broadcast in of_pair[pair.path]
        ),
        tuple(seconds for _, seconds in found),
    )


def implicit_broadcasts_of(
    pair: LoopPair, seconds: Callable[[Op, Net], float]
) -> tuple[tuple[ImplicitBroadcast, ...], float]:
    """The operands that are no longer made whole in the gradient loops of a pair.

    Args:
      pair: the loop pair, all of whose shapes that are known are filled in.
      seconds: estimated time of one run of an op of a Net.

    Returns:
      The folds, their paths from the Net around the loops on, and the estimated time per iteration
      that they take off, inner loops apart.
    """
    implicit_broadcasts: list[ImplicitBroadcast] = []
    spared = 0.0
    for gradient in pair.gradients:
        for path, inner in gradient.loop.body.walk():
            for maker, readers in _folded(inner, path):
                place = (gradient.loop.op.name, "body", *path)
                implicit_broadcasts += (
                    ImplicitBroadcast(reader, slot, place) for reader, slot in readers
                )
                spared += 0.0 if path else seconds(maker, inner)
    return tuple(implicit_broadcasts), spared


def broadcast(one: Shape, other: Shape) -> Shape:
    """The shape of a pointwise op's result; None where a dimension is unknown or none fits."""
    if one is None or other is None or None in (*one, *other):
        return None
    rank = max(len(one), len(other))
    pairs = zip((1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other, strict=True)
    found = []
    for mine, yours in pairs:
        if mine != yours and 1 not in (mine, yours):
            return None
        found.append(yours if mine == 1 else mine)
    return tuple(found)


def _folded(net: Net, path: tuple[str, ...]) -> Iterator[tuple[Op, list[tuple[str, int]]]]:
    """Each op whose readers can all do without it, and ``(op, slot)`` of these."""
    found = [op for op in net.ops if op.type in BROADCASTS and _repeats(net, op)]
    if not found:
        return
    summed = Sums(net, carried=path[-1:] in ((), ("body",))).addends
    for op in found:
        # A sum would be begun with another addend if this one were held a little longer.
        if op.inputs[0] in summed:
            continue
        source, made = net.blobs[op.inputs[0]], net.blobs[op.outputs[0]]
        readers = net.readers.get(made.name, ())
        if all(_can_broadcast(net, reader, source, made) for reader in readers):
            yield op, [(reader.name, reader.inputs.index(made.name)) for reader in readers]


def _repeats(net: Net, op: Op) -> bool:
    """Whether the op repeats a much smaller blob along axes of length 1, for ops of the Net."""
    source, made = net.blobs[op.inputs[0]], net.blobs[op.outputs[0]]
    return (
        source.dtype in DTYPES
        and made.name not in net.outputs
        and made.bytes is not None
        and source.bytes is not None
        and made.bytes >= max(LARGE, 2 * source.bytes)
        and broadcast(source.shape, made.shape) == made.shape
    )


def _can_broadcast(net: Net, reader: Op, source: Blob, made: Blob) -> bool:
    if reader.type not in POINTWISE or reader.inputs.count(made.name) != 1:
        return False
    (other,) = (net.blobs[blob] for blob in reader.inputs if blob != made.name)
    result = net.blobs[reader.outputs[0]]
    fits = result.bytes is not None and broadcast(source.shape, other.shape) == result.shape
    return fits and not _is_added(net, result.name)


def _is_added(net: Net, blob: str) -> bool:
    """Whether a sum adds the blob up, or a view of it."""
    for reader in net.readers.get(blob, ()):
        if reader.type in ADDS or reader.type == "Sub":
            return True
        if reader.type in SAME_BUFFER and _is_added(net, reader.outputs[0]):
            return True
    return False
