"""A plan as lines and tables: peaks, what becomes of each residual, other decisions, notes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from rich.table import Table

from rnnmem.ir.graph import kind_text
from rnnmem.passes.checkpoint.decision import Segments
from rnnmem.passes.registry import BEFORE_LOOPS
from rnnmem.passes.rematerialise.decision import LoopPlan, ResidualDecision
from rnnmem.planning.names import names_in as names_in
from rnnmem.planning.outcomes import (
    CHECKPOINTED,
    REPLAYED,
    Outcome,
    every_loop,
    of_states,
    other_states,
    outcome,
)
from rnnmem.planning.plan import Plan
from rnnmem.planning.sentences import AS_THEY_ARE, Naming, beside_loops, called, of_loops
from rnnmem.sizes import counted, format_bytes
from rnnmem.tables import table_of

_BYTES = re.compile(r"\d (B|KiB|MiB)\b")


def parts(plan: Plan, naming: Naming = AS_THEY_ARE, name: str = "") -> Iterator[Table | str]:
    """What a plan decides.

    Args:
      plan: it.
      naming: what loops and ops are called.
      name: the function's; empty: not told.
    """
    yield from _summary(plan, naming, name)
    yield from _tables(list(every_loop(plan)), naming)
    decided = list(beside_loops(plan, naming))
    if decided:
        yield _decisions(decided)


def _summary(plan: Plan, naming: Naming, name: str) -> list[str]:
    lines = [f"{name}: {verdict(plan)}" if name else verdict(plan)]
    if plan.original_peak is not None or plan.predicted_peak is not None:
        before, after = plan.told_peaks
        lines.append(f"predicted peak above resident: {before} as it was, {after} now")
    elif plan.loops:
        lines.append("predicted peak: open, as sizes are; a report tells it for its arguments")
    if not plan.changes_nothing:
        lines.append(f"estimated step time: {plan.told_time}")
    lines += [f"note: {note}" for note in plan.notes]
    return [*lines, *of_loops(plan, naming)]


def verdict(plan: Plan) -> str:
    """What a plan changes, in a line; where it changes nothing, why there is nothing to tell."""
    if changed := changes(plan):
        return changed
    if any(True for _ in plan.every_loop()):
        return "nothing was to be gained, the function runs as it was"
    if plan.notes:
        return "left as it was"
    return "no loop with a gradient was found, nothing was to be done"


def changes(plan: Plan) -> str:
    """What a plan changes, counted; empty where it changes nothing.

    The order of ops, and what is decided before loops are planned, are told where nothing else is
    changed.
    """
    losses = (*plan.at_every_depth("row_chunks"), *plan.at_every_depth("chunked_loss"))
    regions = len(plan.at_every_depth("straight_line"))
    chains = len(plan.at_every_depth("elementwise_chunks"))
    before = ((len(plan.at_every_depth(one.name)), *one.decides.COUNTED) for one in BEFORE_LOOPS)
    edges = sum(len(plan.at_every_depth(name)) for name in ("readers_in_turn", "scheduling_edges"))
    loops = sum(not loop.closed for loop, _ in every_loop(plan))
    return _counts(
        (loops, "loop rewritten", "loops rewritten"),
        (
            sum(not loss.closed for loss in losses),
            "softmax loss by chunks of tokens",
            "softmax losses by chunks of tokens",
        ),
        (regions, "region outside of loops runs again", "regions outside of loops run again"),
        (chains, "chain of elementwise ops by chunks", "chains of elementwise ops by chunks"),
    ) or _counts(
        *before,
        (edges, "control edge added", "control edges added"),
    )


def _counts(*counts: tuple[int, str, str]) -> str:
    """How many of each there are, those left out of which there is none."""
    return ", ".join(counted(*one) for one in counts if one[0])


def _tables(loops: list[tuple[LoopPlan, Segments | None]], naming: Naming) -> Iterator[Table | str]:
    """What becomes of each blob, by the bytes that it has in an iteration; equal rows are one."""
    for loop, around in loops:
        if not loop.residuals:
            continue
        yield f"{called(loop, naming).label}, {_iterations(loop)}"
        sizes = "each iteration"
        table = table_of((sizes, "blob", "line", "decision", "why"), (sizes,))
        for (what, *rest), size in _rows(loop, around):
            table.add_row(format_bytes(size), what, *rest)
        yield table


def _rows(loop: LoopPlan, around: Segments | None) -> Iterator[tuple[tuple[str, ...], int | None]]:
    """Rows of what is alike but for its name, and the bytes of it all, the largest first."""
    alike = Counter(
        (_row(decision, loop, outcome(decision, loop, around)), decision.bytes)
        for decision in loop.residuals
    )
    others = None if loop.closed else other_states(loop)
    if others is not None and loop.segments is not None:
        alike[_row(others, loop, of_states(loop.segments)), others.bytes] += 1
    rows = [
        (_together(row, count) if count > 1 else row, size and size * count)
        for (row, size), count in alike.items()
    ]
    yield from sorted(rows, key=lambda row: -(row[1] or 0))


def _together(row: tuple[str, ...], count: int) -> tuple[str, ...]:
    """The row of several blobs; what a reason says of bytes is of each."""
    what, *rest, why = row
    return f"{count} × {what}", *rest, f"each: {why}" if _BYTES.search(why) else why


def _iterations(loop: LoopPlan) -> str:
    return "? iterations" if loop.trips is None else counted(loop.trips, "iteration")


def _decisions(decided: list[tuple[str, str, str]]) -> Table:
    """What other passes decided, and where."""
    table = table_of(("pass", "where", "decision"))
    for name, place, told in decided:
        table.add_row(name, place or "the function", told)
    return table


def _row(decision: ResidualDecision, loop: LoopPlan, told: Outcome) -> tuple[str, ...]:
    word = told.word
    if decision.is_kept and not decision.was_saved and word not in (CHECKPOINTED, REPLAYED):
        word = f"{word} now"
    kind = f" {kind_text(decision.dtype, decision.shape)}" if decision.dtype else ""
    return (
        decision.op_type + kind,
        decision.source or loop.source,  # of a value that the loop only carries along
        "left" if loop.closed else word,
        loop.closed or told.reason,
    )
