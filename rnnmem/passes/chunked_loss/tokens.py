"""A softmax loss of logits ``[B, T, V]`` seen as one of ``[B*T, 1, V]``, whose rows are tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rnnmem.analysis.row_views import as_rows
from rnnmem.analysis.shapes import KnownNet, known_net
from rnnmem.ir.builders import Encode
from rnnmem.ir.graph import Constant, Net, Op
from rnnmem.passes.chunked_loss.exact import CUTS, makers_of_logits
from rnnmem.passes.chunked_loss.products import is_elementwise
from rnnmem.passes.chunked_loss.region import Region, find


def leads(known: KnownNet, projection: Op) -> Iterator[tuple[int, ...]]:
    """The sizes that count tokens together, where logits have several such axes.

    Args:
      known: the Net with its shapes.
      projection: the product that makes the logits.
    """
    makers = makers_of_logits(known.net, projection)
    starts = [projection, *(op for op in makers if op.type in CUTS)]
    yield from dict.fromkeys(lead for op in starts if (lead := _lead(known, op.outputs[0])))


def _lead(known: KnownNet, logits: str) -> tuple[int, ...]:
    """The sizes that count tokens together in a view of the logits; none where none has several."""
    shape = _sizes(known, logits)
    found, pending = set(), [logits] if shape else []
    while pending:
        blob = pending.pop()
        found.add(blob)
        held = _sizes(known, blob)
        if len(held) > 2 and held[-1] == shape[-1] and math.prod(held) == math.prod(shape):
            return held[:-1]
        for op in known.net.readers.get(blob, ()):
            if is_elementwise(op):
                pending += [one for one in op.outputs if one not in found]
    return ()


def _sizes(known: KnownNet, blob: str) -> tuple[int, ...]:
    """A blob's sizes; none where one of them is not known."""
    found = tuple(one for one in known.facts[blob].shape or () if one is not None)
    return found if found == known.facts[blob].shape else ()


def by_tokens(
    net: Net, projection: str, lead: tuple[int, ...], constant: Encode
) -> tuple[Net, Region]:
    """The Net with the ops of a region on rows of tokens, and the region.

    Args:
      net: the Net.
      projection: name of the product.
      lead: the sizes that count tokens together.
      constant: encodes sizes.

    Raises:
      NoRegion: the projection cannot be run by chunks; says why.
    """
    every = find(known_net(as_rows(net, lead, constant)), projection, exact=True)
    last = next(one for one in reversed(every.owned) if one in net.op_by_name)
    seen = as_rows(net, lead, constant, every.ops, net.op_by_name[last].outputs)
    return seen, find(known_net(seen), projection, exact=True)


def plain(value: object, dtype: str) -> Constant:
    """Whole numbers in a Net that is only looked at."""
    held = tuple(value) if isinstance(value, list | tuple) else value
    shape = (len(held),) if isinstance(held, tuple) else ()
    return Constant(dtype, shape, repr(held).encode(), held)  # type: ignore[arg-type]
