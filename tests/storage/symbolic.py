"""Runs Nets on symbols: a value is the tree of ops that made it, kept under its storage's name.

An op that reads a storage which was overwritten too early computes another symbol, so whether two
Nets give the same numbers is decided without any numbers.
"""

from __future__ import annotations

import random

from rnnmem.analysis.versions import SsaVersions, ssa
from rnnmem.ir.graph import Net, Op


def run(net: Net, order: list[int] | None = None, keep_all: bool = False) -> dict[str, int]:
    """Name -> symbol when the Net has run; with ``keep_all`` of each op's outputs instead."""
    past = ssa(net)
    values = {blob: hash(("given", blob)) for blob in net.inputs}
    found = {}
    for index in range(len(past.ops)) if order is None else order:
        op = past.ops[index]
        results = compute(op, [values[blob] for blob in op.inputs])
        values.update(results)
        found.update({(op.name, place): value for place, value in enumerate(results.values())})
    return found if keep_all else {blob: values[blob] for blob in net.outputs}


def compute(op: Op, inputs: list[int]) -> dict[str, int]:
    key = (op.name, op.type, tuple(inputs))
    return {blob: hash((place, *key)) for place, blob in enumerate(op.outputs)}


def interleaved(past: SsaVersions, seed: int) -> list[int]:
    """An order in which threads may run the ops: any that data and control edges allow."""
    draw = random.Random(seed)
    waits = [len(others) for others in past.before]
    ready = [index for index, count in enumerate(waits) if not count]
    found = []
    while ready:
        index = ready.pop(draw.randrange(len(ready)) if draw.random() < 0.7 else -1)
        found.append(index)
        for other in past.after[index]:
            waits[other] -= 1
            if not waits[other]:
                ready.append(other)
    return found


def assert_same_numbers(before: Net, after: Net, *, parallel: bool = False) -> None:
    expected = run(before, keep_all=True)
    assert run(after, keep_all=True) == expected
    assert run(after) == run(before)
    if parallel:
        past = ssa(before)
        for seed in range(20):
            assert run(after, interleaved(past, seed), keep_all=True) == expected
