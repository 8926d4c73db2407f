"""What a drawing tells of each op of one variant: whether it is shown, its decision, and why."""

from __future__ import annotations

from collections.abc import Mapping

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.marks import AGAIN, CHUNKS, END, KEEPS, REFILLS, SAVES_TAIL, SEGMENTS
from rnnmem.ir.op_table import LOOPS, POP, PUSH, READ
from rnnmem.passes.encode.decision import SAVED, SAVED_AS
from rnnmem.passes.rematerialise.decision import (
    HOISTED,
    INVARIANT,
    RECOMPUTED,
    ResidualDecision,
)
from rnnmem.planning.outcomes import CHECKPOINTED, Outcome, of_states, outcomes
from rnnmem.reports.kinds import Kinds, Place, is_ours
from rnnmem.reports.popped import is_handed_on, is_kept_alive, is_refilled, popped

NOTHING = Outcome("", "")
_BARRIER = "EnsureShape"
_EVERY = Outcome(SAVED, "kept by the forward loop for every iteration")
_AGAIN = Outcome(RECOMPUTED, "was saved before; the gradient computes it again")
_IN_SEGMENT = "runs again with its segment; the gradient reads only what is made of it"
_VARIABLE = Outcome(INVARIANT, "a variable, which is the same in every iteration")


class Told:
    """One variant of a function.

    Args:
      side: ``before`` or ``after``.
      kinds: sorts what is in it.
    """

    def __init__(self, side: str, kinds: Kinds):
        self.side = side
        self._kinds = kinds
        self._popped = popped(kinds.net)
        self._outcomes = outcomes(kinds.plan)
        self._residuals: Mapping[Place, Mapping[str, ResidualDecision]] = {
            loop.path: {decision.blob: decision for decision in loop.residuals}
            for loop in kinds.plan.every_loop()
        }

    def keeps_books(self, loops: Place, net: Net, op: Op) -> bool:
        """Whether rnnmem added the op, and it neither computes nor holds anything of the user's."""
        if is_kept_alive(net, op):
            return True
        if self._kinds.replayed(loops) and op.type == _BARRIER and op.inputs[0] in net.inputs:
            return True
        if not is_ours(op.name) or op.nets or op.type == POP or self._is_in_chunks(loops):
            return False
        if self._kinds.replayed(loops):  # there what runs again has the user's names
            return True
        return not self._kinds.runs_again(loops, op.name)

    def of_op(self, loops: Place, net: Net, op: Op) -> Outcome:
        """What becomes of what an op writes."""
        for blob in op.outputs:
            told = self.of_blob(loops, blob)
            if told.word:
                return told
        if op.type == POP:
            return self._of_pop(loops, net, op)
        if op.attributes.get(SEGMENTS) == KEEPS:
            return self._checkpoints(loops)
        if op.attributes.get(SEGMENTS) == REFILLS:
            return Outcome(RECOMPUTED, self._kinds.replay_of(loops).reason)
        if op.attributes.get(SEGMENTS) == SAVES_TAIL:
            return Outcome(SAVED, f"from iteration {op.attributes[END]} on, as the loop runs")
        if op.type == READ and loops:
            return _VARIABLE
        if self._kinds.runs_again(loops, op.name) and not op.nets:
            return self._run_again(loops, net, op)
        return NOTHING

    def runs_again(self, loops: Place, op: Op) -> bool:
        """Whether an op computes once more what the original computes once."""
        return self._kinds.runs_again(loops, op.name)

    def of_input(self, loops: Place, net: Net, blob: str) -> Outcome:
        """What becomes of an argument of a step net."""
        replay = self._kinds.replayed(loops)
        return replay if replay and _is_kept(net, blob) else self.of_blob(loops, blob)

    def of_blob(self, loops: Place, blob: str) -> Outcome:
        """What becomes of a blob of a forward loop; before, what TensorFlow does with it."""
        told = self._outcomes.get(loops, {}).get(blob, NOTHING)
        if self.side == "after":
            return told
        decision = self._residuals.get(loops, {}).get(blob)
        if decision is None or (decision.is_kept and not decision.was_saved):
            return NOTHING
        if decision.decision in (INVARIANT, HOISTED):
            return told
        becomes = f"; rnnmem: {told.word}, {told.reason}" if told.word not in ("", SAVED) else ""
        return Outcome(SAVED, _EVERY.reason + becomes)

    def type_of(self, loops: Place, net: Net, op: Op) -> str:
        """What an op is called."""
        if op.type == POP:
            if is_refilled(net, op):
                return "replayed blob"
            return "saved blob" if self._of_pop(loops, net, op).word else op.type
        named = {KEEPS: "checkpoint", REFILLS: "replay of a segment", SAVES_TAIL: "tail"}
        return named.get(op.attributes.get(SEGMENTS, b""), op.type)

    def opens(self, loops: Place, op: Op) -> Place | None:
        """The step net that a click on an op leads to."""
        if op.type in LOOPS:
            return (*loops, op.name)
        if op.attributes.get(SEGMENTS) != REFILLS:
            return None
        inside = op.nets["then_branch"].ops
        again = next((one for one in inside if one.attributes.get(SEGMENTS) == AGAIN), None)
        return None if again is None else (*loops, again.name)

    def _of_pop(self, loops: Place, net: Net, op: Op) -> Outcome:
        if is_refilled(net, op):
            return self._kinds.replay_of(loops)
        found = self._popped.get((loops, op.name))
        if found is None:
            return _EVERY if is_handed_on(net, op) else NOTHING
        if self.side == "before":
            return _EVERY
        told = self._outcomes.get(found[0], {}).get(found[1], _EVERY)
        return told if told.word in SAVED_AS.values() else _EVERY

    def _run_again(self, loops: Place, net: Net, op: Op) -> Outcome:
        replay = self._kinds.replayed(loops)
        if replay is None:
            return _AGAIN
        if any(_is_kept(net, blob) for blob in op.outputs):
            return replay
        return Outcome(RECOMPUTED, _IN_SEGMENT)

    def _checkpoints(self, loops: Place) -> Outcome:
        """What a branch keeps: of a forward loop, or on the way to a segment that runs again."""
        way = self._kinds.segments_of(loops)
        if way is not None:
            return of_states(way)
        kept = self._outcomes.get(loops, {}).values()
        return next((one for one in kept if one.word == CHECKPOINTED), NOTHING)

    def _is_in_chunks(self, loops: Place) -> bool:
        op = self._kinds.loop_at(loops)
        return op is not None and CHUNKS in op.attributes


def _is_kept(net: Net, blob: str) -> bool:
    """Whether a step net pushes the blob, in whatever form, into a list that it hands on."""
    for op in net.readers.get(blob, ()):
        if op.type == PUSH:
            if op.outputs[0] in net.outputs:
                return True
        elif is_ours(op.name) and any(_is_kept(net, one) for one in op.outputs):
            return True
    return False
