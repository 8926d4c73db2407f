"""What became of what the user asked to keep or to recompute, as notes of the plan."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from rnnmem.ir.graph import Net, Op, Path
from rnnmem.ir.names import without_counter
from rnnmem.ir.op_table import LOOPS, POP, SAME_BUFFER, facts, why_never_twice
from rnnmem.ir.requests import KEEP, requests_of
from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.passes.rematerialise.select import NOT_FOR_LESS
from rnnmem.passes.straight_line.segments import Line
from rnnmem.planning.plan import Plan

_NAMED = 3
"""Values of one outcome that are named; more are counted."""
_KEPT = "kept outside of loops, as you asked"
_NOTHING = "nothing to keep or to recompute, as no gradient reads it"
_REFUSED = "not recomputed, though you asked for it: {}"
_NOT_OUTSIDE = (
    "no ops around it can run again near its gradient (too near, or a sum's order depends on it)"
)


def request_notes(net: Net, plan: Plan, passes: Collection[str]) -> tuple[str, ...]:
    """A note for each outcome of requests that no table tells, with the values it is of.

    Args:
      net: the Net that the plan is for, as it was normalised.
      plan: the decisions.
      passes: names of those that may be used.
    """
    found: dict[str, list[str]] = {}
    for name, told in _outcomes(net, plan, passes):
        found.setdefault(told, []).append(name)
    return tuple(f"{told}: {_some(names)}" for told, names in found.items())


def _outcomes(net: Net, plan: Plan, passes: Collection[str]) -> Iterator[tuple[str, str]]:
    """``(value, what became of it)`` of every request about which there is something to say."""
    loops = {loop.path: loop for loop in plan.every_loop()}
    steps = {Path(): plan, **dict(_nested(plan, ()))}
    remaining = {
        _bare(blob)
        for _, inner in net.walk()
        for blob in requests_of(inner)
        if blob in inner.producer
    }
    for path, inner in net.walk():
        asked = requests_of(inner)
        if not asked or any(op.type == POP for op in inner.ops):
            continue
        if path in steps:
            residuals = set(inner.once(Line).residuals)
            again = {op for region in steps[path].of("straight_line") for op in region.ops}
        for blob, request in asked.items():
            op = inner.producer.get(blob)
            if op is not None and (op.type in SAME_BUFFER or op.type == "Const"):
                continue
            is_pruned = op is None and blob not in inner.inputs
            if is_pruned and _bare(blob) in remaining:
                continue  # Keras calls a cell once more for its shapes
            if path in steps:
                told = _outside(blob, op, request, residuals, again)
            else:
                told = _in_loop(net, path, blob, request, loops)
            needed = "straight_line" if path in steps else "rematerialise"
            if told and request != KEEP and needed not in passes:
                told = _REFUSED.format(f"{needed} is not among the passes allowed")
            if told:
                yield f"{op.name} ({op.source})" if op is not None and op.source else blob, told


def _bare(blob: str) -> str:
    """What an op calls a blob wherever it is traced: its name without scopes and counter."""
    return without_counter(blob.partition(":")[0].rpartition("/")[2])


def _nested(plan: Plan, around: tuple[str, ...]) -> Iterator[tuple[Path, Plan]]:
    for one in plan.nested:
        path = Path((*around, *one.path))
        yield path, one.plan
        yield from _nested(one.plan, path)


def _outside(blob: str, op: Op | None, request: str, residuals: set[str], again: set[str]) -> str:
    """What became of a blob of a step that runs once; empty where a decision tells it."""
    if op is None or blob not in residuals:
        return _NOTHING
    if request == KEEP:
        return _KEPT
    if op.name in again:
        return ""
    return _REFUSED.format(why_never_twice(op) if facts(op) is None else _NOT_OUTSIDE)


def _in_loop(
    net: Net, path: Path, blob: str, request: str, loops: Mapping[tuple[str, ...], LoopPlan]
) -> str:
    """What became of a blob of a loop's step net, or of a branch in it."""
    branch = None
    while path:
        around = Path(path[:-2]).at(net)
        op = around.op_by_name[path[-2]]
        if op.type in LOOPS and path[-1] == "cond":
            return _NOTHING  # its blobs are no states: a condition has no gradient
        loop = loops.get(_loops(net, path)) or loops.get(tuple(path[:-1]))  # or in a branch
        if op.type in LOOPS and loop is not None:
            return _of_loop(loop, path.at(net), blob, request, branch)
        branch, path = op, Path(path[:-2])
    return _NOTHING


def _of_loop(loop: LoopPlan, body: Net, blob: str, request: str, branch: Op | None) -> str:
    asked = {blob} if branch is None else set(branch.outputs)
    if request == KEEP:
        carried = zip(body.inputs, body.outputs, strict=True)
        held = {argument for argument, result in carried if result == blob} | {blob}
        is_held = loop.closed or branch is not None or not held.isdisjoint(loop.saved)
        return "" if is_held else _NOTHING
    refused = [one.refused for one in loop.requests if one.blob in asked and one.refused]
    if refused:
        return _REFUSED.format(refused[0])
    if loop.closed:
        return _NOTHING if loop.closed == NOT_FOR_LESS else _REFUSED.format(loop.closed)
    return "" if asked.isdisjoint(loop.saved) else _REFUSED.format("it stays saved")


def _loops(net: Net, path: Path) -> tuple[str, ...]:
    """Names of the loops along a path."""
    found = []
    for name, key in zip(path[::2], path[1::2], strict=True):
        op = net.op_by_name[name]
        found += [name] if op.type in LOOPS else []
        net = op.nets[key]
    return tuple(found)


def _some(names: list[str]) -> str:
    told = list(dict.fromkeys(names))
    more = f" and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
    return ", ".join(told[:_NAMED]) + more
