"""What seems wrong with an optimised function, held against new traces of the original."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from tests.random_programs.executed import executed

TRACES, IN_EACH = 4, 20
"""New traces of each, and runs of each of them: the first runs of a trace go in another order, for
all kernels count as expensive at first, and TensorFlow's graph optimizer may take another way."""
RARE = 1500
"""Runs of the original in which a race may show that ends one way in a hundred times."""
LONG = 75
"""Of these in one trace: kernels are found cheap after some thirty; then the order is another."""
SECONDS = 300
"""After which no more runs are begun, for one purpose."""
LOAD = 2
"""Processes beside every other trace: as much as another job on a machine of two cores."""
_COMPUTE = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True:
    pass
"""


class Runs(Protocol):
    """A callable with the state that it starts from."""

    changes_nothing: bool

    def run(self) -> tuple[list[np.ndarray], int]:
        """All that a call leaves behind, and its peak in bytes."""

    def anew(self) -> Any:
        """The same in a trace that has not run yet; what is optimised is planned anew."""


def in_new_traces(original: Runs, optimised: Runs) -> tuple[list, list]:
    """Runs of each, in turn, in new traces of each, every other one of them under load.

    Both are met alike by whatever else the machine does.
    """
    before, after = [], []
    for number in range(TRACES):
        one, other = original.anew(), optimised.anew()
        with _load_in_every_other(number):
            for _ in in_time(IN_EACH, SECONDS / TRACES):
                before.append(one.run())
                after.append(other.run())
    return before, after


def rare_results(original: Runs) -> Iterator[list[np.ndarray]]:
    """What the original leaves behind in many runs more, half of them in new traces under load."""
    for number in in_time(RARE // LONG, SECONDS):
        one = original.anew()
        with _load_in_every_other(number):
            for _ in range(LONG):
                yield one.run()[0]


def _load_in_every_other(number: int) -> contextlib.AbstractContextManager[None]:
    return load() if number % 2 else contextlib.nullcontext()


def in_time(count: int, seconds: float) -> Iterator[int]:
    """So many numbers, the first in any case, the others until so many seconds are over."""
    end = time.monotonic() + seconds
    for number in range(count):
        if number and time.monotonic() > end:
            return
        yield number


def runs_the_original(original: Runs, optimised: Runs) -> bool:
    """Whether the plan says that nothing is changed, and the original's very graphs and ops run.

    Its graphs may differ from trace to trace; that of one of them must be the same, op by op.
    """
    if not optimised.changes_nothing:
        return False
    found = executed(optimised.anew().run)
    traces = (original.anew() for _ in range(TRACES))
    return bool(found[0]) and any(executed(one.run) == found for one in traces)


@contextlib.contextmanager
def load() -> Iterator[None]:
    """Processes that compute all the while, and end with this one."""
    command = [sys.executable, "-S", "-c", _COMPUTE]
    others = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(LOAD)]
    try:
        yield
    finally:
        for one in others:
            one.kill()
            one.communicate()
