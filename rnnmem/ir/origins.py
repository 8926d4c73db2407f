"""Where names come from, beyond what they say themselves: the user's lines, and who numbered them.

A plan holds names of ops alone; whoever tells of it asks the Net, while that is there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.joint import BACKWARD
from rnnmem.ir.names import (
    Origins,
    differentiated,
    is_of_gradient,
    user_scopes,
    without_counter,
)


def origins_of(net: Net, names: Iterable[str], in_use: Collection[str]) -> Origins:
    """Where the names of some ops come from.

    Args:
      net: the function, inlined.
      names: of ops and blobs, at any depth; what is none has no line.
      in_use: names of ops and scopes that TensorFlow gave away when it was traced, in lower case.
    """
    ops = {op.name: op for _, inner in net.walk() for op in inner.ops}
    told = dict.fromkeys(name.partition(":")[0] for name in names)
    lines = {name: _line(name, ops) for name in told if name in ops}
    return Origins({name: line for name, line in lines.items() if line}, numbered(ops, in_use))


def _line(name: str, ops: dict[str, Op]) -> str:
    """The line of an op; in a gradient, of what is differentiated there, if that is known.

    A gradient that rnnmem made itself has the line of whoever asked for it, which tells nothing.
    """
    own = () if name.startswith(f"{BACKWARD}/") else (ops[name],)
    return next(filter(None, (str(op.source) for op in (*_differentiated(name, ops), *own))), "")


def _differentiated(name: str, ops: dict[str, Op]) -> Iterator[Op]:
    """The op whose gradient an op belongs to, else one beside it."""
    if not is_of_gradient(name):
        return
    around = differentiated(name).rpartition("/")[0]
    inner = around.removesuffix("_grad")
    if inner in ops:
        yield ops[inner]
    elif inner:
        yield from (op for one, op in ops.items() if one.startswith(f"{inner}/"))


def numbered(names: Iterable[str], in_use: Collection[str]) -> frozenset[tuple[str, ...]]:
    """The user's name scopes whose number was written so, or is Keras's for a layer.

    TensorFlow adds one only where the name without it was given away: what has a number although it
    was not, was asked for with it. Of scopes that were imported from a file neither is known.
    """
    found = set()
    for scopes in {name.rpartition("/")[0] for name in names if not is_of_gradient(name)}:
        parts = scopes.split("/")
        for end, scope in enumerate(parts, 1):
            if without_counter(scope) != scope and _asked_for(parts[:end], in_use):
                found.add(user_scopes("/".join(parts[:end])))
    return frozenset(filter(None, found))


def _asked_for(parts: list[str], in_use: Collection[str]) -> bool:
    """Whether a scope was opened by its name with the number; calls put theirs in front of it."""
    tails = ("/".join(parts[first:]).lower() for first in range(len(parts)))
    scope = next((one for one in tails if one in in_use), "")
    return bool(scope) and without_counter(scope) not in in_use
