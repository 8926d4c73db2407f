"""Errors of ours in what is only told: one warning says what is missing, and the rest is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rnnmem.errors import (
    BudgetError,
    MeasureError,
    NotUnderstood,
    OptionError,
    PlanError,
    VerifyError,
)
from rnnmem.warn import warn_user

RAISED = (BudgetError, MeasureError, NotUnderstood, OptionError, PlanError, VerifyError)
"""Errors that are an answer to what the caller asked."""

_T = TypeVar("_T")
_Instead = TypeVar("_Instead")


def spared(
    what: str, make: Callable[[], _T], instead: _Instead, notes: list[str] | None = None
) -> _T | _Instead:
    """What ``make`` gives; where it fails through no fault of the caller, one warning says so.

    Args:
      what: is told then, a noun: "the timeline before".
      make: works it out.
      instead: is given where that fails.
      notes: a line of the same is added there.
    """
    try:
        return make()
    except RAISED:
        raise
    except Exception as error:
        reason = f"{what} could not be computed: {type(error).__name__}: {error}"
        if notes is not None:
            notes.append(reason)
        warn_user(f"rnnmem: {reason}; please report it, see docs/errors.md")
        return instead
