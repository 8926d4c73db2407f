"""What of the addends of a sum decides in which order it adds up: their buffers, and their names.

A sum of three or more begins with the first addend whose buffer nobody else holds.

What reads integers has one number whatever these are: the losses of several batches cut from one,
or of two sentences that pass one encoder. Two of them may change places, of three the order shows,
and TensorFlow sorts what it adds up by name; so addends with equal numbers go by their names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rnnmem.verify.flat_graph import FlatGraph, FlatOp

ALONE, SHARED, HELD = "alone", "shared", "held"
SAME = frozenset(
    """Identity Enter NextIteration OptimizationBarrier XlaOptimizationBarrier Snapshot StopGradient
    PreventGradient Reshape ExpandDims Squeeze EnsureShape Bitcast CheckNumerics DeepCopy LoopCond
    PlaceholderWithDefault BroadcastTo Tile Transpose ReverseV2 Gather GatherV2 _Retval""".split()
)
"""Op types that give what they read first."""

_SEVERAL = "IdentityN"
"""The type that hands on each input, as a custom gradient does with all its results."""
_LISTS = frozenset({"TensorListPushBack", "TensorListSetItem"})
_HOLDS = _LISTS | {"OptionalFromValue", "Merge", "Identity"}
"""Op types whose result may hold the buffer that they read."""
_SHARES = (
    SAME
    - {"Enter", "BroadcastTo", "Tile", "DeepCopy", "Transpose", "ReverseV2", "Gather", "GatherV2"}
) | {
    "Switch",
    "Merge",
    "Exit",
    "OptionalFromValue",
    "OptionalGetValue",
    _SEVERAL,
}
"""Op types whose first output is the buffer that they read."""
_VIEWS = frozenset(
    {"Reshape", "ExpandDims", "Squeeze", "EnsureShape", "Identity", "Snapshot", _SEVERAL}
)
"""Those of them that hand on one buffer, whatever runs."""
_HANDS_ON = frozenset({"EnsureShape", "Identity", "PlaceholderWithDefault", "Snapshot"})
_AROUND = re.compile(r"^(.*/_\d+/)?(rnnmem/again/)?|/rnnmem/\w+$")
"""Where a lowered step net stands, and what a rewrite puts around a name."""
_PLACE = re.compile(r"/_(\d+)$")
"""Behind the name of what a lowered loop or branch hands out."""


def holders(graph: FlatGraph, adding: FlatOp) -> tuple[str, ...]:
    """Whether a sum may overwrite each of its addends, never may, or may by a race.

    A buffer that it reads twice it holds itself: with ``x * x`` comes twice the one gradient.
    """
    buffers = [_buffer(graph, blob) for blob in adding.inputs]
    return tuple(
        HELD if buffers.count(buffer) > 1 else _held(graph, blob, adding)
        for blob, buffer in zip(adding.inputs, buffers, strict=True)
    )


def _buffer(graph: FlatGraph, blob: tuple[str, int]) -> tuple[str, int]:
    """The blob whose buffer another is, outside of loops."""
    while (source := graph.ops[blob[0]]).type in _VIEWS:
        blob = _read_as(source, blob)
    return blob


def _read_as(source: FlatOp, blob: tuple[str, int]) -> tuple[str, int]:
    """What an op reads in the buffer of this result."""
    return source.inputs[blob[1] if source.type == _SEVERAL else 0]


def _held(graph: FlatGraph, blob: tuple[str, int], adding: FlatOp) -> str:
    """Whether a sum that reads a blob may overwrite it, never may, or may by a race."""
    found, seen = ALONE, {blob}
    while True:
        readers = graph.readers_beside(blob, adding)
        if any(_keeps(graph, reader, blob) for reader in readers):
            return HELD
        if len(readers) > 1:
            found = SHARED
        source = graph.ops[blob[0]]
        if source.type in ("Const", "_Arg", "Enter"):
            return HELD
        if source.type not in _SHARES:
            return found
        back = graph.back_edge(source) if source.type == "Merge" else None
        blob = _read_as(source, blob) if back is None else back.inputs[0]
        if blob in seen:
            return HELD
        seen.add(blob)


def _keeps(graph: FlatGraph, reader: FlatOp, blob: tuple[str, int]) -> bool:
    """Whether what an op reads stays alive in what it makes: in a list, or as a result."""
    if reader.type == "_Retval":
        return True
    if reader.type == _SEVERAL:
        handed = [(reader.name, at) for at, read in enumerate(reader.inputs) if read == blob]
    elif reader.type in _HOLDS:
        handed = [(reader.name, 0)]
    else:
        return False
    after = [(result, one) for result in handed for one in graph.readers.get(result, [])]
    if reader.type in _LISTS:
        return any(one.type != "TensorListPopBack" for _, one in after)
    return any(_keeps(graph, one, result) for result, one in after)


def order_of_equals(
    graph: FlatGraph, blobs: Sequence[tuple[str, int]], numbers: Sequence[int], zero: int
) -> tuple[tuple[str, int], ...]:
    """The addends with equal numbers, in the order in which they are added; empty: none are equal.

    Args:
      graph: the function.
      blobs: what the sum adds up, in order.
      numbers: the number of each.
      zero: the number of zeros, which may be added wherever.

    Returns:
      The name of each, without what differs from one lowering of a step net to another, and which
      of those of one name it is.
    """
    names = [_name(graph, blob) for blob in blobs]
    named: dict[int, dict[tuple[str, int], tuple[str, int]]] = {}
    for number, name, blob in zip(numbers, names, blobs, strict=True):
        named.setdefault(number, {})[_buffer(graph, blob)] = name  # one value, whatever views it
    apart = [number != zero and len({*named[number].values()}) > 1 for number in numbers]
    equal = [name for name, one in zip(names, apart, strict=True) if one]
    if len(equal) > 1 and apart[0] and numbers[0] == numbers[1]:
        equal[:2] = sorted(equal[:2])  # either of the first two may be added to the other
    places: dict[str, list[int]] = {}
    for stem, place in sorted(set(equal)):
        places.setdefault(stem, []).append(place)
    return tuple((stem, places[stem].index(place)) for stem, place in equal)


def around(name: str) -> str:
    """An op's name without what differs from one lowering of a step net to another."""
    return _AROUND.sub("", name)


def _handed_on(graph: FlatGraph, blob: tuple[str, int]) -> tuple[str, int] | None:
    """What an op hands on as its output, through a barrier too; None where it makes it."""
    op = graph.ops[blob[0]]
    if op.type in _HANDS_ON:
        return op.inputs[0]
    source = graph.ops[op.inputs[0][0]] if op.type == "OptionalGetValue" else None
    wrapped = source is not None and source.type == "OptionalFromValue"
    return source.inputs[blob[1]] if source is not None and wrapped else None


def _name(graph: FlatGraph, blob: tuple[str, int]) -> tuple[str, int]:
    while (handed := _handed_on(graph, blob)) is not None:
        blob = handed
    op = graph.ops[blob[0]]
    name = around(op.name)
    found = _PLACE.search(name)
    return (name, blob[1]) if found is None else (name[: found.start()], int(found[1]))
