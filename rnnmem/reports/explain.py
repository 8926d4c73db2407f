"""``explain``: one table of what the original saves, what becomes of it, and why."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator

from rich.table import Table

from rnnmem.ir.names import Names
from rnnmem.passes.checkpoint.decision import Segments
from rnnmem.passes.encode.decision import SAVED, SAVED_AS
from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.planning.names import names_in
from rnnmem.planning.outcomes import REPLAYED, every_loop, outcome
from rnnmem.planning.plan import Plan
from rnnmem.planning.telling import changes, parts
from rnnmem.sizes import counted, format_bytes
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
        yield from parts(self.plan, self._names, self.name)
        if self.frontier:
            yield _alternatives(self.frontier, self.plan, self._names)

    @functools.cached_property
    def _names(self) -> Names:
        return names_in(self.plan)


def explain(plan: Plan, *, name: str, frontier: tuple[Plan, ...] = ()) -> Explanation:
    """The report on a plan, and on those that could run instead of it."""
    return Explanation(plan, name, frontier)


def _alternatives(frontier: tuple[Plan, ...], chosen: Plan, names: Names) -> Table:
    """Plans from the fastest to the smallest, the chosen one marked."""
    numbers = ("predicted peak", "step time", "loops keep at most")
    table = table_of(("plan", *numbers, "what changes"), numbers)
    for number, plan in enumerate(frontier, 1):
        same = (plan.loops, plan.nested) == (chosen.loops, chosen.nested)
        mine = same or plan.changes_nothing and chosen.changes_nothing
        table.add_row(
            f"{number} <- chosen" if mine else str(number),
            _peak(plan, chosen, mine),
            f"{plan.slowdown:.2f}x",
            _kept(plan),
            _what_changes(plan, names),
        )
    return table


def _peak(plan: Plan, chosen: Plan, mine: bool) -> str:
    """The interval where it is known: of the chosen plan and the original; else about what."""
    if mine or plan.changes_nothing:
        return chosen.told_peaks[0 if plan.changes_nothing else 1]
    return "?" if plan.predicted_peak is None else f"about {format_bytes(plan.predicted_peak)}"


def _kept(plan: Plan) -> str:
    """Bytes that the rewritten loops keep at once, inner ones included, at most.

    The planner counts a blob in each list that holds it; the simulated peak counts it once.
    """
    opened = [loop for loop in plan.loops if not loop.closed]
    if not opened:
        return ""
    known = all(one.trips is not None for loop in opened for one in loop.flat())
    if not known:
        return format_bytes(None)
    peak = plan.predicted_interval[1] if plan.predicted_interval else plan.predicted_peak
    counts = sum(loop.total()[0] for loop in opened)
    return format_bytes(counts if peak is None else min(counts, peak))


def _what_changes(plan: Plan, names: Names) -> str:
    """What becomes of each rewritten loop; those of which the same is told stand together."""
    told: dict[str, list[str]] = {}
    for loop, around in every_loop(plan):
        if not loop.closed:
            told.setdefault(_changes(loop, around), []).append(names.loop(loop.path))
    if not told:
        return changes(plan) or "nothing, the original"
    if len(told) == 1:
        return next(iter(told))
    return "; ".join(f"{', '.join(loops)}: {what}" for what, loops in told.items())


def _changes(loop: LoopPlan, around: Segments | None) -> str:
    words = Counter(outcome(decision, loop, around).word for decision in loop.residuals)
    cut = loop.segments
    changes = [f"{counted(words[SAVED], 'blob')} saved"] if words[SAVED] or cut is None else []
    forms = Counter(one.techniques for one in loop.encodings)
    if cut is not None:
        changes.append(_checkpoints(cut, words[REPLAYED]))
    changes += [f"{count} {SAVED_AS[techniques]}" for techniques, count in sorted(forms.items())]
    again = len(loop.recomputed)
    if cut is None:
        changes.append(f"{counted(again, 'op')} run again")
    elif again:  # beside those of the segments, which do so anyway
        changes.append(f"{counted(again, 'more op')} run again")
    if loop.parallel_iterations > 1:
        changes.append(f"{counted(loop.parallel_iterations, 'iteration')} at once")
    return ", ".join(changes)


def _checkpoints(cut: Segments, replayed: int) -> str:
    longer = f", each {cut.growth} longer" if cut.growth else ""
    what = counted(replayed, "blob") if replayed else "iterations"
    told = f"{what} replayed in segments of {cut.length}{longer}"
    if cut.slots:
        return f"{told} from {counted(cut.most_kept, 'checkpoint')}, {cut.replays:.1f} times"
    tail = f", from iteration {cut.end} on saved" if cut.end else ""
    return f"{told}, a checkpoint each{tail}"
