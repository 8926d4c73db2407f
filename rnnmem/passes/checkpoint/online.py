"""Online schedules: which state a loop keeps in which slot while nobody knows how long it will be.

Sources: Stumm and Walther 2010, "New algorithms for optimal online checkpointing", Algorithm I, for
the first ``(slots + 1) * (slots + 2) / 2 - 1`` steps; from there on Wang, Moin and Iaccarino 2009,
"Minimal repetition dynamic checkpointing algorithm for unsteady adjoint calculation". Here are the
decisions that both the counts (`rnnmem.passes.checkpoint.schedule`) and the loops that follow
them are made of. Slot 0 holds the state in front of step 0 for good.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

NEEDLESS = -1
"""The level of a state that a later one of a higher level stands for."""
FOREVER = 2**30
"""The level of the state in front of step 0."""


def first_steps(slots: int) -> int:
    """How many steps Algorithm I is for."""
    return (slots + 1) * (slots + 2) // 2 - 1


def first_slots(slots: int) -> Iterator[tuple[int, int]]:
    """``(step, slot)`` of each state that Algorithm I keeps, in turn.

    Once all slots are full, each round is one step shorter, and moves all that it may on. There are
    about ``slots ** 2 / 2`` of them, so a loop takes only those that it comes to.
    """
    yield from ((step, step) for step in range(slots))
    step = slots
    for width in range(slots - 1, 0, -1):
        step += 1  # the first state of a round is not kept
        yield step, width
        yield from ((step + slot, slot) for slot in range(1, width))
        step += width


def first_levels(slots: int) -> tuple[int, ...]:
    """Levels of the states that Algorithm I leaves in the slots."""
    return (FOREVER, *[0] * (slots - 1))


def next_slot(held: Sequence[int], levels: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """Where Wang, Moin and Iaccarino keep the next state, and the levels afterwards.

    It takes the place of the newest needless one; where none is, of the newest, a level above it,
    which makes all below that level needless.

    Args:
      held: the step in front of which the state of each slot stands; at least two slots.
      levels: of those states.
    """
    needless = min(levels) < 0
    slot = max(
        (place for place, level in enumerate(levels) if (level < 0) == needless),
        key=held.__getitem__,
    )
    level = levels[slot]
    after = [NEEDLESS if other < level else other for other in levels]
    after[slot] = level + 1
    return slot, tuple(after)
