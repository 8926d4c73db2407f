"""Runs a program as TensorFlow does and as rnnmem does, and tells in what the two differ."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib.util
import itertools
import os
import statistics
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

import rnnmem
from rnnmem.tf.measure import peak, reset_peak
from tests.random_programs.settled import (
    SECONDS,
    in_new_traces,
    in_time,
    rare_results,
    runs_the_original,
)

RUNS = 3
"""Runs of each, in turn."""
AGAIN = 15
"""Runs of each, where an optimised step has bits that the original did not have so far."""
PEAKS = 12
"""Runs of each by which a peak that seems larger is looked at again."""
MANY = 60
"""Runs of each that settle whether a peak which varies is larger, or seemed so by a race: one
alone parts the medians of 15 runs of one function by a tenth."""
SURE = 2.33
"""Standard deviations of the rank sum beyond which chance has one case in a hundred."""
AT_ONCE = 150
"""Runs of the original, of those that look for a rare race, between two looks at what is left."""
AS_FAR = 4
"""A result of which the original's runs differ may be so many times as far from them."""
MIB = 2**20
MOST = 1.02
"""A peak may be so many times the original's."""
FUSIONS = ("arithmetic_optimization", "constant_folding", "remapping")

UNUSABLE = "unusable"
"""TensorFlow itself does not run the program: nothing is said about rnnmem."""
BITS, BITS_OFF = "bits", "bits, fusions off"
PEAK, PEAK_OFTEN = "peak", "peak, most runs"
INTERNAL, ERROR = "internal", "error"
_NOT_VERIFIED = ("rnnmem did not verify", "rnnmem cannot verify")
"""What ``verify=True`` says, documented, where it cannot run a function twice, or where two runs of
the original differ."""
NOT_FINITE = "not finite"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is wrong with one program.

    Attributes:
      category: see the names above.
      message: in words, on one line.
    """

    category: str
    message: str


@dataclasses.dataclass
class Verdict:
    """What came of a program.

    Attributes:
      findings: what is wrong.
      notes: what is worth a look, and not wrong.
      improved: whether the plan changes anything.
      peaks: bytes, of the original and of the optimised function; medians.
    """

    findings: list[Finding] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    improved: bool = False
    peaks: tuple[int, int] = (0, 0)

    def found(self, category: str, message: str) -> None:
        self.findings.append(Finding(category, " ".join(message.split())[:600]))


@contextlib.contextmanager
def module_of(text: str) -> Iterator[ModuleType]:
    """The module that a text makes; it stands in a file, where AutoGraph reads it."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "random_program.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        spec = importlib.util.spec_from_file_location("random_program", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # e.g. an initializer that has no kernel for bfloat16
            raise _Unusable(f"{type(error).__name__}: {str(error)[-300:]}") from error
        yield module


class Subject:
    """A callable with the state that it starts from."""

    def __init__(self, module: ModuleType, base: Any, start: list, make: Callable[[], Any]):
        self._module = module
        self._base = base
        self._call = module.use(base)
        self._start = start
        self._make = make

    def anew(self) -> Subject:
        """The same in a trace that has not run yet; what is optimised is planned anew."""
        return Subject(self._module, self._make(), self._start, self._make)

    @property
    def changes_nothing(self) -> bool:
        """Whether the plan of an optimised function says so."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rnnmem.RnnmemWarning)
            return self._base.plan(*self._module.ARGUMENTS).changes_nothing

    def run(self) -> tuple[list[np.ndarray], int]:
        """All that a call from the first state leaves behind, and its peak in bytes."""
        for variable, value in zip(self._module.STATE, self._start, strict=True):
            variable.assign(value)
        tf.random.set_seed(7)
        gc.collect()
        resident = reset_peak("CPU:0")
        results = self._call(*self._module.ARGUMENTS)
        most = peak("CPU:0") - resident
        leaves = tf.nest.flatten(results, expand_composites=True)
        return [_array(one) for one in [*leaves, *self._module.STATE]], most


def _array(result: Any) -> np.ndarray:
    """The numbers of a result; of strings their characters, for NumPy holds pointers to them."""
    array = np.asarray(result.numpy())
    return array.astype(bytes) if array.dtype == object else array


def differing(expected: list, found: list) -> list[int]:
    """The results whose shapes or bits are not equal."""
    if len(expected) != len(found):
        return [-1]
    return [
        index
        for index, (one, other) in enumerate(zip(expected, found, strict=True))
        if one.shape != other.shape or one.dtype != other.dtype or one.tobytes() != other.tobytes()
    ]


def told(expected: list, found: list) -> str:
    """The differences of two runs, in words."""
    wrong = differing(expected, found)
    if wrong == [-1]:
        return f"{len(found)} results, not {len(expected)}"
    parts = []
    for index in wrong[:4]:
        one, other = expected[index], found[index]
        if one.shape != other.shape or one.dtype != other.dtype:
            parts.append(f"{index} is {other.dtype}{other.shape}, not {one.dtype}{one.shape}")
        elif one.dtype.kind == "S":
            parts.append(f"{index} is {other}, not {one}")
        else:
            gap = np.max(np.abs(one.astype(np.float64) - other.astype(np.float64)))
            largest = np.max(np.abs(one.astype(np.float64)))
            parts.append(f"{index} by {gap:.2g} of {largest:.2g}")
    return f"results {wrong} of {len(expected)} differ: {'; '.join(parts)}"


@contextlib.contextmanager
def fusions(on: bool) -> Iterator[None]:
    tf.config.optimizer.set_experimental_options(dict.fromkeys(FUSIONS, on))
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options(dict.fromkeys(FUSIONS, True))


def verify(text: str) -> Verdict:
    """Runs the program of a module's text, and says what is wrong with what rnnmem makes of it.

    Op determinism must be on.
    """
    verdict = Verdict()
    try:
        with module_of(text) as module:
            _verify(module, verdict)
    except _Unusable as error:
        verdict.found(UNUSABLE, str(error))
    return verdict


class _Unusable(Exception):
    """TensorFlow does not run the program."""


def _verify(module: ModuleType, verdict: Verdict) -> None:
    start = [one.numpy() for one in module.STATE]
    base = module.function()
    later = "return fn\n" not in _source(module, "use")
    # A function that is differentiated later must not have been before it is optimised.
    optimised_base = module.function() if later else base
    original = Subject(module, base, start, module.function)
    _usable(original)
    wrapped, optimised = _optimised(module, optimised_base, start, verdict)
    if optimised is None:
        return
    with fusions(True):
        _compare(original, optimised, BITS, verdict, peaks=True)
    if module.ALSO_WITHOUT_FUSIONS or verdict.findings:
        with fusions(False):
            _compare(original, optimised, BITS_OFF, verdict)
    _ask(module, wrapped, verdict)


def _source(module: ModuleType, name: str) -> str:
    import inspect

    return inspect.getsource(getattr(module, name))


def _usable(original: Subject) -> None:
    try:
        results, _ = original.run()
    except Exception as error:  # whatever it is, it is none of ours
        raise _Unusable(f"{type(error).__name__}: {str(error)[-300:]}") from error
    for one in results:
        if one.dtype.kind == "f" and not np.all(np.isfinite(one)):
            raise _Unusable(NOT_FINITE)


def _optimised(module: ModuleType, base: Any, start: list, verdict: Verdict):
    """The optimised function, and what is called; None where it raises."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", rnnmem.RnnmemWarning)
        try:
            wrapped = rnnmem.optimize(base, **module.OPTIONS)
            subject = Subject(
                module, wrapped, start, lambda: rnnmem.optimize(module.function(), **module.OPTIONS)
            )
            subject.run()
        except Exception as error:  # all are told, whatever it is
            verdict.found(ERROR, _one_line(error))
            return None, None
    for warning in caught:
        text = str(warning.message)
        ours = issubclass(warning.category, rnnmem.RnnmemWarning)
        if ours and not text.startswith(_NOT_VERIFIED):
            verdict.found(INTERNAL, text)
    return wrapped, subject


def _one_line(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [one for one in frames if "/rnnmem/" in one.filename]
    where = f" at {os.path.basename(ours[-1].filename)}:{ours[-1].lineno}" if ours else ""
    return f"{type(error).__name__}{where}: {error}"


def _compare(
    original: Subject, optimised: Subject, category: str, verdict: Verdict, peaks: bool = False
) -> None:
    before, after = [], []
    try:
        for _ in range(RUNS if peaks else 2):
            before.append(original.run())
            after.append(optimised.run())
        _compare_bits(
            [one for one, _ in before],
            [one for one, _ in after],
            original,
            optimised,
            category,
            verdict,
        )
        if peaks:
            _compare_peaks(original, optimised, before, after, verdict)
    except Exception as error:  # all are told, whatever it is
        verdict.found(ERROR, f"{category}: {_one_line(error)}")


def _compare_bits(
    before: list,
    after: list,
    original: Subject,
    optimised: Subject,
    category: str,
    verdict: Verdict,
) -> None:
    """Whether each result has the bits that it has in some run of the original.

    The original's own runs need not agree: where a sum begins may depend on which op is done first,
    and so on the load, which is why both also run in new traces, in turn and under load.
    Races in several iterations make more results than can be waited for: then none may be farther
    from the original than its own runs are from each other. A race that the original rarely loses
    is waited for longer.
    """
    if any(_strange(before, one) for one in after):
        before = before + [original.run()[0] for _ in in_time(AGAIN, SECONDS)]
        after = after + [optimised.run()[0] for _ in in_time(AGAIN, SECONDS)]
        if any(_strange(before, one) for one in after):
            before = before + [original.run()[0] for _ in in_time(MANY, SECONDS)]
        if not all(explained(before, one) for one in after):
            more, others = in_new_traces(original, optimised)
            before = before + [one for one, _ in more]
            after = after + [one for one, _ in others]
    kinds = len({_digest(one) for one in before})
    strangers = [one for one in after if not explained(before, one)]
    varies = kinds > 1 or len(strangers) < len(after)
    rare = rare_results(original) if strangers and varies else iter(())
    while strangers and (more := list(itertools.islice(rare, AT_ONCE))):
        before = before + more
        strangers = [one for one in strangers if not explained(before, one)]
    if kinds > 1:
        verdict.notes.append(f"{category}: the original has {kinds} results in {len(before)} runs")
    if strangers:
        often = f"in {len(strangers)} of {len(after)} runs {told(before[0], strangers[0])}"
        _found_or_noted(original, optimised, category, often, verdict)


def _found_or_noted(
    original: Subject, optimised: Subject, category: str, message: str, verdict: Verdict
) -> None:
    """A finding, unless nothing but the original's own graphs runs."""
    if runs_the_original(original, optimised):
        verdict.notes.append(f"{category}: {message}: the original's own graphs run")
    else:
        verdict.found(category, message)


def _strange(before: list, results: list) -> set[int]:
    """The results that have these bits in no run of the original."""
    return set.intersection(*(set(differing(one, results)) for one in before))


def explained(before: list, results: list) -> bool:
    """Whether each result is one of the original's runs, or of a race that these lose as well."""
    return all(
        place >= 0 and _is_near([one[place] for one in before], results[place])
        for place in _strange(before, results)
    )


def _is_near(before: list[np.ndarray], result: np.ndarray) -> bool:
    """Whether a result is about as far from the original's as these are from each other."""
    if any(one.shape != result.shape or one.dtype.kind not in "fV" for one in [*before, result]):
        return False
    first, *others = (one.astype(np.float64) for one in before)
    apart = [np.max(np.abs(one - first), initial=0.0) for one in others]
    return np.max(np.abs(result.astype(np.float64) - first), initial=0.0) <= AS_FAR * max(apart)


def _digest(results: list) -> int:
    return hash(tuple(one.tobytes() for one in results))


def _compare_peaks(original, optimised, before, after, verdict: Verdict) -> None:
    one = [most for _, most in before]
    other = [most for _, most in after]

    def run_both(times: int) -> tuple[list[int], list[int]]:
        pairs = [(original.run()[1], optimised.run()[1]) for _ in range(times)]
        return [one for one, _ in pairs], [other for _, other in pairs]

    if max(one) > MIB and _median_is_larger(one, other):
        more, others = run_both(PEAKS)
        one, other = one + more, other + others
    verdict.peaks = int(statistics.median(one)), int(statistics.median(other))
    if max(one) <= MIB:
        return
    category = PEAK if min(other) > MOST * max(one) else PEAK_OFTEN
    if category == PEAK_OFTEN:
        if not _median_is_larger(one, other):
            return
        one, other = run_both(MANY)  # again: those were looked at because they seemed larger
        if not is_larger(one, other):
            return
    traced, others = ([most for _, most in some] for some in in_new_traces(original, optimised))
    message = f"{_both(one, other)}; in new traces {_both(traced, others)}"
    if is_larger(traced, others):
        _found_or_noted(original, optimised, category, message, verdict)
    else:
        verdict.notes.append(f"{category}: {message}: no larger in new traces")


def is_larger(one: list[int], other: list[int]) -> bool:
    """Whether the other's peaks are larger in most runs, and not by a race (Mann and Whitney)."""
    count = len(one) * len(other)
    above = sum((b > a) + 0.5 * (b == a) for a in one for b in other)
    deviation = (count * (len(one) + len(other) + 1) / 12) ** 0.5
    return _median_is_larger(one, other) and above - count / 2 > SURE * deviation


def _median_is_larger(one: list[int], other: list[int]) -> bool:
    return statistics.median(other) > MOST * statistics.median(one)


def _both(one: list[int], other: list[int]) -> str:
    return f"{_mib(other)} MiB, not {_mib(one)} (least, median, most of {len(one)})"


def _mib(peaks: list[int]) -> str:
    three = min(peaks), statistics.median(peaks), max(peaks)
    return "/".join(f"{one / MIB:.2f}" for one in three)


def _ask(module: ModuleType, wrapped: Any, verdict: Verdict) -> None:
    """Asks for the plan, which says whether anything was changed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rnnmem.RnnmemWarning)
        try:
            plan = wrapped.plan(*module.ARGUMENTS)
            verdict.improved = not plan.changes_nothing
            if module.OPTIONS.get("verify"):
                str(wrapped.explain(*module.ARGUMENTS))
        except Exception as error:  # all are told, whatever it is
            verdict.found(INTERNAL, f"plan, explain: {_one_line(error)}")
