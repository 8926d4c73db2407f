"""The largest batch, or the longest sequence, whose step fits in memory."""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, overload

import tensorflow as tf

from rnnmem.errors import BudgetError, MeasureError, OptionError
from rnnmem.ir.inline import inline
from rnnmem.ir.order import without_pruned_ops
from rnnmem.optimized import Optimized, within_budget
from rnnmem.simulate.timeline import counted_peak
from rnnmem.sizes import format_bytes, parse_bytes
from rnnmem.tf import private
from rnnmem.tf.counting import uncounted
from rnnmem.tf.device import allocator_limit, resident_bytes
from rnnmem.tf.functions import net_of
from rnnmem.tf.measure import run_measured
from rnnmem.tf.own_devices import sync_devices
from rnnmem.throughput import SizeTrial, Throughput, most_examples
from rnnmem.warn import warn_user

HIGHEST = 2**20
"""Sizes that are tried where no highest is given, at most."""

_TOO_MUCH = 2**62
"""Bytes that no device has."""

_WRONG_BY = 1.25
"""What a prediction may be wrong by before running decides."""

LEAST_RUNS, TIMED_SECONDS = 3, 1.0
"""A step is timed so often, and until so many seconds are over."""

_GOALS = ("size", "throughput")


@overload
def largest(
    fn: Callable[..., Any],
    make_args: Callable[[int], Any],
    budget: int | str | None = None,
    *,
    low: int = 1,
    high: int | None = None,
    goal: Literal["size"] = "size",
) -> int: ...


@overload
def largest(
    fn: Callable[..., Any],
    make_args: Callable[[int], Any],
    budget: int | str | None = None,
    *,
    low: int = 1,
    high: int | None = None,
    goal: Literal["throughput"],
) -> Throughput: ...


def largest(
    fn: Callable[..., Any],
    make_args: Callable[[int], Any],
    budget: int | str | None = None,
    *,
    low: int = 1,
    high: int | None = None,
    goal: str = "size",
) -> int | Throughput:
    """Finds the largest size whose step fits, or the one of most examples a second.

    The step really runs, at the sizes near the limit; variables that it changes are put back.
    Running out of memory on the way is survived. Where a budget is given and the device does not
    count its memory, predicted peaks decide, and a warning says so.

    With ``goal="throughput"`` sizes run and are timed, first doubled from ``low`` on, then around
    the best one; an optimised function is planned anew for each, with the plan of least time that
    fits the limit in place of its own bound on time. The best three are timed twice.

    Args:
      fn: the step: what ``rnnmem.optimize`` returned, a ``tf.function`` or a Python function.
      make_args: size -> the step's arguments, a tuple (or the only one).
      budget: bytes, or ``"512MiB"``: the peak above the resident state to stay under; by default
        what the device has left.
      low: the smallest size that is tried.
      high: the largest size that is tried; by default none is too large.
      goal: ``"size"``, or ``"throughput"``: most examples a second, of which a size is the number.

    Returns:
      A size that ran within the budget, such that the next one does not, or is ``high``; for
      throughput the size, its plan, and all that was tried.

    Raises:
      BudgetError: not even ``low`` fits; says what it needs.
      MeasureError: a peak can neither be measured nor predicted.
      OptionError: an argument is malformed, or there is no limit to look for.
    """
    low, high = _bounds(low, high)
    for name, value in (("fn", fn), ("make_args", make_args)):
        if not callable(value):
            raise OptionError(f"{name}={value!r} is not callable")
    if budget is None and allocator_limit() is None:
        raise OptionError(
            "budget=None, and nothing limits what TensorFlow takes of this device: give a budget, "
            "or call rnnmem.enable_cpu_memory_stats(limit) before TensorFlow's first op"
        )
    if goal not in _GOALS:
        raise OptionError(f"goal={goal!r} must be one of {', '.join(map(repr, _GOALS))}")
    limit = None if budget is None else parse_bytes(budget, "budget")
    search = _Search(fn, make_args, limit)
    if goal == "throughput":
        search.plan_for_time()
        found = most_examples(low, high, search.timed)
        if found is None:
            raise search.too_small(low)
        return found
    guess = search.by_prediction(low, high)
    return search.by_running(guess, low, high)


def _bounds(low, high) -> tuple[int, int]:
    high = HIGHEST if high is None else high
    for name, value in (("low", low), ("high", high)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise OptionError(f"{name}={value!r} must be an int of at least 1")
    if high < low:
        raise OptionError(f"high={high} is below low={low}")
    return low, high


class _Search:
    def __init__(self, fn, make_args, limit: int | None):
        self.fn = fn if isinstance(fn, Optimized) else _traced(fn)
        self.make_args = make_args
        self.limit = limit
        self.needs: dict[int, int | None] = {}
        self.fits: dict[int, bool] = {}
        self.peaks: dict[int, int | None] = {}
        self._warned = False

    def by_prediction(self, low: int, high: int) -> int:
        """The largest size that is predicted to fit; ``low`` where nothing can be told."""
        if not self._is_predicted_to_fit(low):
            return low
        size = low
        while size < high and self._is_predicted_to_fit(min(high, 2 * size)):
            size = min(high, 2 * size)
        beyond = min(high + 1, 2 * size)
        while beyond - size > max(1, size // 64):
            middle = (size + beyond) // 2
            if self._is_predicted_to_fit(middle):
                size = middle
            else:
                beyond = middle
        return size

    def by_running(self, guess: int, low: int, high: int) -> int:
        """The largest size that runs and fits, near one that should."""
        good, bad = None, high + 1
        size, step = guess, max(1, guess // 16)
        while good is None:
            if self._runs(size):
                good = size
            elif size == low:
                raise self.too_small(low)
            else:
                bad, size, step = size, max(low, size - step), 2 * step
        step = max(1, good // 16)
        while bad == high + 1 and good < high:
            size = min(high, good + step)
            if self._is_hopeless(size):
                bad = size
            elif self._runs(size):
                good, step = size, 2 * step
            else:
                bad = size
        while bad - good > 1:
            middle = (good + bad) // 2
            if not self._is_hopeless(middle) and self._runs(middle):
                good = middle
            else:
                bad = middle
        return good

    def plan_for_time(self) -> None:
        """Has an optimised function take the fastest plan within the limit, whatever its bound."""
        limit = self._limit()
        if isinstance(self.fn, Optimized) and limit is not None:
            self.fn = within_budget(self.fn, limit)

    def timed(self, size: int) -> SizeTrial | None:
        """Runs a size and times it; None: it does not fit."""
        if self._is_hopeless(size) or not self._runs(size):
            return None
        args = self._arguments(size)
        plan = self.fn.plan(*args) if isinstance(self.fn, Optimized) else None
        with self._put_back(args):
            seconds = _seconds_of(lambda: self.fn(*args))
        return SizeTrial(size, seconds, self.peaks[size], plan)

    def _is_predicted_to_fit(self, size: int) -> bool:
        predicted, limit = self._predicted(size), self._limit()
        return predicted is not None and limit is not None and predicted <= limit

    def _is_hopeless(self, size: int) -> bool:
        """Whether a size is predicted to need so much that running it proves nothing."""
        predicted, limit = self._predicted(size), self._limit()
        return predicted is not None and limit is not None and predicted > _WRONG_BY * limit

    def _limit(self) -> int | None:
        if self.limit is not None:
            return self.limit
        device = allocator_limit()
        return None if device is None else device - (resident_bytes() or 0)

    def _predicted(self, size: int) -> int | None:
        """Predicted peak above the resident state, or None where it cannot be told."""
        if size not in self.needs:
            try:
                args = self._arguments(size)
                peak = self._peak(args)
                own = _bytes_of(args) if self.limit is None else 0
                self.needs[size] = None if peak is None else peak + own
            except (BudgetError, tf.errors.ResourceExhaustedError):
                # The step's own budget cannot be met, or not even its arguments fit.
                self.needs[size] = _TOO_MUCH
        return self.needs[size]

    def _peak(self, args: tuple) -> int | None:
        if isinstance(self.fn, Optimized):
            predicted = self.fn.plan(*args).predicted_peak
            if predicted is not None:
                return predicted
        return _simulated(self.fn.get_concrete_function(*args))

    def _arguments(self, size: int) -> tuple:
        args = self.make_args(size)
        return args if isinstance(args, tuple) else (args,)

    def _runs(self, size: int) -> bool:
        """Whether the step runs at this size, within the budget."""
        if size not in self.fits:
            self.fits[size] = self._try(size)
            gc.collect()
        return self.fits[size]

    def _try(self, size: int) -> bool:
        try:
            args = self._arguments(size)
            with self._put_back(args):
                for _ in range(2):  # the second run finds memory as later ones do
                    results, peak = run_measured(lambda: self.fn(*args))
                    del results
                    self.peaks[size] = max((peak, self.peaks.get(size)), key=lambda one: one or 0)
                    if self.limit is not None and self._needed(size, peak) > self.limit:
                        return False
        except (tf.errors.ResourceExhaustedError, BudgetError):
            return False
        return True

    @contextlib.contextmanager
    def _put_back(self, args: tuple) -> Iterator[None]:
        """Variables are as before afterwards."""
        concrete = self.fn.get_concrete_function(*args)
        # On the host, so that they take nothing from what the step may have.
        before = [(variable, variable.numpy()) for variable in concrete.variables]
        try:
            yield
        finally:
            for variable, value in before:
                variable.assign(value)

    def _needed(self, size: int, peak: int | None) -> int:
        """What a size needs: as measured, or else as predicted.

        Raises:
          MeasureError: it is neither.
        """
        if peak is not None:
            return peak
        needs = self._predicted(size)
        if needs is None:
            raise MeasureError(
                f"size {size}: its peak can neither be measured nor predicted; {uncounted()}"
            )
        if not self._warned:
            self._warned = True
            warn_user(f"sizes are chosen by predicted peaks alone: {uncounted()}")
        return needs

    def too_small(self, low: int) -> BudgetError:
        predicted, limit = self._predicted(low), self._limit()
        needed = format_bytes(None if predicted == _TOO_MUCH else predicted)
        return BudgetError(
            f"low={low} does not fit: its step is predicted to need {needed} above the resident "
            f"state, of {format_bytes(limit)} that it may have; give a smaller low or more memory"
        )


def _seconds_of(call: Callable[[], Any]) -> float:
    """The median over runs of a step."""
    end, seconds = time.perf_counter() + TIMED_SECONDS, list[float]()
    while len(seconds) < LEAST_RUNS or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        sync_devices()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _bytes_of(args: tuple) -> int:
    """Bytes of the tensors among the arguments."""
    flat = tf.nest.flatten(args, expand_composites=True)
    return sum(leaf.dtype.size * int(tf.size(leaf)) for leaf in flat if isinstance(leaf, tf.Tensor))


def _traced(fn: Callable[..., Any]) -> Any:
    return fn if hasattr(fn, "get_concrete_function") else tf.function(fn)


def _simulated(concrete: Any) -> int | None:
    """Predicted peak of a function as TensorFlow runs it; None where it is not understood."""
    if private.is_compiled(concrete):  # XLA lays out buffers of its own
        return None
    try:
        return counted_peak(without_pruned_ops(inline(net_of(concrete))))
    except Exception:  # prediction is a help; running decides
        return None
