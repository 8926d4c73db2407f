"""Runs the original beside the optimised function and compares every bit."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from rnnmem.analysis.second_run import SecondRun, described, second_run
from rnnmem.errors import NotUnderstood, VerifyError
from rnnmem.tf import private
from rnnmem.tf.bits import Leaf, differences, leaves, leaves_of, unread
from rnnmem.tf.functions import net_of, same_function
from rnnmem.tf.state import Kept, State, restore
from rnnmem.warn import warn_user

TOLERANCE = {"float64": 1e-12, "float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}
"""Dtype -> how far numbers may be off, as a part of the largest, where sums have another order."""
ROUNDED = {"float64": 5e-2, "float32": 5e-2, "float16": 1e-1, "bfloat16": 1e-1}
"""The same where gradients are computed from saved copies of bfloat16, of 8 bits."""
_AGAIN = 20
"""Runs of the original, at most, in which it is looked for what varies, be it rarely."""
_WHOLE = "it"
"""Stands for all results where a run raises."""


class _Taped(NamedTuple):
    """What a run under a tape gives."""

    results: Any
    gradients: list


@dataclasses.dataclass(frozen=True)
class _Outcome:
    """What one run returned and left behind, or how it failed."""

    results: Any = None
    state: Sequence[Kept] = ()
    error: Exception | None = None

    def leaves(self) -> Iterator[Leaf]:
        kept = (leaves_of(one.name, one.values) for one in self.state)
        if isinstance(self.results, _Taped):
            taken = leaves(self.results.gradients, "gradient")
            return itertools.chain(leaves(self.results.results), taken, *kept)
        return itertools.chain(leaves(self.results), *kept)


def run_verified(
    original: Any,
    optimised: Any,
    call: Callable[[Any], Any],
    inputs: Sequence[Any],
    tolerance: Mapping[str, float] | None = None,
    where: str = "",
    in_advance: bool = False,
) -> Any:
    """Runs both functions from the same state; returns the optimised one's results.

    Variables, tables and the places of iterators are put back between the runs; a random op starts
    from its seed in each. Where that cannot be done for something, the optimised function alone
    runs, once, and a warning says why. What only shows outside of TensorFlow (prints, Python
    functions, summaries) happens twice, and a warning names it.

    Args:
      original: the function as TensorFlow traced it.
      optimised: the function that runs instead.
      call: calls one or the other on the user's arguments.
      inputs: the tensors that stand for the original's inputs in this call, captures last.
      tolerance: dtype -> how far numbers may be off; None: every bit must be the same.
      where: the user's line, in brackets, for messages.
      in_advance: whether the call itself is still to come: then nothing is returned, and the state
        is as before in any case.

    Raises:
      VerifyError: an output or a variable differs; names it and how far apart the values are.
        Variables, tables and iterators are as they were before the call.
    """
    name = tf.compat.as_str(original.name) + where
    once = "" if in_advance else " and ran it once, as it was rewritten"
    try:
        net = net_of(original)
        run = second_run(net)
        if in_advance and run.draws:
            raise NotUnderstood("its random ops would have drawn once before the call")
        state = State(original, net, run, inputs)
        before = state.keep()
        restore(before)
    except NotUnderstood as reason:
        warn_user(f"rnnmem did not verify {name}{once}: {reason}")
        return None if in_advance else call(optimised)
    both = _Both(original, optimised, call, run, state, before)
    expected = both.first()
    if in_advance and expected.error is not None:
        warn_user(f"rnnmem did not verify {name}: its gradient {_told(expected.error)}")
        return None
    if isinstance(expected.error, tf.errors.ResourceExhaustedError):
        warn_user(f"rnnmem did not verify {name}{once}: the original runs out of memory")
        return None if in_advance else call(optimised)
    found = _Outcome(call(optimised), state.keep())
    told = both.verify(expected, found, tolerance, name)
    if told is not None:
        restore(before)
        raise VerifyError(f"the optimised function differs from the original: {told}")
    if in_advance:
        restore(before)
        return None
    return found.results


def verify_differentiated(
    original: Any,
    plain: Callable[[], Any],
    optimised: Callable[[], Any],
    inputs: Sequence[Any],
    tolerance: Mapping[str, float] | None = None,
    where: str = "",
) -> None:
    """Compares a function and its gradient, before a call that a tape outside records.

    Results and gradients of their sum, by inputs and trainable variables, must be the same.

    Args:
      original: the function as TensorFlow traced it.
      plain: calls it as TensorFlow does.
      optimised: calls it with the rewritten gradient behind it.
      inputs: as in `run_verified`.
      tolerance: likewise.
      where: likewise.

    Raises:
      VerifyError: as in `run_verified`.
    """
    sources = [one for one in inputs if one.dtype.is_floating or one.dtype.is_complex]
    sources += [one for one in original.variables if one.trainable]

    def differentiated(run: Callable[[], Any]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(sources)
            results = run()
        flat = tf.nest.flatten(results, expand_composites=True)
        numbers = [one for one in flat if one is not None and one.dtype.is_floating]
        return _Taped(results, tape.gradient(numbers, sources))

    # Tapes belong to threads, and the one outside must not see this: it would be a second tape.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        run_verified(
            original,
            optimised,
            lambda one: thread.submit(
                differentiated, plain if one is original else optimised
            ).result(),
            inputs,
            tolerance,
            where,
            in_advance=True,
        )


class _Both:
    """The runs of a function and of what stands for it, from one state."""

    def __init__(
        self,
        original: Any,
        optimised: Any,
        call: Callable[[Any], Any],
        run: SecondRun,
        state: State,
        before: Sequence[Kept],
    ):
        self._original, self._optimised, self._call = original, optimised, call
        self._run, self._state, self._before = run, state, before

    def first(self) -> _Outcome:
        """What the original does; the state is as before it."""
        return self._try(self._original)

    def verify(
        self,
        expected: _Outcome,
        found: _Outcome,
        tolerance: Mapping[str, float] | None,
        name: str,
    ) -> str | None:
        """What is wrong with the optimised function, or None; warns of what remains unknown.

        The state is as the optimised function left it, or was before it where something is wrong.
        """
        wrong = self._differences(expected, found, tolerance)
        varying = self._varying(expected, wrong)
        if varying:  # other results may vary too, and did not in these few runs
            tolerance = tolerance or TOLERANCE
            wrong = self._differences(expected, found, tolerance)
        blamed = _besides(varying, wrong)
        if blamed and self._run.draws:
            # An earlier call that was not verified took numbers from the random ops.
            first = self._differences(expected, self._try(self._optimised), tolerance)
            blamed = _besides(varying, first)
        some = _listed(varying)
        if blamed:
            result, told = next(iter(blamed.items()))
            beside = f"; two runs of the original differ from each other in {some}" if some else ""
            return f"{result} {told}{beside}"
        restore(found.state)
        if varying:
            warn_user(
                f"rnnmem cannot verify {some} of {name}: two runs of the original differ from each "
                f"other there ({self._why()})"
            )
        else:
            self._tell(found, name)
        return None

    def _varying(self, expected: _Outcome, wrong: Mapping[str, str]) -> dict[str, str]:
        """What the original gives otherwise in another run; looked for where something is wrong."""
        varying: dict[str, str] = {}
        for _ in range(_AGAIN):
            if _besides(varying, wrong):
                varying |= self._differences(expected, self._try(self._original), None)
        return varying

    def _try(self, function: Any) -> _Outcome:
        """Runs one of the functions as if for the first time, and puts the state back."""
        restore(self._before)
        try:
            results = self._call(same_function(function) if self._run.draws else function)
            return _Outcome(results, self._state.keep())
        except Exception as error:
            return _Outcome(error=error)
        finally:
            restore(self._before)

    @staticmethod
    def _differences(
        expected: _Outcome, found: _Outcome, tolerance: Mapping[str, float] | None
    ) -> dict[str, str]:
        if expected.error is not None or found.error is not None:
            told = [_told(one.error) for one in (found, expected)]
            return {} if told[0] == told[1] else {_WHOLE: f"{told[0]}, the original {told[1]}"}
        return differences(expected.leaves(), found.leaves(), tolerance)

    def _tell(self, found: _Outcome, name: str) -> None:
        """Warns of what happened twice, and of what could not be compared."""
        if self._run.seen:
            warn_user(
                f"rnnmem verified {name}: the first call ran the original too, so that this "
                f"happened more than once: {described(self._run.seen)}"
            )
        hidden = unread(found.results)
        if hidden:
            warn_user(
                f"rnnmem verified {name}, except what cannot be inspected: {', '.join(hidden)}"
            )

    def _why(self) -> str:
        if self._run.seen:
            return f"it runs {described(self._run.seen)}, which may give another result each time"
        if private.is_deterministic():
            return (
                "TensorFlow adds some values up as they come: where it expects a function to need "
                "more than about 200 MiB, or where one of three values has other readers"
            )
        return "tf.config.experimental.enable_op_determinism and a seed make them equal"


def _besides(varying: Mapping[str, str], wrong: Mapping[str, str]) -> dict[str, str]:
    """What is wrong and does not vary by itself."""
    if _WHOLE in varying:
        return {}
    return {result: told for result, told in wrong.items() if result not in varying}


def _listed(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    first, rest = (all_names := list(names))[:3], len(all_names) - 3
    return ", ".join(first) + (f" and {rest} more" if rest > 0 else "")


def _told(error: Exception | None) -> str:
    return "returns" if error is None else f"raises {type(error).__name__}"
