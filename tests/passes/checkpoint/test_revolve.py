"""The closed forms of binomial schedules, against the schedule that they make up."""

import pytest

from rnnmem.passes.checkpoint.revolve import first_saves, split_table
from rnnmem.passes.checkpoint.schedule import evaluations
from tests.passes.checkpoint.schedules import ADVANCE, SAVE, offline_schedule


@pytest.mark.parametrize(
    "steps, slots", [(1, 1), (2, 1), (10, 1), (10, 3), (64, 8), (9, 9), (5, 20)]
)
def test_the_first_saves_are_those_of_the_schedule(steps, slots):
    saved = []
    for action in offline_schedule(steps, slots):
        if action.kind == SAVE:
            saved.append(action.step)
        elif action.kind != ADVANCE:
            break
    assert first_saves(steps, slots) == (*saved, *([steps - 1] if steps > 1 else ()))


@pytest.mark.parametrize("steps, slots", [(10, 1), (10, 3), (64, 8), (64, 3)])
def test_following_the_table_takes_what_the_recurrence_says(steps, slots):
    # as the loops do it: pop, go on and keep, run the last one again
    table, stack, runs = split_table(steps, slots), list(first_saves(steps, slots)), steps
    for end in range(steps, 0, -1):
        at, free = stack.pop(), slots - len(stack)
        following = at
        while at < end - 1:
            if at == following:
                stack.append(at)
                following += table[end - at][free]
                free -= 1
            at, runs = at + 1, runs + 1
        runs += 1
        assert len(stack) <= slots
    assert not stack
    assert runs == evaluations(steps, slots) + 1
