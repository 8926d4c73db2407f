"""Steady-state extrapolation: iterations like those before are counted, not simulated."""

from __future__ import annotations

from rnnmem.simulate.buffers import ListValue, Series, Value, series_like


def lists_of(values: list[Value]) -> list[ListValue]:
    """The lists among some values, each once."""
    return list({id(one): one for one in values if isinstance(one, ListValue)}.values())


def extrapolation(state: list[Value], steady_state: int, skipped: int) -> None:
    """Changes the lists as the skipped iterations would.

    Args:
      state: the loop's variables behind its first iterations; changed in place.
      steady_state: iterations that were simulated.
      skipped: those that are not.
    """
    series: dict[tuple[int, int], Series] = {}

    def of(element) -> Series | None:
        if element is None or isinstance(element, Series):
            return element
        # One op makes one buffer an iteration, though one list may get it an iteration later; a
        # list that such buffers are saved in is more than one of them.
        key = id(element.origin), element.bytes() if isinstance(element, ListValue) else 0
        if key not in series:
            series[key] = series_like(element)
        return series[key]

    lists = lists_of(state)
    for held in lists:
        held.pop_many(held.gone * skipped // steady_state)
    for held in lists:
        per_iteration = len(held.new) // steady_state
        for element in held.new[len(held.new) - per_iteration :]:
            held.extend(of(element), skipped)
        per_iteration = len(held.placed) // steady_state
        for element in held.placed[len(held.placed) - per_iteration :]:
            held.extend_front(of(element), skipped)
