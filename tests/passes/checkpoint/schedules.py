"""Checkpoint schedules that are really run: what the counts of `rnnmem` are held against.

state   0 ──► 1 ──► 2 ──► 3 ──► 4        slots=2, steps=4
slot 0  ■                                 advance 0..2, save, advance, reverse 3, restore,
slot 1              ■                     reverse 2, restore 0, advance, reverse 1, ...
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rnnmem.errors import RnnmemError
from rnnmem.passes.checkpoint.revolve import split
from rnnmem.passes.checkpoint.schedule import OnlineSchedule, evaluations

ADVANCE, SAVE, RESTORE, REVERSE = "advance", "save", "restore", "reverse"


@dataclasses.dataclass(frozen=True, slots=True)
class Action:
    """One thing that a schedule does.

    Attributes:
      kind: "advance" (run steps ``step`` to ``stop - 1``), "save" (put the state in front of
        ``step`` into ``slot``), "restore" (take it from there) or "reverse" (``step``).
      step: the step, or the first one.
      stop: the step after the last one; ``step + 1`` where one step is meant.
      slot: of a save or a restore.
    """

    kind: str
    step: int
    stop: int
    slot: int = -1


@dataclasses.dataclass(frozen=True)
class Replay:
    """What running a schedule takes.

    Attributes:
      evaluations: steps advanced over and steps reversed.
      slots: the most slots that held a state at once.
      saves: states put into a slot.
    """

    evaluations: int
    slots: int
    saves: int


class ScheduleError(RnnmemError):
    """A schedule that reads what it does not have, or reverses in the wrong order."""


def offline_schedule(steps: int, slots: int) -> tuple[Action, ...]:
    """A schedule with the fewest evaluations for a length that is known.

    It starts with the state in front of step 0 at hand, which it saves into slot 0.

    Raises:
      OptionError: ``steps`` is below 0 or ``slots`` below 1.
    """
    evaluations(steps, slots)  # refuses numbers that make no sense
    if not steps:
        return ()
    begin = Action(SAVE, 0, 1, 0)
    return (begin, *_reverse_span(0, steps, 0, list(range(slots - 1, 0, -1)), at=0))


def _reverse_span(
    first: int, stop: int, slot: int, free: list[int], at: int | None
) -> Iterator[Action]:
    """Reverses steps ``stop - 1`` down to ``first``, whose state is in ``slot``.

    Args:
      first: the first step.
      stop: the step after the last one.
      slot: where the state in front of ``first`` is.
      free: slots that may be used; they are free again afterwards.
      at: the step in front of which the state at hand stands, if any.
    """
    spans = [(first, stop, slot)]
    while spans:
        first, stop, slot = spans.pop()
        if slot >= 0 and at != first:
            yield Action(RESTORE, first, first + 1, slot)
            at = first
        if stop - first == 1:
            yield Action(REVERSE, first, stop)
            at = None
            if slot > 0:
                free.append(slot)
            continue
        middle = first + split(stop - first, len(free) + 1)
        yield Action(ADVANCE, first, middle)
        at = middle
        spans.append((first, middle, slot))
        if stop - middle == 1:
            spans.append((middle, stop, -1))  # reversed at once, from the state at hand
        else:
            spans.append((middle, stop, free.pop()))
            yield Action(SAVE, middle, middle + 1, spans[-1][2])


def reversal(online: OnlineSchedule) -> Iterator[Action]:
    """Reverses all steps that were offered; afterwards nothing is held."""
    free = [slot for slot in range(online.slots - 1, 0, -1) if slot not in online.held]
    stop = online.steps
    for slot, first in sorted(online.held.items(), key=lambda item: -item[1]):
        yield from _reverse_span(first, stop, slot, free, at=None)
        stop = first
    online.held.clear()


def online_schedule(steps: int, slots: int) -> tuple[Action, ...]:
    """What :class:`OnlineSchedule` does for a loop that turns out to have ``steps`` steps.

    The forward run goes on to the end: its last state is the loop's result.

    Raises:
      OptionError: ``steps`` is below 0 or ``slots`` below 1.
    """
    evaluations(steps, slots)  # refuses numbers that make no sense
    online = OnlineSchedule(slots)
    actions = []
    for step in range(steps):
        slot = online.offer()
        if slot is not None:
            actions.append(Action(SAVE, step, step + 1, slot))
        actions.append(Action(ADVANCE, step, step + 1))
    return (*actions, *reversal(online))


# --- running


def replay(actions: Iterable[Action], steps: int, slots: int) -> Replay:
    """Runs a schedule on numbers instead of states, and verifies it.

    Raises:
      ScheduleError: the schedule uses a slot that it does not have, takes from an empty one,
        advances or reverses from another state than it has, or leaves a step unreversed.
    """
    held: dict[int, int] = {}
    at: int | None = 0
    left, count, most, saves = steps, 0, 0, 0
    for action in actions:
        if action.kind == RESTORE:
            if held.get(action.slot) != action.step:
                raise ScheduleError(f"{action}: slot {action.slot} holds {held.get(action.slot)}")
            at = action.step
        elif at != action.step:
            raise ScheduleError(f"{action}: the state at hand is that in front of {at}")
        elif action.kind == SAVE:
            if not 0 <= action.slot < slots:
                raise ScheduleError(f"{action}: there are {slots} slots")
            held[action.slot] = at
            saves += 1
            most = max(most, len(held))
        elif action.kind == ADVANCE:
            count += action.stop - action.step
            at = action.stop
        elif action.step == left - 1:
            count += 1
            left, at = action.step, None
            held = {slot: step for slot, step in held.items() if step < left}
        else:
            raise ScheduleError(f"{action}: step {left - 1} comes first")
    if left:
        raise ScheduleError(f"{left} steps are not reversed")
    return Replay(count, most, saves)


def run_schedule(
    schedule: Iterable[Action],
    state: Any,
    advance: Callable[[int, Any], Any],
    reverse: Callable[[int, Any, Any], Any],
    gradient: Any = None,
) -> Any:
    """Runs a schedule on a real step.

    Args:
      schedule: from :func:`offline_schedule` or :func:`online_schedule`.
      state: the state in front of step 0.
      advance: ``(step, state) -> state`` behind the step.
      reverse: ``(step, state in front of it, gradient) -> gradient``.
      gradient: what reversing the last step is given.

    Returns:
      The gradient that reversing step 0 gives.
    """
    return _run(schedule, {}, state, advance, reverse, gradient)


def _run(
    actions: Iterable[Action], held: dict[int, Any], state: Any, advance, reverse, gradient: Any
) -> Any:
    for action in actions:
        if action.kind == SAVE:
            held[action.slot] = state
        elif action.kind == RESTORE:
            state = held[action.slot]
        elif action.kind == ADVANCE:
            for step in range(action.step, action.stop):
                state = advance(step, state)
        else:
            gradient = reverse(action.step, state, gradient)
    return gradient


def run_online(
    slots: int,
    state: Any,
    more: Callable[[int, Any], bool],
    advance: Callable[[int, Any], Any],
    start: Callable[[Any], Any],
    reverse: Callable[[int, Any, Any], Any],
) -> tuple[Any, Any]:
    """Runs a loop of unknown length forward, then reverses it.

    Args:
      slots: states that may be kept at once.
      state: the state in front of step 0.
      more: ``(step, state)`` -> whether there is such a step.
      advance: ``(step, state) -> state`` behind the step.
      start: the last state -> the gradient that reversing starts from.
      reverse: ``(step, state in front of it, gradient) -> gradient``.

    Returns:
      The last state, and the gradient in front of step 0.
    """
    online = OnlineSchedule(slots)
    held: dict[int, Any] = {}
    while more(online.steps, state):
        step = online.steps
        slot = online.offer()
        if slot is not None:
            held[slot] = state
        state = advance(step, state)
    return state, _run(reversal(online), held, state, advance, reverse, start(state))
