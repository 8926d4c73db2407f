"""Steady-state extrapolation: iterations like those before are counted, not simulated."""

from __future__ import annotations

from rnnmem.simulate.buffers import Buffer, ListValue, Origin, Series, Value, series_like


def lists_of(values: list[Value]) -> list[ListValue]:
    """The lists among some values, each once."""
    return list({id(one): one for one in values if isinstance(one, ListValue)}.values())


Made = dict[tuple[int, int], Series]
"""What stands for the buffers of many iterations, by what made them: one op, one an iteration."""


def series_of(
    element: Buffer | ListValue, made: Made, earlier: Buffer | ListValue | None = None
) -> Series:
    """What stands for elements like this one, in whichever lists they are.

    Args:
      element: made by one op, though one list may get it an iteration later; a list that such
        buffers are saved in is more than one of them.
      made: those of the loop so far; takes it.
      earlier: what an iteration earlier had in its place: a list may hold elements of that one.
    """
    key = id(element.origin), element.bytes() if isinstance(element, ListValue) else 0
    if key not in made:
        made[key] = series_like(element, earlier)
    return made[key]


def states_of(element: Buffer | ListValue, origin: Origin, made: Made) -> Series:
    """What stands for kept states like this one.

    Args:
      element: a state, which other lists may hold as well.
      origin: what states are told by from now on.
      made: what stands for buffers of the loop so far; changed.
    """
    series = made[id(origin), 0] = series_of(element, made)
    series.origin = origin
    return series


def extrapolation(state: list[Value], steady_state: int, skipped: int, made: Made) -> None:
    """Changes the lists as the skipped iterations would.

    Args:
      state: the loop's variables behind its first iterations; changed in place.
      steady_state: iterations that were simulated.
      skipped: those that are not.
      made: what stands for buffers of the loop so far.
    """
    lists = lists_of(state)
    for held in lists:
        held.pop_many(held.gone * skipped // steady_state)
    for held in lists:
        for element in _added_by_one(held.new, steady_state, made):
            held.extend(element, skipped)
        for element in _added_by_one(held.placed, steady_state, made):
            held.extend_front(element, skipped)


def _added_by_one(
    added: list, iterations: int, made: Made
) -> list[Buffer | ListValue | Series | None]:
    """What stands for the elements that each iteration more adds to a list.

    What an earlier iteration has added, too, is a row of what was there before the loop; and lists
    that two iterations have added may share elements.
    """
    each = len(added) // iterations
    first = len(added) - each
    shared = {id(element) for element in added[:first]}
    before = added[first - each : first] or [None] * each
    return [
        element
        if element is None or isinstance(element, Series) or id(element) in shared
        else series_of(element, made, earlier)
        for element, earlier in zip(added[first:], before, strict=True)
    ]
