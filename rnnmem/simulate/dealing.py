"""The order of ready ops in which least is held: a greedy one, which a lucky run comes close to."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from rnnmem.simulate.buffers import Buffer
from rnnmem.simulate.steps import Step

if TYPE_CHECKING:
    from rnnmem.simulate.executor import Frame

MOST_COMPARED = 32
"""Ready ops that are compared, of those that became ready last. By hand."""


Tasks = collections.deque[tuple["Frame", int]]
"""(frame, step), the newest last."""


def take_least(ready: Tasks) -> tuple[Frame, int]:
    """Takes the ready op that asks for least.

    Args:
      ready: ops, one of which is taken out.
    """
    first = max(0, len(ready) - MOST_COMPARED)
    place = min(range(first, len(ready)), key=lambda number: asks(*ready[number]))
    task = ready[place]
    del ready[place]
    return task


def makes(step: Step) -> int:
    """Bytes of what a step makes, where it takes no buffer of an input."""
    return sum(step.sizes) + step.element * (step.length or 0)


def asks(frame: Frame, index: int) -> int:
    """Bytes that running a step adds to those alive: what it makes, less what dies with it."""
    step = frame.program.steps[index]
    return makes(step) - sum(_dies(step, frame, slot) for slot in set(step.read))


def _dies(step: Step, frame: Frame, slot: int) -> int:
    held = frame.values[slot]
    if not isinstance(held, Buffer) or held.refs > 1:
        return 0
    return held.bytes if frame.uses[slot] == step.read.count(slot) else 0
