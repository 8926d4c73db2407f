"""What a user asked of values: that they are kept until the gradient, or computed again for it.

A mark is an Identity of the value that nobody reads: TensorFlow prunes it before it optimizes
anything, so that the function runs as it would without. (An attribute on the op itself would keep
the op from being merged with an equal one, and so from fusions.) A pattern names ops, or the name
scopes around them. Both become an attribute of the Net, blob -> request, and the marks go.
"""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Iterable, Iterator, Mapping

from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net, Op
from rnnmem.ir.marks import REQUEST

KEEP, RECOMPUTE = "keep", "recompute"

REQUESTS = "rnnmem_requests"
"""The attribute of a Net that tells what is asked of its blobs."""

Patterns = Mapping[str, tuple[str, ...]]
"""`KEEP` or `RECOMPUTE` -> patterns of names of ops and of the name scopes around them."""


def requests_of(net: Net) -> Mapping[str, str]:
    """Blob -> `KEEP` or `RECOMPUTE`, of the Net itself."""
    return net.attributes.get(REQUESTS, {})


def asks_inside(op: Op, request: str) -> bool:
    """Whether a step net of the op, at any depth, asks this of a blob."""
    return any(
        request in requests_of(inner).values()
        for net in op.nets.values()
        for _, inner in net.walk()
    )


def with_requests(net: Net, patterns: Patterns) -> Net:
    """The Net, and every step net in it, with what marks and patterns ask.

    A mark counts more than a pattern, and to keep more than to recompute.

    Args:
      net: a Net, inlined; its marks nobody reads, so they go with what is pruned.
      patterns: what the options ask.
    """
    return _with(net, patterns, ())


def without_a_name(net: Net, patterns: Patterns) -> tuple[str, ...]:
    """The patterns that name nothing in a Net, nor in a step net."""
    named = [set(_names(op, path[::2])) for path, inner in net.walk() for op in inner.ops]
    return tuple(
        one
        for one in itertools.chain(*patterns.values())
        if not any(_match(names, (one,)) for names in named)
    )


def _with(net: Net, patterns: Patterns, around: tuple[str, ...]) -> Net:
    named = {
        blob: request
        for request in (RECOMPUTE, KEEP)
        for op in net.ops
        if REQUEST not in op.attributes and _match(_names(op, around), patterns.get(request, ()))
        for blob in op.outputs
        if net.blobs[blob].dtype in BYTES_PER_ELEMENT
    }
    marked = {
        blob: request
        for request in (RECOMPUTE, KEEP)
        for op in net.ops
        if op.attributes.get(REQUEST) == request.encode()
        for blob in _with_sources(net, op.inputs[0])
    }
    ops = tuple(
        op.replace(
            nets={key: _with(one, patterns, (*around, op.name)) for key, one in op.nets.items()}
        )
        if op.nets
        else op
        for op in net.ops
    )
    if any(
        new.nets[key] is not old.nets[key] for old, new in _pairs(net.ops, ops) for key in old.nets
    ):
        net = net.replace(ops=ops)
    asked = {**named, **marked}
    return net.replace(attributes={**net.attributes, REQUESTS: asked}) if asked else net


def _pairs(old: Iterable[Op], new: Iterable[Op]) -> Iterator[tuple[Op, Op]]:
    return zip(old, new, strict=True)


def _with_sources(net: Net, blob: str) -> Iterator[str]:
    """The blob, and what it is an Identity of."""
    yield blob
    while (op := net.producer.get(blob)) is not None and op.type == "Identity":
        blob = op.inputs[0]
        yield blob


def _names(op: Op, around: tuple[str, ...]) -> Iterator[str]:
    """The op's name and scopes, alone and behind the names of the loops and branches around."""
    for whole in {op.name, "/".join((*around, op.name))}:
        yield from itertools.accumulate(whole.split("/"), "{}/{}".format)


def _match(names: Iterable[str], patterns: tuple[str, ...]) -> bool:
    return bool(patterns) and any(
        fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns
    )
