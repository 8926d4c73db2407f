"""Verifies pops: each must give back what one push put there, no more often than there is any."""

from __future__ import annotations

from rnnmem.verify.errors import refused
from rnnmem.verify.expressions import FINAL, POPPED_LIST, PUSH, VARIABLE, Table
from rnnmem.verify.value_numbering import Notes, Pop


def verify_lists(table: Table, before: Notes, after: Notes) -> None:
    """Refuses a pop that is not understood, unless the original has the very same one.

    A gradient loop that empties a list runs no more often than the forward loop that filled it;
    that is not proven here but taken from the original, where the same pair must stand.
    """
    known = set()
    pairs = set()
    for pop in (*before.pops, *before.pops_here):
        known.add(pop.popped)
        if found := table.resolved(pop.popped):
            pairs.add((pop.trips, found[0]))
    for pop in (*after.pops, *after.pops_here):
        if pop.popped in known or table.operators[pop.popped].kind == PUSH:
            continue
        found = table.resolved(pop.popped)
        if found is None:
            raise _not_understood(table, pop)
        if (pop.trips, found[0]) not in pairs:
            sentence = f"the loop around {pop.op!r} need not run as often as the list was filled"
            raise refused("pop-unmatched", sentence, pop.net, (pop.op,))


def _not_understood(table: Table, pop: Pop):
    reason, sentence = _fault(table, pop.popped)
    return refused(reason, f"{pop.op!r} pops {sentence}", pop.net, (pop.op,))


def _fault(table: Table, popped: int) -> tuple[str, str]:
    """The reason and how it reads after ``pops``."""
    operators, children = table.operators, table.children
    if operators[popped].kind == POPPED_LIST:
        return "accumulator-popped-twice", "what was popped before in the same iteration"
    if operators[popped].text == "EmptyTensorList":
        return "accumulator-still-read", "a list that is always empty"
    if operators[popped].kind != VARIABLE:
        return "pop-unmatched", "a list that no loop carries"
    alone = table.alone(popped)
    if alone is None:
        return "pop-unmatched", "a list that depends on other loop variables"
    start, following = alone
    if (
        operators[following].kind == POPPED_LIST
        and operators[children[following][0]].kind == POPPED_LIST
    ):
        return "accumulator-popped-twice", "a list that loses two elements an iteration"
    if table.emptied(popped) is None:
        return "pop-unmatched", "a list that does not lose one element an iteration"
    if operators[start].text == "EmptyTensorList":
        return "accumulator-still-read", "a list without pushes"
    if operators[start].kind != FINAL:
        return "pop-unmatched", "a list that no loop filled"
    filled = table.filled(start)
    if filled is None:
        return "pop-unmatched", "a list that does not gain one element an iteration"
    if operators[filled[1]].text != "EmptyTensorList":
        return "accumulator-not-empty", "a list that was not empty when its loop began"
    return "pop-unmatched", "a list whose elements depend on the list"
