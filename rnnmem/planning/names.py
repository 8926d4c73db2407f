"""What the loops that a plan tells of are called."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator

from rnnmem.ir.graph import Net
from rnnmem.ir.names import Names, words_of
from rnnmem.ir.origins import origins_of
from rnnmem.planning.plan import Plan


def names_in(plan: Plan) -> Names:
    """The names of the loops that a plan tells of."""
    loops = list(plan.every_loop())
    functions = {one.path[-1]: one.function for one in loops if one.function}
    around = dict.fromkeys(loop for one in loops for loop in (*one.path, *one.gradients))
    return Names(around, functions, ops_of(plan), plan.origins)


def with_origins(plan: Plan, net: Net, in_use: Collection[str]) -> Plan:
    """The plan that knows where the names of its ops come from; see `rnnmem.ir.origins`."""
    return dataclasses.replace(plan, origins=origins_of(net, _decided_on(plan), in_use))


def _decided_on(plan: Plan) -> Iterator[str]:
    """Names of the ops and blobs that decisions hold, and no other word of a sentence on them."""
    for _, decided in plan.decisions:
        for one in decided:
            yield from _texts(dataclasses.astuple(one))
    for inner in plan.nested:
        yield from _decided_on(inner.plan)


def _texts(held: object) -> Iterator[str]:
    if isinstance(held, str):
        yield held
    elif isinstance(held, (tuple, list)):
        for one in held:
            yield from _texts(one)


def ops_of(plan: Plan) -> Iterator[str]:
    """Names of the ops and blobs that a plan tells of."""
    for loop in plan.every_loop():
        yield from (one.blob for one in loop.residuals)
    for _, decided in plan.decisions:
        for one in decided:
            yield from words_of(one.sentence)
    for inner in plan.nested:
        yield from ops_of(inner.plan)
