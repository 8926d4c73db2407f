"""What truly becomes of each blob: its decision, seen together with the segments of its loop.

A decision says what an iteration keeps. Under segments no iteration of the forward loop keeps it:

    decision saved, a state of the segments     checkpointed: kept where a segment begins
    decision saved, wanted of a segment         replayed: its segment runs again, and keeps it
    meanwhile any other                               as the decision says
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from rnnmem.passes.checkpoint.decision import Segments
from rnnmem.passes.encode.decision import SAVED
from rnnmem.passes.rematerialise.decision import LoopPlan, ResidualDecision
from rnnmem.planning.plan import Plan
from rnnmem.sizes import counted

CHECKPOINTED, REPLAYED = "checkpointed", "replayed"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What becomes of one blob.

    Attributes:
      word: a decision of `rnnmem.planning.plan`, ``checkpointed`` or ``replayed``.
      reason: why, or how, in words.
    """

    word: str
    reason: str


def outcome(decision: ResidualDecision, loop: LoopPlan, around: Segments | None = None) -> Outcome:
    """What becomes of a blob.

    Args:
      decision: the decision on the blob.
      loop: the decisions for its loop, one that is rewritten.
      around: segments of a loop around it that run this loop again.
    """
    cut = loop.segments
    if cut is not None and decision.blob in cut.states:
        return of_states(cut, decision.blob)
    if not decision.is_kept:
        return Outcome(decision.decision, decision.reason)
    if cut is not None and decision.blob in cut.wanted:
        return Outcome(REPLAYED, replay(cut) + _form(decision))
    if around is not None:
        return Outcome(REPLAYED, f"the loop around it: {replay(around)}{_form(decision)}")
    return Outcome(decision.decision, decision.reason)


def checkpoints(cut: Segments) -> str:
    """Where states are kept."""
    if cut.online:
        return (
            f"kept at the start of {cut.slots} segments of {counted(cut.length, 'iteration')} at "
            "once, however many there are"
        )
    if cut.slots:
        return (
            f"kept at the start of at most {cut.slots + 1} of {cut.count} segments of "
            f"{counted(cut.length, 'iteration')} at once"
        )
    return f"kept at the start of each segment{_of(cut)}"


def replay(cut: Segments) -> str:
    """How what an iteration saves is had again."""
    times = f" ({cut.replays:.1f} times on average)" if cut.slots else ""
    return f"runs again{times} with its segment{_of(cut)}, kept for that segment alone{_tail(cut)}"


def outcomes(plan: Plan) -> Mapping[tuple[str, ...], Mapping[str, Outcome]]:
    """Names of the loops around a step net -> blob -> what becomes of it.

    In a loop that is left as it was, every blob is saved that the original saves.
    """
    return {loop.path: _of_loop(loop, around) for loop, around in every_loop(plan)}


def of_states(cut: Segments, blob: str = "") -> Outcome:
    """What becomes of the states that segments begin with.

    Args:
      cut: the segments.
      blob: one state of them, which the gradient may read too; empty: those that it never reads.
    """
    tail = _tail(cut) if blob in cut.wanted else ""
    return Outcome(CHECKPOINTED, f"state, {checkpoints(cut)}{tail}")


def other_states(loop: LoopPlan) -> ResidualDecision | None:
    """The states that segments begin with and the gradient never reads, as one row of a table."""
    if loop.segments is None:
        return None
    sizes = {decision.blob: decision.bytes or 0 for decision in loop.residuals}
    others = [blob for blob in loop.segments.states if blob not in sizes]
    if not others:
        return None
    size = loop.segments.bytes - sum(sizes.get(blob, 0) for blob in loop.segments.states)
    name = "state" if len(others) == 1 else counted(len(others), "state")
    return ResidualDecision(
        others[0], name, "", (), size if size > 0 else None, SAVED, False, "", ""
    )


def every_loop(
    plan: Plan, names: tuple[str, ...] = ()
) -> Iterator[tuple[LoopPlan, Segments | None]]:
    """Every loop of a plan, and the segments of a loop around it that run it again.

    Args:
      plan: the plan.
      names: of the loops around its Net.
    """
    for loop in plan.loops:
        yield from _flat(loop, None, names)
    for one in plan.nested:
        yield from every_loop(one.plan, (*names, *one.loops))


def _of_loop(loop: LoopPlan, around: Segments | None) -> dict[str, Outcome]:
    if loop.closed:
        left = Outcome(SAVED, f"left as it was: {loop.closed}")
        return {decision.blob: left for decision in loop.residuals if decision.was_saved}
    cut = loop.segments
    return {
        **({} if cut is None else {state: of_states(cut, state) for state in cut.states}),
        **{decision.blob: outcome(decision, loop, around) for decision in loop.residuals},
    }


def _flat(
    loop: LoopPlan, around: Segments | None, names: tuple[str, ...]
) -> Iterator[tuple[LoopPlan, Segments | None]]:
    yield (dataclasses.replace(loop, path=(*names, *loop.path)) if names else loop), around
    for inner in loop.inner:
        if loop.closed:
            inner = dataclasses.replace(inner, closed=inner.closed or loop.closed)
        yield from _flat(inner, _running_again(loop.segments, inner) or around, names)


def _running_again(cut: Segments | None, inner: LoopPlan) -> Segments | None:
    """The segments, where what they want is made by the inner loop, so that it runs again."""
    if cut is None:
        return None
    made = {blob.rpartition(":")[0] for blob in cut.wanted}
    return cut if inner.path[-1] in made else None


def _form(decision: ResidualDecision) -> str:
    return "" if decision.decision == SAVED else f"; {decision.decision}"


def _tail(cut: Segments) -> str:
    return f"; from iteration {cut.end} on saved as it runs" if cut.end else ""


def _of(cut: Segments) -> str:
    longer = f", each {cut.growth} longer than the one before" if cut.growth else ""
    return f" of {counted(cut.length, 'iteration')}{longer}"
