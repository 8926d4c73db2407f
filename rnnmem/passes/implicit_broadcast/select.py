"""Which ops of gradient step nets broadcast an operand themselves, so that nobody makes it whole.

The gradient of a sum is the same number for everything that was added up. TensorFlow makes a blob
as large as that of it before it multiplies, though the product would broadcast it by itself:

    g [B, 1, H] ─► Tile ─► [B, S, H] ─► Mul ─► [B, S, H]
                                  y ────┘
    g [B, 1, H] ──────────────────────► Mul ─► [B, S, H]         the same products, one by one

That of a mean is divided by a number first; so is what was not repeated yet:

    g [1, 1] ─► Tile ─► [B, H] ─► RealDiv(n) ─► [B, H] ─► Mul(x)
    g [1, 1] ───────────────────► RealDiv(n) ─► [1, 1] ─► Mul(x)

A blob that any other op reads, too, must be made in any case, so all of its readers are looked at.
What is added up right behind is left alone: a graph optimizer takes common factors out of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rnnmem.analysis.loops import LoopPair
from rnnmem.analysis.shapes import MANY, known_net
from rnnmem.analysis.symbolic_sizes import SymbolicSizes, broadcasts_itself
from rnnmem.grappler.constant_products import constants_moved
from rnnmem.grappler.summation_order import Sums
from rnnmem.ir.graph import REAL_DTYPES, Blob, Net, Op
from rnnmem.ir.op_table import ADDS, BROADCASTS, SAME_BUFFER, types
from rnnmem.passes.decision import Offer, Site
from rnnmem.passes.implicit_broadcast.decision import ImplicitBroadcast, divides_by_number
from rnnmem.passes.schedule.gradient_start import LARGE

POINTWISE = types("implicit")
"""Op types that broadcast by themselves, and round each element as it would be without."""


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
            again = path[-1:] in ((), ("body",))
            for maker, readers in folded_in(inner, carried=again):
                place = (gradient.loop.op.name, "body", *path)
                implicit_broadcasts += (
                    ImplicitBroadcast(reader, slot, place) for reader, slot in readers
                )
                spared += 0.0 if path else seconds(maker, inner)
    return tuple(implicit_broadcasts), spared


def folded_in(
    net: Net, in_call: Mapping[str, Blob] | None = None, carried: bool = False
) -> Iterator[tuple[Op, list[tuple[str, int]]]]:
    """Each op whose readers can all do without it, and ``(op, slot)`` of these.

    Args:
      net: a Net with all shapes that are known.
      in_call: its blobs with the shapes of a call, where the Net does not tell its own.
      carried: whether it is the body of a loop.
    """
    found = [op for op in net.ops if op.type in BROADCASTS]
    if found:
        sizes = in_call or known_net(net, None, MANY).net.blobs
        found = [op for op in found if _repeats(net, op, sizes)]
    if not found:
        return
    named, summed = SymbolicSizes(known_net(net)), Sums(net, carried).addends
    moved = net.once(constants_moved).ops.keys()  # a constant would go to the smaller factor
    broadcasting = set[str]()  # of two repeated operands, one must be whole
    for op in found:
        # A sum would be begun with another addend if this one were held a little longer.
        if op.inputs[0] in summed:
            continue
        made = op.outputs[0]
        ends = _ends(net, named, op.inputs[0], made)
        if ends is None or not broadcasting.isdisjoint(ends) or len({*ends}) < len(ends):
            continue
        if not moved.isdisjoint(ends):
            continue
        broadcasting.update(ends)
        readers = net.readers.get(made, ())
        yield op, [(reader.name, reader.inputs.index(made)) for reader in readers]


def _repeats(net: Net, op: Op, sizes: Mapping[str, Blob]) -> bool:
    """Whether the op repeats a much smaller blob, for ops of the Net."""
    source, made = sizes[op.inputs[0]], sizes[op.outputs[0]]
    if source.dtype not in REAL_DTYPES or made.name in net.outputs:
        return False
    if source.bytes is None or made.bytes is None or made.bytes < 2 * source.bytes:
        return False
    return made.bytes >= LARGE or net.blobs[made.name].bytes is None  # other calls may be larger


def _ends(net: Net, named: SymbolicSizes, source: str, made: str) -> list[str] | None:
    """Names of the ops that broadcast a source, themselves or once it was divided by a number.

    None where one that reads what was repeated needs it whole.
    """
    ends: list[str] = []
    for reader in net.readers.get(made, ()):
        more: list[str] | None = None
        if divides_by_number(net, reader, made) and reader.outputs[0] not in net.outputs:
            more = _ends(net, named, source, reader.outputs[0])
        elif _can_broadcast(named, reader, source, made):
            more = [reader.name]
        if more is None or _is_added(net, reader.outputs[0]):
            return None
        ends += more
    return ends


def _can_broadcast(named: SymbolicSizes, reader: Op, source: str, made: str) -> bool:
    """Whether a reader's result is the same of what was repeated along axes of length 1."""
    if reader.type not in POINTWISE or reader.inputs.count(made) != 1:
        return False
    (other,) = (blob for blob in reader.inputs if blob != made)
    return broadcasts_itself(*map(named.of, (source, made, other)))


def _is_added(net: Net, blob: str) -> bool:
    """Whether a sum adds the blob up, or a view of it."""
    for reader in net.readers.get(blob, ()):
        if reader.type in ADDS or reader.type == "Sub":
            return True
        if reader.type in SAME_BUFFER and _is_added(net, reader.outputs[0]):
            return True
    return False
