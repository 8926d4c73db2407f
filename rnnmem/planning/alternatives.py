"""Plans beside the one that was chosen, for people to compare."""

from __future__ import annotations

from rnnmem.planning.choice import unbeaten
from rnnmem.planning.plan import Plan
from rnnmem.planning.search import Search


def alternatives(search: Search, chosen: Plan, count: int = 5) -> tuple[Plan, ...]:
    """The original, the chosen plan, and others up to the smallest that none of them beats.

    Args:
      search: what chose the plan.
      chosen: the plan that runs.
      count: how many plans, at most.
    """
    if not chosen.loops:
        return ()
    fast, small = search.frontiers
    others = (step for step in (*fast, *small[-1:]) if not step.changes_nothing)
    steps = [step for step in others if step.loops != chosen.loops]
    wanted = min(len(steps), count - 1 if chosen.changes_nothing else count - 2)
    indices = {round(i * (len(steps) - 1) / max(1, wanted - 1)) for i in range(wanted)}
    found = [search.simulated(steps[index]) for index in sorted(indices)]
    first = (search.as_it_was(""), *(() if chosen.changes_nothing else (chosen,)))
    beside = (*first[1:], *unbeaten(found, first))
    return (first[0], *sorted(beside, key=lambda plan: plan.slowdown))
