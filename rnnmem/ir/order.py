"""Traversal: an order in which ops may run, what follows from what, and dead-code elimination."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from rnnmem.errors import NetError
from rnnmem.ir.graph import Constant, Net, Op
from rnnmem.ir.op_table import POP, PUSH, acts, is_prunable, is_pure

_T = TypeVar("_T")


def topological(ops: Iterable[Op]) -> tuple[Op, ...]:
    """The ops in an order in which each follows what it reads and waits for; stable where free.

    Raises:
      NetError: the ops form a cycle; the message names one op on it.
    """
    ops = tuple(ops)
    if _listed_as_they_run(ops):
        return ops
    producer = {blob: op for op in ops for blob in op.outputs}
    by_name = {op.name: op for op in ops}
    done: set[str] = set()
    under_way: set[str] = set()
    ordered: list[Op] = []
    for root in ops:
        if root.name in done:
            continue
        needs = _needs(root, producer, by_name)
        if done.issuperset([needed.name for needed in needs]):  # nearly always
            done.add(root.name)
            ordered.append(root)
            continue
        under_way.add(root.name)
        stack = [(root, iter(needs))]
        while stack:
            op, needs = stack[-1]
            for needed in needs:
                if needed.name in done:
                    continue
                if needed.name in under_way:
                    raise NetError(f"the Net has a cycle through op {needed.name!r}")
                under_way.add(needed.name)
                stack.append((needed, iter(_needs(needed, producer, by_name))))
                break
            else:
                stack.pop()
                done.add(op.name)
                ordered.append(op)
    return tuple(ordered)


def _listed_as_they_run(ops: tuple[Op, ...]) -> bool:
    """Whether each op comes after all that it reads and waits for, and no blob is made twice."""
    to_come = {blob for op in ops for blob in op.outputs}
    if len(to_come) != sum([len(op.outputs) for op in ops]):
        return False
    waits = any([op.controls for op in ops])
    not_run = {op.name for op in ops} if waits else set()
    for op in ops:
        if not to_come.isdisjoint(op.inputs):
            return False
        to_come.difference_update(op.outputs)
        if waits:
            if not not_run.isdisjoint(op.controls):
                return False
            not_run.discard(op.name)
    return True


def _needs(op: Op, producer, by_name):
    """The ops that must run before ``op``."""
    needs = [producer[blob] for blob in op.inputs if blob in producer]
    if op.controls:
        needs += [by_name[name] for name in op.controls if name in by_name]
    return needs


def reached(
    starts: Iterable[_T], following: Callable[[_T], Iterable[_T]], *, deep: bool = False
) -> Iterator[_T]:
    """The starts and all that follows from them, each once.

    Whoever has seen enough stops asking.

    Args:
      starts: where to begin.
      following: what follows directly from one; where it is nothing, the way ends.
      deep: whether what was found last is followed first; else the nearest come first.
    """
    found: set[_T] = set()
    pending = deque(starts)
    take = pending.pop if deep else pending.popleft
    while pending:
        one = take()
        if one not in found:
            found.add(one)
            yield one
            pending.extend(following(one))


def needed_by(net: Net, name: str) -> list[str]:
    """Names of the ops that an op reads from or waits for."""
    producer, op = net.producer, net.op_by_name[name]
    read = [producer[blob].name for blob in op.inputs if blob in producer]
    return read + [one for one in op.controls if one in net.op_by_name] if op.controls else read


def waiting_for(net: Net, name: str) -> list[str]:
    """Names of the ops that read from an op or wait for it."""
    readers, op = net.readers, net.op_by_name[name]
    reading = [one.name for blob in op.outputs for one in readers.get(blob, ())]
    return [*reading, *(one.name for one in net.controlled.get(name, ()))]


def all_needed_by(net: Net, names: Iterable[str]) -> set[str]:
    """Names of the ops and of all that must have run before them."""
    return set(reached(names, partial(needed_by, net)))


def all_waiting_for(net: Net, names: Iterable[str]) -> set[str]:
    """Names of the ops and of all that must not run before them."""
    return set(reached(names, partial(waiting_for, net)))


def through_identities(net: Net, blob: str) -> str:
    """The blob that an Identity chain hands on."""
    producer = net.producer
    while (op := producer.get(blob)) is not None and op.type == "Identity":
        blob = op.inputs[0]
    return blob


def maker(net: Net, blob: str) -> Op | None:
    """The op that makes a blob; of an argument of a step net, the one that makes its next value."""
    following = net.outputs[net.inputs.index(blob)] if blob in net.inputs else blob
    return net.producer.get(through_identities(net, following))


def popped_at_once(net: Net, push: Op) -> Op | None:
    """The pop of what a push just added, if nobody else reads that list: no list keeps it."""
    readers = net.readers.get(push.outputs[0], ()) if push.type == PUSH else ()
    alone = len(readers) == 1 and net.fan_out(push.outputs[0]) == 1
    return readers[0] if alone and readers[0].type == POP else None


def constant_value(net: Net, blob: str) -> int | float | bool | tuple[int, ...] | None:
    """The number, or short vector of them, that a constant gives; None where it is none."""
    op = net.producer.get(blob)
    held = op.attributes.get("value") if op is not None and op.type == "Const" else None
    return held.value if isinstance(held, Constant) else None


def is_constant(net: Net, op: Op) -> bool:
    """Whether a graph optimizer computes the op before any run; what waits would undo that."""
    sources = map(net.producer.get, op.inputs)
    return op.type == "Const" or (
        bool(op.inputs) and all(source and is_constant(net, source) for source in sources)
    )


def without_dead_ops(net: Net) -> Net:
    """The Net, and every step net in it, without pure ops whose results nobody needs.

    Of a rewritten Net: an op that no table knows stays, since the verifier asks where it went.
    """
    return _without(net, is_pure)


def without_pruned_ops(net: Net) -> Net:
    """The Net, and every step net in it, without all that TensorFlow prunes before it runs.

    Of a function as it was traced, and of what is taken out of it before anything is planned. What
    stayed would be taken for a part of the step: a gradient loop, say, whose results go into an op
    that nobody reads, and which only the registry vouches for. That loop never runs, nor does what
    the forward loop saves for it; rewritten, the forward loop would pay for both.
    """
    return _without(net, is_prunable)


def _without(net: Net, may_go: Callable[[Op], bool]) -> Net:
    """The Net, and every step net in it, without ops that may go whose results nobody needs."""
    producer = net.producer
    wanted = [op.name for op in net.ops if not may_go(op)]
    wanted += net.control_outputs
    wanted += [producer[blob].name for blob in net.outputs if blob in producer]
    alive = all_needed_by(net, wanted)
    kept = []
    for op in net.ops:
        if op.name in alive and not op.nets:
            kept.append(op)
        elif op.name in alive:
            nets = {key: _without(inner, may_go) for key, inner in op.nets.items()}
            same = all(nets[key] is inner for key, inner in op.nets.items())
            kept.append(op if same else op.replace(nets=nets))
    if len(kept) == len(net.ops) and all(a is b for a, b in zip(kept, net.ops, strict=True)):
        return net
    return net.replace(ops=tuple(kept))


def order_shows(body: Net) -> bool:
    """Whether the order in which iterations run their ops can be seen in the results.

    Nothing orders the draws of a stateful random op over iterations that are under way together:
    TensorFlow's executor often runs the last one first. Such a loop keeps its own number of
    parallel iterations.
    """
    return any(acts(op) for _, net in body.walk() for op in net.ops)
