"""Sharing inside step nets, at any depth, forward and gradient step net of a loop together.

A forward loop has ended before its gradient loop starts (it hands over its lists), so the gradient
step net uses the forward one's storages again:

    forward step net     x ─► a ─► b ─► c           storages  //loop/body/a, //loop/body/b
    gradient step net    dc ─► db ─► da             the same two, and what more it needs

The step net's inputs and outputs are carried across the back edge and never pooled, nor is what an
accumulator keeps for the gradient (:mod:`rnnmem.storage.buffers`). What became of the names is
recorded on the loop op, and on its gradient op for both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from rnnmem.analysis.loops import LoopPair, inner_pairs, loop_pairs
from rnnmem.ir.graph import Net, Op, Path
from rnnmem.storage.buffers import Rules
from rnnmem.storage.plan import FORWARD_RENAME_MAP, GLOBAL, RENAME_MAP, Storage, StoragePlan

Plans = dict[Path, StoragePlan]
"""Path of a step net -> its plan, without those below it."""


def all_plans(
    net: Net, rules: Rules, plan: Callable[[Net, Rules], StoragePlan], parallel: bool
) -> StoragePlan:
    """Plans a Net and each step net below it; ``plan`` plans one Net alone."""
    plans: Plans = {}
    for path, inner in net.walk():
        one = plan(inner, rules.inside(path))
        plans[path] = _global(one, path) if path else one
    pairs = _pairs_by_path(net)
    for forward, gradient in pairs:
        if not (parallel and _alike(pairs, forward) > 1):
            plans[gradient] = _borrowed(plans[forward], plans[gradient])
    return _tree(net, Path(), plans)


def with_rename_maps(net: Net, plan: StoragePlan) -> Net:
    """The shared Net with the rename maps on its loop ops and on their gradient ops."""
    own: dict[tuple[str, ...], tuple] = {}
    for path, step in plan.walk():
        if path:
            renamed = [(blob, name) for blob, name in step.rename.items() if blob != name]
            own.setdefault(path[:-1], ())
            own[path[:-1]] += tuple((f"{path[-1]}/{blob}", name) for blob, name in renamed)
    forward_of = {gradient[:-1]: forward[:-1] for forward, gradient in _pairs_by_path(net)}
    return _marked(net, Path(), own, forward_of)


def forward_loops(net: Net) -> Iterator[tuple[Op, Op]]:
    """``(forward loop op, gradient loop op)`` at any depth."""
    for pair in loop_pairs(net, net, {}):
        yield from _ops_of(pair)


def _ops_of(pair: LoopPair) -> Iterator[tuple[Op, Op]]:
    for gradient in pair.gradients:
        yield pair.forward.op, gradient.loop.op
        for inner in inner_pairs(pair, gradient):
            yield from _ops_of(inner)


def _tree(net: Net, path: Path, plans: Plans) -> StoragePlan:
    steps = tuple(
        ((op.name, key), _tree(inner, path.child(op.name, key), plans))
        for op in net.ops
        for key, inner in op.nets.items()
    )
    return dataclasses.replace(plans[path], steps=steps)


def _global(plan: StoragePlan, path: Path) -> StoragePlan:
    """The plan with names of storages that no other Net has."""
    prefix = GLOBAL + path.text
    return dataclasses.replace(
        plan,
        storages=tuple(
            dataclasses.replace(one, name=f"{prefix}/{one.name}") for one in plan.storages
        ),
    )


def _borrowed(forward: StoragePlan, gradient: StoragePlan) -> StoragePlan:
    """The gradient's plan on the forward one's storages, the largest on the largest."""
    free: dict[tuple, list[Storage]] = {}
    for storage in sorted(forward.storages, key=lambda one: -one.bytes):
        free.setdefault(storage.kind, []).append(storage)
    taken = {}
    for storage in sorted(gradient.storages, key=lambda one: -one.bytes):
        if free.get(storage.kind):
            taken[storage.name] = free[storage.kind].pop(0).name
    return dataclasses.replace(
        gradient,
        storages=tuple(
            dataclasses.replace(one, name=taken.get(one.name, one.name))
            for one in gradient.storages
        ),
    )


def _pairs_by_path(net: Net) -> list[tuple[Path, Path]]:
    """Paths of the bodies of each forward loop and of its gradient loops, each gradient once."""
    found: dict[Path, Path] = {}

    def visit(pair: LoopPair, forward: Path, gradient: Path) -> None:
        for one in pair.gradients:
            ahead = forward.child(pair.forward.op.name, "body")
            back = gradient.child(one.loop.op.name, "body")
            found.setdefault(back, ahead)
            for inner in inner_pairs(pair, one):
                visit(inner, ahead, back)

    for path, inner in net.walk():
        for pair in loop_pairs(inner, inner, {}):
            visit(pair, path, path)
    return [(forward, gradient) for gradient, forward in found.items()]


def _alike(pairs: list[tuple[Path, Path]], forward: Path) -> int:
    """How many gradient loops a forward loop has: they may run at the same time."""
    return sum(one == forward for one, _ in pairs)


def _marked(
    net: Net,
    path: Path,
    own: Mapping[tuple[str, ...], tuple],
    forward_of: Mapping[tuple[str, ...], tuple[str, ...]],
) -> Net:
    ops = []
    for op in net.ops:
        if op.nets:
            here = path.child(op.name)
            attributes = dict(op.attributes)
            if own.get(here):
                attributes[RENAME_MAP] = own[here]
            if own.get(forward_of.get(here, ())):
                attributes[FORWARD_RENAME_MAP] = own[forward_of[here]]
            nets = {
                key: _marked(inner, here.child(key), own, forward_of)
                for key, inner in op.nets.items()
            }
            op = op.replace(attributes=attributes, nets=nets)
        ops.append(op)
    return net.replace(ops=tuple(ops))
