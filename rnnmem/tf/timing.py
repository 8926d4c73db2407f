"""The time of functions beside the original's, from one state, on the arguments of one call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from rnnmem.analysis.second_run import described, second_run
from rnnmem.errors import NotUnderstood
from rnnmem.tf.functions import net_of, same_function
from rnnmem.tf.own_devices import sync_devices
from rnnmem.tf.state import State, restore

LEAST = 3
"""Pairs that are timed however long they take."""
PAIRS = 25
"""Pairs that are timed at most."""
WARM = 100
"""Runs after which TensorFlow knows which kernels are cheap (``executor.cc``)."""
WARM_SECONDS = 0.2
"""The time that these may take."""


class StepTimer:
    """Times functions beside the original; variables, tables and iterators stay as they are."""

    def __init__(self, original: Any, call: Callable[[Any], Any], inputs: Sequence[Any]):
        """Keeps what a run changes; nothing runs yet.

        Args:
          original: the function as TensorFlow traced it.
          call: calls it, or what runs instead, on the user's arguments.
          inputs: the tensors that stand for its inputs in this call, captures last.

        Raises:
          NotUnderstood: it may not run more often than it is called.
        """
        net = net_of(original)
        run = second_run(net)
        if run.seen:
            raise NotUnderstood(f"a run is seen elsewhere: {described(run.seen)}")
        self._before = State(original, net, run, inputs).keep()
        self._call, self._draws = call, run.draws
        self._original = self._own(original)
        self._is_warm = False

    def ratio(self, function: Any, seconds: float) -> float:
        """The factor of step time: the median over pairs of runs in turn.

        Args:
          function: what runs instead of the original.
          seconds: how long to run pairs, about.

        Raises:
          NotUnderstood: one of the two runs out of memory, or raises something else.
        """
        try:
            return self._ratio(self._own(function), seconds)
        except (tf.errors.OpError, MemoryError) as error:
            raise NotUnderstood(f"a run raises {type(error).__name__}") from error
        finally:
            restore(self._before)

    def _ratio(self, function: Any, seconds: float) -> float:
        if not self._is_warm:
            self._warm(self._original)
            self._is_warm = True
        self._warm(function)
        end, ratios = time.perf_counter() + seconds, list[float]()
        while len(ratios) < LEAST or (len(ratios) < PAIRS and time.perf_counter() < end):
            first = self._seconds(self._original)
            ratios.append(self._seconds(function) / first)
        return statistics.median(ratios)

    def _own(self, function: Any) -> Any:
        """The function, or a copy that draws random numbers of its own."""
        return same_function(function) if self._draws else function

    def _warm(self, function: Any) -> None:
        end = time.perf_counter() + WARM_SECONDS
        for _ in range(WARM):
            self._seconds(function)
            if time.perf_counter() > end:
                break

    def _seconds(self, function: Any) -> float:
        restore(self._before)
        sync_devices()
        start = time.perf_counter()
        self._call(function)
        sync_devices()
        return time.perf_counter() - start
