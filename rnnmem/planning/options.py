"""The options of ``optimize``: what they may be, and errors that name what is wrong."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ParamSpec, TypeVar

from rnnmem.errors import OptionError, PlanError, UnknownOptionError
from rnnmem.ir.requests import KEEP, RECOMPUTE, Patterns
from rnnmem.passes.encode.decision import OFFLOAD
from rnnmem.passes.normalise.decision import CongruentOps
from rnnmem.passes.registry import BEFORE_LOOPS, BY_NAME, DEFAULT, GROUPS, passes_of
from rnnmem.planning.plan import Plan
from rnnmem.sizes import parse_bytes

_KNOWN = (*BY_NAME, *GROUPS)
PROFILE_SECONDS = 10.0
"""Seconds that measuring may take where nobody says how many."""
_OUTSIDE = (
    "induction_variables",
    "scheduling_edges",
    "elementwise_chunks",
    *(one.name for one in BEFORE_LOOPS),
    "straight_line",
    "row_chunks",
)
"""Passes without which loops are planned all the same."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What a user asks of ``optimize``; the fields are those of its arguments.

    Attributes:
      budget: peak above the resident state, in bytes, or None.
      max_slowdown: bound on the factor of step time where there is no budget.
      allow: names of passes that may be used, and of groups of them.
      verify: whether the first call of each signature also runs the original and compares.
      plan: decisions to apply instead of making any, or None.
      profile: seconds for which times are measured instead of estimated; 0: not at all.
      keep: patterns of names of ops and name scopes whose values are not computed again.
      recompute: the same of values that are not saved.
      runs_once: names of ops that do not run again; no argument of ``optimize``.
      merges: ops that are to be merged with congruent ones; no argument of ``optimize`` either.
    """

    budget: int | None = None
    max_slowdown: float = 1.1
    allow: tuple[str, ...] = (DEFAULT,)
    verify: bool = False
    plan: Plan | None = None
    profile: float = 0.0
    keep: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ()
    runs_once: frozenset[str] = frozenset()
    merges: tuple[CongruentOps, ...] = ()

    @staticmethod
    def of(
        budget, max_slowdown, allow, verify, plan=None, profile=False, keep=(), recompute=()
    ) -> Options:
        """The options, checked.

        Raises:
          OptionError: names the argument, its value and what it may be.
          PlanError: ``plan`` is a text or a file that holds no plan.
        """
        return Options(
            budget=None if budget is None else parse_bytes(budget, "budget"),
            max_slowdown=_slowdown(max_slowdown),
            allow=_passes(allow),
            verify=_flag(verify, "verify"),
            plan=None if plan is None else _plan(plan),
            profile=_seconds(profile),
            keep=_patterns(keep, "keep"),
            recompute=_patterns(recompute, "recompute"),
        )

    @property
    def passes(self) -> frozenset[str]:
        """Names of the passes that may be used."""
        return passes_of(self.allow)

    @property
    def patterns(self) -> Patterns:
        """What is asked of values by name."""
        return {KEEP: self.keep, RECOMPUTE: self.recompute}

    def without(self, names: Iterable[str]) -> Options:
        """The same where these passes decide nothing, nor does the plan given."""
        names = tuple(names)
        plan = None if self.plan is None else self.plan.without(names)
        return dataclasses.replace(self, allow=tuple(sorted(self.passes - {*names})), plan=plan)

    def simpler(self, plan: Plan) -> Iterator[tuple[Options, tuple[str, ...]]]:
        """Options by which less is done beside the loops than a plan does; the passes left out."""
        done = [name for name in _OUTSIDE if _is_done(plan, name)]
        for count in range(1, len(done) + 1):
            for names in itertools.combinations(done, count):
                yield self.without(names), names

    @property
    def holds_time(self) -> bool:
        """Whether the plan is to be held against measured times of the step."""
        return bool(self.profile) and self.budget is None and self.plan is None

    @property
    def offloads(self) -> bool:
        """Whether what is saved may be kept in host memory."""
        return OFFLOAD in self.passes


def left_outside(names: Iterable[str], reason: str) -> str:
    """What a plan says of passes that were left out, for a reason."""
    return f"nothing is done by {' and '.join(names)} beside the loops: {reason}"


P = ParamSpec("P")
R = TypeVar("R")


def with_known_names(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which refuses unknown names of arguments as options are refused."""
    known = [name for name in inspect.signature(function).parameters if name != "fn"]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        check_names({name: value for name, value in kwargs.items() if name != "fn"}, known)
        return function(*args, **kwargs)

    return call


def check_names(given: Mapping[str, object], known: Iterable[str]) -> None:
    """Refuses names of options that there are not.

    Args:
      given: name -> value, as the user wrote them.
      known: the options that there are.

    Raises:
      UnknownOptionError: names the first one, its value, and the option that may be meant.
    """
    known = tuple(known)
    for name, value in given.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise UnknownOptionError(
                f"{name}={value!r} is an unknown option; the options are {', '.join(known)}{meant}"
            )


def _is_done(plan: Plan, name: str) -> bool:
    """Whether a plan does what a pass is for, beside its loops."""
    match name:
        case "scheduling_edges":
            return any(not edge.path for edge in plan.of(name))
        case "row_chunks":
            return any(not one.closed for one in plan.of(name))
        case "straight_line":
            return bool(plan.at_every_depth(name))
    return bool(plan.of(name))


def _slowdown(value) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or math.isnan(value) or value < 1.0:
        raise OptionError(
            f"max_slowdown={value!r} must be a number of at least 1.0, "
            "the factor of step time that may be spent, e.g. 1.1"
        )
    return float(value)


def _passes(value: Iterable[str] | None) -> tuple[str, ...]:
    if value is None:
        return (DEFAULT,)
    try:
        names = (value,) if isinstance(value, str) else tuple(value)
    except TypeError:
        raise OptionError(
            f"allow={value!r} must name passes, of {', '.join(_KNOWN)}, or be None"
        ) from None
    for name in names:
        if name not in _KNOWN:
            near = difflib.get_close_matches(str(name), _KNOWN, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise OptionError(f"allow={value!r}: {name!r} is none of {', '.join(_KNOWN)}{meant}")
    return names


def _plan(value) -> Plan:
    if isinstance(value, Plan):
        return value
    if not isinstance(value, (str, os.PathLike)):
        raise OptionError(f"plan={value!r} must be a Plan, its JSON text, or the path of a file")
    text, where = os.fspath(value), "plan"
    if isinstance(value, os.PathLike) or not text.lstrip().startswith("{"):
        where = f"plan={text!r}"
        try:
            with open(value, encoding="utf-8") as file:
                text = file.read()
        except (OSError, ValueError) as error:  # a ValueError: no text, or a NUL byte in the path
            raise PlanError(f"{where} cannot be read: {error}") from None
    try:
        return Plan.from_json(text)
    except ValueError as error:
        raise PlanError(f"{where}: {error}") from None


def _seconds(profile) -> float:
    if isinstance(profile, bool):
        return PROFILE_SECONDS if profile else 0.0
    try:
        if math.isfinite(profile) and profile >= 0:
            return float(profile)
    except TypeError:
        pass
    raise OptionError(f"profile={profile!r} must be True, False, or a number of seconds")


def _patterns(value: Iterable[str] | None, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    patterns = (value,) if isinstance(value, str) else value
    known = isinstance(patterns, Iterable) and not isinstance(patterns, (bytes, Mapping))
    found = tuple(patterns) if known else ()
    if not known or not all(isinstance(one, str) and one.strip() for one in found):
        raise OptionError(
            f"{name}={value!r} must be a pattern of names of ops or name scopes, or several, e.g. "
            f'"*/gates" or ["*/Tanh*", "decoder/attention"]'
        )
    return found


def _flag(value, name: str) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"{name}={value!r} must be True or False")
    return value
