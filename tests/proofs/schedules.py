"""Model checking of checkpoint schedules: every length and number of slots up to a bound.

What a schedule costs is compared with the fewest evaluations that anything could need, found by
value iteration over every state that a reversal can be in. A state is how many steps are left to
reverse, in front of which of them the state at hand stands (if any), and in front of which ones
states are kept. Every move that there is at all is a move here: advancing over a step, reversing
the last one, keeping, dropping and restoring. No structure of a good schedule is assumed, so the
recurrence and the closed form that `rnnmem` uses are not what they are held against.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rnnmem.ir.graph import Net, Op
from rnnmem.ir.op_table import PUSH, SET
from rnnmem.passes.checkpoint.schedule import OnlineSchedule, evaluations
from tests.interpreter import Interpreter
from tests.loop_drawings import RECURRENT, in_segments
from tests.passes.checkpoint.schedules import (
    ADVANCE,
    RESTORE,
    REVERSE,
    SAVE,
    Action,
    offline_schedule,
    online_schedule,
)

STEPS, SLOTS = 12, 6
"""The longest loop and the most slots that are checked, each with everything below it."""
_NEVER = 10**6


class Optimum:
    """The fewest evaluations from every state, in so many slots.

    Args:
      slots: states that may be kept at once.
      steps: the longest loop.
    """

    def __init__(self, slots: int, steps: int = STEPS):
        self.slots, self.steps = slots, steps
        kept = np.arange(2**steps)
        self._fits = np.array([mask.bit_count() <= slots for mask in range(2**steps)])
        self._kept = kept
        nothing = np.where(self._fits, 0, _NEVER)
        self._at: list[np.ndarray] = [nothing[None]]  # steps left -> [at hand][kept]
        self._none: list[np.ndarray] = [nothing]  # the same with no state at hand
        for left in range(1, steps + 1):
            self._solve(left)

    def from_start(self, steps: int) -> int:
        """Of reversing so many steps with the first state at hand and nothing kept."""
        return int(self._at[steps][0][0])

    def from_kept(self, steps: int, kept: int) -> int:
        """The same with no state at hand and a bit set for each step in front of which is one."""
        return int(self._none[steps][kept])

    def to_the_end(self, steps: int) -> int:
        """The same where the loop first runs to its end, whose last state is its result.

        Any states that fit may have been kept by then.
        """
        return steps + int(self._none[steps].min())

    def _solve(self, left: int) -> None:
        """Values where so many steps are left: sweeps over all moves until nothing changes."""
        none = np.full(2**self.steps, _NEVER)
        at = np.full((left + 1, 2**self.steps), _NEVER)
        reversed_last = 1 + self._none[left - 1][self._kept & (2 ** (left - 1) - 1)]
        at[left - 1] = np.where(self._fits, reversed_last, _NEVER)
        while True:
            before = none.copy(), at.copy()
            for hand in range(left - 1, -1, -1):
                np.minimum(at[hand], 1 + at[hand + 1], out=at[hand])  # advance
                without = (self._kept >> hand & 1) == 0
                keeping = at[hand][self._kept | 1 << hand]
                at[hand] = np.where(without, np.minimum(at[hand], keeping), at[hand])  # keep
                np.minimum(at[hand], none, out=at[hand])  # forget what is at hand
                for one in range(left):  # drop
                    np.minimum(at[hand], at[hand][self._kept & ~(1 << one)], out=at[hand])
                at[hand][~self._fits] = _NEVER
            for one in range(left):  # restore
                holds = (self._kept >> one & 1) == 1
                np.minimum(none, np.where(holds, at[one], _NEVER), out=none)
            if all(map(np.array_equal, before, (none, at))):
                break
        self._at.append(at)
        self._none.append(none)


# --- the schedules as lists of actions


def checked_run(actions: Sequence[Action], steps: int, slots: int) -> tuple[int, list[int]]:
    """Runs a schedule on step numbers, and asserts what every schedule must keep to.

    A slot is free when it is written: it is empty, or its state stands in front of a step that is
    reversed already. While the loop first runs an online schedule may overwrite a state: who reads
    that one later finds another in the slot.

    Returns:
      The evaluations it takes, and how often each step is advanced over.
    """
    held: dict[int, int] = {}
    at: int | None = 0
    left, reversing, advanced = steps, False, [0] * steps
    for action in actions:
        reversing |= action.kind in (RESTORE, REVERSE)
        if action.kind == RESTORE:
            assert held.get(action.slot) == action.step < left, (action, held)
            at = action.step
            continue
        assert at == action.step, (action, at)
        if action.kind == SAVE:
            assert 0 <= action.slot < slots, action
            assert not reversing or held.get(action.slot, left) >= left, f"{action}: not free"
            held[action.slot] = at
        elif action.kind == ADVANCE:
            assert at < action.stop <= left, (action, left)
            for step in range(at, action.stop):
                advanced[step] += 1
            at = action.stop
        else:
            assert action.kind == REVERSE and at == left - 1, (action, left)
            left, at = left - 1, None
    assert left == 0, f"{left} steps are not reversed"
    return sum(advanced) + steps, advanced


def check_offline(optimum: Optimum, steps: int) -> None:
    """Asserts that the binomial schedule is right, and takes the fewest evaluations there are."""
    slots = optimum.slots
    count, _ = checked_run(offline_schedule(steps, slots), steps, slots)
    assert count == evaluations(steps, slots) == optimum.from_start(steps), (steps, slots)


def excess_online(optimum: Optimum, steps: int) -> int:
    """Asserts that the online schedule is right; how many evaluations it is above the optimum.

    The optimum is that of a schedule that knows the length from the start, and runs to the end.
    What was kept is always reversed in the fewest evaluations that it allows; and no step runs
    again more often than the published bound says, the least r with steps <= binomial(slots + r, r)
    (Wang, Moin and Iaccarino 2009).
    """
    slots = optimum.slots
    count, advanced = checked_run(online_schedule(steps, slots), steps, slots)
    online = OnlineSchedule(slots)
    for _ in range(steps):
        online.offer()
    kept = sum({1 << step for step in online.held.values()})
    assert count == online.evaluations() == steps + optimum.from_kept(steps, kept), (steps, slots)
    again = next(r for r in range(steps + 1) if steps <= math.comb(slots + r, r))
    assert max(advanced) - 1 <= again, (steps, slots)
    return count - optimum.to_the_end(steps)


# --- the schedules as ops, as a rewritten step runs them


class Recording(Interpreter):
    """An interpreter that counts how often the step runs, and how many states are kept at once."""

    def __init__(self) -> None:
        super().__init__()
        self.steps_run = self.most_kept = 0

    def _op(self, op: Op, inputs: list, path: tuple[str, ...]) -> list:
        self.steps_run += op.type == "Tanh"
        results = super()._op(op, inputs, path)
        if path[-2:-1] == ("then_branch",) and op.type in (PUSH, SET):
            self.most_kept = max(self.most_kept, len(results[0]))
        return results


def check_ops(optimum: Optimum, steps: int, rewritten: Net) -> int:
    """Runs a loop with its gradient, in the original and under a schedule over its iterations.

    Asserts that every result has the same bits: a state that was not kept, or overwritten too
    early, would give others, since the state is another one in each iteration.

    Returns:
      How often the step ran.
    """
    given = [np.float32(0.7), np.float32(-0.9), np.int32(steps)]
    before, after = Interpreter(), Recording()
    assert before.run(RECURRENT, given) == after.run(rewritten, given), (steps, optimum.slots)
    assert after.most_kept <= optimum.slots + 1, (steps, optimum.slots)  # that at hand is one more
    return after.steps_run


def ops_of_schedule(steps: int, slots: int, online: bool) -> Net:
    """The loop with segments of one iteration, under a schedule for so many of them."""
    return in_segments(("h", "a"), length=1, slots=slots, count=steps, online=online)


def check_all(slots: int, ops: bool = True) -> tuple[int, dict[tuple[int, int], int]]:
    """Checks every length with so many slots, as actions and as ops.

    Returns:
      How many schedules there were; (slots, steps) -> how far an online one is above the optimum.
    """
    optimum, count, excess = Optimum(slots), 0, {}
    online = ops_of_schedule(STEPS, slots, online=True)
    for steps in range(STEPS + 1):
        check_offline(optimum, steps)
        above = excess_online(optimum, steps) if steps else 0
        count += 2
        if above:
            excess[slots, steps] = above
        if ops and steps:
            offline = ops_of_schedule(steps, slots, online=False)
            assert check_ops(optimum, steps, offline) == optimum.from_start(steps) + 1
            assert check_ops(optimum, steps, online) == optimum.to_the_end(steps) + above
            count += 2
    return count, excess


def check_segments() -> int:
    """Runs every length in segments of each length and growth; all states of starts are kept."""
    optimum, count = Optimum(STEPS), 0
    for length in range(1, STEPS + 1):
        for growth in range(4):
            cut = in_segments(("h", "a"), length=length, growth=growth)
            for steps in range(STEPS + 1):
                assert check_ops(optimum, steps, cut) == 2 * steps
                count += 1
    return count
