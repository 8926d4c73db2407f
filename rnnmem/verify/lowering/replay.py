"""The Net without segments: each iteration's states are popped, and the step's ops run on them.

    forward step net     push x, x' of each iteration
    gradient step net    pop x, x';  step(x), whose ops give the residuals;  same(next of step, x')

where x' is what the forward loop goes on with. That a replay goes on so too is what `SAME` claims.
The same of a residual that the last iterations push themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from rnnmem.ir.builders import empty_list, number, pop, push
from rnnmem.ir.editor import LoopEditor, NetEditor
from rnnmem.ir.graph import Constant, Net, Op

SAME = "rnnmem.Same"
"""An op type of the verifier alone: its two inputs must always hold the same value."""

Demand = Callable[[object, str], None]
"""Refuses the Net with a sentence where something does not hold."""


@dataclasses.dataclass(frozen=True)
class Step:
    """A loop that runs the forward loop's step again.

    Attributes:
      loop: the loop.
      states: its argument -> the forward argument whose value it holds.
      given: its argument -> the blob of the gradient step net that it always is.
      keeping: names of the branches in it that keep states.
      residuals: pop of the gradient step net -> the blob of the loop's body that it gives.
      pushed: pop of the gradient step net -> the blob of the forward step net that it gives for the
        last iterations, which do not run again.
    """

    loop: Op
    states: Mapping[str, str]
    given: Mapping[str, str]
    keeping: frozenset[str] = frozenset()
    residuals: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pushed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def body(self) -> Net:
        """The step net."""
        return self.loop.nets["body"]

    def following(self, argument: str) -> str:
        """What an argument becomes."""
        return self.body.outputs[self.body.inputs.index(argument)]

    def ops(self) -> list[Op]:
        """The ops that the residuals and the states take, in order."""
        needed: set[str] = set()
        pending = [*self.residuals.values(), *map(self.following, self.states)]
        while pending:
            op = self.body.producer.get(pending.pop())
            if op is not None and op.name not in needed:
                needed.add(op.name)
                pending += op.inputs
        return [op for op in self.body.ops if op.name in needed]


@dataclasses.dataclass(frozen=True)
class Cut:
    """The loops of one pair that were cut into segments.

    Attributes:
      forward: the forward loop.
      gradient: the gradient loop.
      refill: the branch of its step net that replays a segment.
      changed: the arguments of the gradient step net that the branch changes.
      steps: the loops that run iterations again, the replay first.
    """

    forward: Op
    gradient: Op
    refill: Op
    changed: frozenset[str]
    steps: tuple[Step, ...]


def flattened(outer: Net, cut: Cut, demand: Demand) -> Net:
    """The Net in which nothing is replayed."""
    editor = NetEditor(outer)
    forward, gradient = LoopEditor(editor, cut.forward), LoopEditor(editor, cut.gradient)
    body = gradient.body
    popped = _states_of_each_iteration(editor, forward, gradient, cut)
    following = dict(zip(forward.body.original.inputs, forward.body.original.outputs, strict=True))
    gone = [cut.refill]
    for step in cut.steps:
        states = {argument: popped[source] for argument, source in step.states.items()}
        names = _cloned(step, {**states, **step.given}, body, demand)
        for pop_name, blob in step.residuals.items():
            gone.append(body.ops[pop_name])
            demand(blob in names, "a residual comes from nowhere")
            body.rename(gone[-1].outputs[1], names[blob])
            if pop_name in step.pushed:
                pair = names[blob], popped[step.pushed[pop_name]]
                body.add(SAME, pair, (), {}, name=f"{step.loop.name}/same/{pop_name}")
        for argument, source in step.states.items():
            demand(step.following(argument) in names, "a state comes from nowhere")
            pair = names[step.following(argument)], popped[following[source]]
            body.add(SAME, pair, (), {}, name=f"{step.loop.name}/same/{argument}")
    for argument in cut.changed:
        gradient.set_next(argument, argument)
    _take_out(body, gone, demand)
    forward.finish()
    gradient.finish()
    return editor.net()


def _states_of_each_iteration(
    editor: NetEditor, forward: LoopEditor, gradient: LoopEditor, cut: Cut
) -> dict[str, str]:
    """Blob of the forward step net -> what is popped for it, the states before and after a step."""
    net, found = cut.forward.nets["body"], {}
    sources = dict.fromkeys(source for step in cut.steps for source in step.states.values())
    states = (one for source in sources for one in (source, net.outputs[net.inputs.index(source)]))
    saved = (blob for step in cut.steps for blob in step.pushed.values())
    for blob in dict.fromkeys((*states, *saved)):
        kind = net.blobs[blob]
        start = empty_list(editor, kind.dtype, kind.shape, _constant, name=f"kept/{blob}")
        kept, outer = forward.add_variable(start, "kept")
        forward.set_next(kept, push(forward.body, kept, blob, name=f"keep/{blob}"))
        held, _ = gradient.add_variable(outer, "kept")
        shape = number(gradient.body, -1, _constant)
        rest, found[blob] = pop(
            gradient.body, held, kind.dtype, kind.shape, shape, name=f"take/{blob}"
        )
        gradient.set_next(held, rest)
    return found


def _constant(value: Any, dtype: str) -> Constant:
    held = tuple(value) if isinstance(value, list) else value
    return Constant(dtype, (), repr(held).encode(), held)


def _cloned(step: Step, names: dict[str, str], body: NetEditor, demand: Demand) -> dict[str, str]:
    """Adds the step's ops to the gradient step net; blob of the step -> its name there."""
    ops = step.ops()
    stem = step.loop.name
    for op in ops:
        for blob in op.outputs:
            kind = step.body.blobs[blob]
            names[blob] = body.new_blob(f"{stem}/{blob}", kind.dtype, kind.shape)
    for op in ops:
        demand(names.keys() >= set(op.inputs), f"{op.name!r} reads what is not known")
        name = body.fresh(f"{stem}/{op.name}")
        body.ops[name] = op.replace(
            name=name,
            inputs=tuple(names[blob] for blob in op.inputs),
            outputs=tuple(names[blob] for blob in op.outputs),
            controls=(),
        )
    return names


def _take_out(body: NetEditor, gone: list[Op], demand: Demand) -> None:
    """Takes ops out of whose results nobody reads more than an element that is renamed."""
    lost = {blob for op in gone for blob in op.outputs if body.resolve(blob) == blob}
    handing_on = [
        op
        for op in body.ops.values()
        if op.type == "Identity" and op.inputs[0] in lost
        # to a next iteration, and to no op of this one
        if not body.original.readers.get(op.outputs[0])
    ]
    lost |= {op.outputs[0] for op in handing_on}
    for op in (*gone, *handing_on):
        body.remove(op.name)
    read = {blob for op in body.ops.values() for blob in op.inputs} | set(body.outputs)
    demand(read.isdisjoint(lost), "what a branch changes is read otherwise")
