"""What a user asked of values: that they are kept until the gradient, or computed again for it.

A mark is an Identity of the value that nobody reads: TensorFlow prunes it before it optimizes
anything, so that the function runs as it would without. (An attribute on the op itself would keep
the op from being merged with an equal one, and so from fusions.) A pattern names ops, or the name
scopes around them. Both become an attribute of the Net, blob -> request, and the marks go.
"""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rnnmem.ir.graph import BYTES_PER_ELEMENT, Net, Op, Path
from rnnmem.ir.marks import REQUEST
from rnnmem.ir.names import BETWEEN, Names, functions_of, user_scopes, without_counter
from rnnmem.ir.op_table import LOOPS

KEEP, RECOMPUTE = "keep", "recompute"

REQUESTS = "rnnmem_requests"
"""The attribute of a Net that tells what is asked of its blobs."""

Patterns = Mapping[str, tuple[str, ...]]
"""`KEEP` or `RECOMPUTE` -> patterns of names of ops and of the name scopes around them."""

Place = tuple[Path, str]
"""The path to a step net, and the name of an op in it."""


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
    if not any(patterns.values()):
        return _with(net, {}, Path())
    named = named_by(net, itertools.chain(*patterns.values()))
    asked = {
        place: request
        for request in (RECOMPUTE, KEEP)
        for pattern in patterns.get(request, ())
        for place in named[pattern]
    }
    return _with(net, asked, Path())


def without_a_name(net: Net, patterns: Patterns) -> tuple[str, ...]:
    """The patterns that name nothing in a Net, nor in a step net."""
    return tuple(
        one
        for one, places in named_by(net, itertools.chain(*patterns.values())).items()
        if not places
    )


def named_by(net: Net, patterns: Iterable[str]) -> dict[str, set[Place]]:
    """Pattern -> the ops that it names, in the Net and in every step net.

    It names those whose names, or name scopes, it matches; where there are none, those that are
    told by such a name, as `explain` and the reports tell them.
    """
    places = [
        (path, op.name)
        for path, inner in net.walk()
        for op in inner.ops
        if REQUEST not in op.attributes
    ]
    names = {place: set(_names(*place)) for place in places}
    found = {one: _matched(names, one) for one in patterns}
    if all(found.values()):
        return found
    loops = (op.name for _, inner in net.walk() for op in inner.ops if op.type in LOOPS)
    naming = Names(loops, functions_of(net), (name for _, name in places))
    for told_by in (_told, _written, _told_without_counters):
        if missed := [one for one, matched in found.items() if not matched]:
            told = {place: set(told_by(*place, naming)) for place in places}
            found |= {one: _matched(told, one.replace(BETWEEN, "/")) for one in missed}
    return found


def _with(net: Net, requests: Mapping[Place, str], path: Path) -> Net:
    named = {
        blob: requests[path, op.name]
        for op in net.ops
        if (path, op.name) in requests
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
            nets={
                key: _with(one, requests, path.child(op.name, key)) for key, one in op.nets.items()
            }
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


def _names(path: Path, name: str) -> Iterator[str]:
    """The op's name and scopes: alone, behind those around it, and without the names of these."""
    around = path[::2]
    inside = (name[len(one) + 1 :] for one in around if name.startswith(f"{one}/"))
    for whole in (name, "/".join((*around, name)), *inside):
        yield from _scopes(whole.split("/"))


def _told(path: Path, name: str, naming: Names) -> Iterator[str]:
    """What the op and its scopes are told by; of a gradient, nothing."""
    yield from _ends(naming.chain(name, path[::2]))


def _written(path: Path, name: str, naming: Names) -> Iterator[str]:
    """The op and its scopes with all the numbers that they have; of a gradient, nothing."""
    if naming.chain(name, path[::2]):
        scopes, _, last = name.rpartition("/")
        yield from _ends([*user_scopes(scopes), last])


def _told_without_counters(path: Path, name: str, naming: Names) -> Iterator[str]:
    """The same without the counters of scopes: who tells of fewer ops leaves out more of them."""
    if chain := naming.chain(name, path[::2]):
        *told, last = chain
        yield from _ends([*map(without_counter, told), last])
        *scopes, last = name.split("/")
        yield from _scopes([*map(without_counter, scopes), last])


def _ends(parts: Sequence[str]) -> Iterator[str]:
    """The scopes of a name, and of what is left of it without its outermost ones."""
    for first in range(max(len(parts) - 1, 1)):
        yield from _scopes(parts[first:])


def _scopes(parts: Iterable[str]) -> Iterator[str]:
    """The outermost of the parts, the two outermost with a slash between them, and so on."""
    return itertools.accumulate(parts, "{}/{}".format)


def _matched(names: Mapping[Place, Iterable[str]], pattern: str) -> set[Place]:
    matches = re.compile(fnmatch.translate(pattern)).match
    return {place for place, known in names.items() if any(map(matches, known))}
