"""``explain``: one table of what the original saves, what becomes of it, and why."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator

from rich.table import Table

from rnnmem.ir.graph import kind_text
from rnnmem.passes.checkpoint.decision import Segments
from rnnmem.passes.encode.decision import SAVED, SAVED_AS
from rnnmem.passes.rematerialise.decision import LoopPlan, ResidualDecision
from rnnmem.planning.plan import Plan
from rnnmem.reports.outcomes import (
    CHECKPOINTED,
    REPLAYED,
    Outcome,
    every_loop,
    of_states,
    other_states,
    outcome,
)
from rnnmem.reports.sentences import beside_loops
from rnnmem.sizes import format_bytes
from rnnmem.tables import WIDTH, as_html, plain_text, table_of, terminal_width


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A report on one traced function; ``print`` it.

    Attributes:
      plan: the decisions that it tells of.
      name: the function's name.
      frontier: the plan and its alternatives, from the fastest to the smallest.
    """

    plan: Plan
    name: str
    frontier: tuple[Plan, ...] = ()

    def __str__(self) -> str:
        """The report as text that fits the terminal."""
        return self.text()

    __repr__ = __str__

    def text(self, width: int | None = None) -> str:
        """The report as text.

        Args:
          width: columns; None: those of the terminal; where there is none, only tables fold.
        """
        width = width or terminal_width()
        return plain_text(self._parts(), width or WIDTH, wraps=width is not None)

    def _repr_html_(self) -> str:
        """The report in a notebook."""
        return as_html(self._parts())

    def _parts(self) -> Iterator[Table | str]:
        yield from _summary(self.plan, self.name)
        yield from _tables(list(every_loop(self.plan)))
        decided = list(beside_loops(self.plan))
        if decided:
            yield _decisions(decided)
        if self.frontier:
            yield _alternatives(self.frontier, self.plan)


def explain(plan: Plan, *, name: str, frontier: tuple[Plan, ...] = ()) -> Explanation:
    """The report on a plan, and on those that could run instead of it."""
    return Explanation(plan, name, frontier)


def _summary(plan: Plan, name: str) -> list[str]:
    lines = [f"{name}: {_verdict(plan)}"]
    if plan.original_peak is not None or plan.predicted_peak is not None:
        before, after = plan.told_peaks
        lines.append(f"predicted peak above resident: {before} as it was, {after} now")
    if not plan.changes_nothing:
        lines.append(f"estimated step time: {plan.told_time}")
    lines += [f"note: {note}" for note in plan.notes]
    return [*lines, *(line for loop in plan.every_loop() for line in loop.sentences)]


def _verdict(plan: Plan) -> str:
    changed = sum(not loop.closed for loop, _ in every_loop(plan))
    chunked = sum(not loss.closed for loss in plan.losses)
    regions = len(plan.at_every_depth("straight_line"))
    loops = any(True for _ in plan.every_loop())
    told = [f"{changed} loop{'s' if changed != 1 else ''} rewritten"] if changed else []
    if chunked:
        told.append(f"{chunked} softmax loss{'es' if chunked != 1 else ''} by chunks of tokens")
    if regions:
        told.append(f"{regions} region{'s' if regions != 1 else ''} outside of loops run again")
    if told:
        return ", ".join(told)
    if loops and plan.changes_nothing:
        return "nothing was to be gained, the function runs as it was"
    if loops:
        return "0 loops rewritten"
    if plan.notes:
        return "left as it was"
    return "no loop with a gradient was found, nothing was to be done"


def _tables(loops: list[tuple[LoopPlan, Segments | None]]) -> Iterator[Table | str]:
    """What becomes of each blob, by the bytes that it has in an iteration; equal rows are one."""
    for loop, around in loops:
        if not loop.residuals:
            continue
        yield f"{loop.label}, {_iterations(loop)}"
        table = table_of(("bytes", "each iteration", "line", "decision", "why"), ("bytes",))
        rows = Counter(
            _row(decision, loop, outcome(decision, loop, around))
            for decision in sorted(loop.residuals, key=lambda decision: -(decision.bytes or 0))
        )
        others = None if loop.closed else other_states(loop)
        if others is not None and loop.segments is not None:
            rows[_row(others, loop, of_states(loop.segments))] += 1
        for (size, what, *rest), count in rows.items():
            table.add_row(size, f"{count} x {what}" if count > 1 else what, *rest)
        yield table


def _iterations(loop: LoopPlan) -> str:
    return "? iterations" if loop.trips is None else f"{loop.trips} iterations"


def _decisions(decided: list[tuple[str, str, str]]) -> Table:
    """What other passes decided, and where."""
    table = table_of(("pass", "where", "decision"))
    for name, place, told in decided:
        table.add_row(name, place or "the function", told)
    return table


def _alternatives(frontier: tuple[Plan, ...], chosen: Plan) -> Table:
    """Plans from the fastest to the smallest, the chosen one marked."""
    numbers = ("predicted peak", "step time", "loops keep")
    table = table_of(("plan", *numbers, "what changes"), numbers)
    for number, plan in enumerate(frontier, 1):
        same = (plan.loops, plan.nested) == (chosen.loops, chosen.nested)
        mine = same or plan.changes_nothing and chosen.changes_nothing
        table.add_row(
            f"{number} <- chosen" if mine else str(number),
            format_bytes(plan.predicted_peak),
            f"{plan.slowdown:.2f}x",
            _kept(plan),
            _what_changes(plan),
        )
    return table


def _kept(plan: Plan) -> str:
    """Bytes that the rewritten loops of the outermost Net keep at once, by the planner's count."""
    opened = [loop for loop in plan.loops if not loop.closed]
    if not opened:
        return ""
    known = all(one.trips is not None for loop in opened for one in loop.flat())
    return format_bytes(sum(loop.total()[0] for loop in opened) if known else None)


def _what_changes(plan: Plan) -> str:
    """What becomes of each rewritten loop; those of which the same is told stand together."""
    told: dict[str, list[str]] = {}
    for loop, around in every_loop(plan):
        if not loop.closed:
            told.setdefault(_changes(loop, around), []).append(loop.path[-1])
    if not told:
        return "nothing, the original" if plan.changes_nothing else _edges(plan)
    if len(told) == 1:
        return next(iter(told))
    return "; ".join(f"{', '.join(names)}: {what}" for what, names in told.items())


def _changes(loop: LoopPlan, around: Segments | None) -> str:
    words = Counter(outcome(decision, loop, around).word for decision in loop.residuals)
    cut = loop.segments
    parts = [f"{_blobs(words[SAVED])} saved"] if words[SAVED] or cut is None else []
    forms = Counter(one.techniques for one in loop.encodings)
    if cut is not None:
        parts.append(_checkpoints(cut))
    parts += [f"{count} {SAVED_AS[techniques]}" for techniques, count in sorted(forms.items())]
    parts.append(f"{len(loop.recomputed)} ops run again")
    if loop.parallel_iterations > 1:
        parts.append(f"{loop.parallel_iterations} iterations at once")
    return ", ".join(parts)


def _edges(plan: Plan) -> str:
    return (
        f"{len(plan.scheduling_edges)} control edge{'s' if len(plan.scheduling_edges) != 1 else ''}"
    )


def _blobs(count: int) -> str:
    return f"{count} blob{'s' if count != 1 else ''}"


def _checkpoints(cut: Segments) -> str:
    longer = f", each {cut.growth} longer" if cut.growth else ""
    told = f"{_blobs(len(cut.wanted))} replayed in segments of {cut.length}{longer}"
    if cut.slots:
        return f"{told} from {cut.most_kept} checkpoints, {cut.replays:.1f} times"
    tail = f", from iteration {cut.end} on saved" if cut.end else ""
    return f"{told}, a checkpoint each{tail}"


def _row(decision: ResidualDecision, loop: LoopPlan, told: Outcome) -> tuple[str, ...]:
    word = told.word
    if decision.is_kept and not decision.was_saved and word not in (CHECKPOINTED, REPLAYED):
        word = f"{word} now"
    kind = f" {kind_text(decision.dtype, decision.shape)}" if decision.dtype else ""
    return (
        format_bytes(decision.bytes),
        decision.op_type + kind,
        decision.source,
        "left" if loop.closed else word,
        loop.closed or told.reason,
    )
