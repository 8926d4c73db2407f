"""What a second run of a function would change, and whether that can be undone.

TensorFlow marks an op as stateful and says no more. The op table says what a run leaves
behind; what it does not name may leave anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import BRANCHES, LOOPS, effect


@dataclasses.dataclass(frozen=True)
class SecondRun:
    """What a second run of a Net would change.

    Attributes:
      stays: ops whose effect cannot be undone and would spoil what follows: queues, datasets that
        are read from their start, and every stateful type that nobody knows.
      seen: ops whose effect would be seen twice: prints, Python functions, summaries, files.
      draws: whether kernels of the function count random draws.
      written: for each input of the Net that is a handle, the ops that change what is behind it: a
        variable, an iterator, a table. An op that no input leads to stands in ``stays``.
    """

    stays: tuple[Op, ...]
    seen: tuple[Op, ...]
    draws: bool
    written: Mapping[str, tuple[Op, ...]]


def second_run(net: Net) -> SecondRun:
    """What a second run of a Net would change; step nets and called Nets are looked into."""
    ops = [op for _, inner in net.walk() for op in inner.ops if op.stateful]
    handles = [blob for blob in net.inputs if net.blobs[blob].dtype == "resource"]
    behind = {blob: tuple(_behind(net, blob)) for blob in handles}
    reached = {id(op) for found in behind.values() for op in found}
    return SecondRun(
        stays=tuple(
            op
            for op in ops
            if effect(op.type) is None or (_writes_a_handle(op) and id(op) not in reached)
        ),
        seen=tuple(op for op in ops if effect(op.type) == "seen"),
        draws=any(effect(op.type) == "draws" for op in ops),
        written={
            blob: tuple(op for op in found if _writes_a_handle(op))
            for blob, found in behind.items()
        },
    )


def writes_variable(op: Op) -> bool:
    """Whether the op changes the variable behind its first input."""
    return effect(op.type) == "variable"


def described(ops: tuple[Op, ...], most: int = 4) -> str:
    """Types of ops with the user's lines, each once: ``PrintV2 (train.py:12)``."""
    told = dict.fromkeys(f"{op.type} ({op.source})" if op.source else op.type for op in ops)
    more = f" and {len(told) - most} more" if len(told) > most else ""
    return ", ".join(list(told)[:most]) + more


def _writes_a_handle(op: Op) -> bool:
    return effect(op.type) in ("iterator", "table", "variable")


def _behind(net: Net, blob: str) -> Iterator[Op]:
    """Every stateful op that a handle leads to, through loops, branches and calls."""
    for op in net.readers.get(blob, ()):
        for place, name in enumerate(op.inputs):
            if name != blob:
                continue
            yield from (_behind_step_nets(op, place) if op.nets else (op,))
            # A loop hands its handles on; an identity is one more name.
            if op.type in LOOPS or op.type == "Identity":
                yield from _behind(net, op.outputs[place])


def _behind_step_nets(op: Op, place: int) -> Iterator[Op]:
    # A branch's first input says which one is taken.
    place -= op.type in BRANCHES
    for inner in op.nets.values():
        if 0 <= place < len(inner.inputs):
            yield from _behind(inner, inner.inputs[place])
