"""The options of ``optimize``: what they may be, and errors that name what is wrong."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from rnnmem.errors import OptionError
from rnnmem.sizes import parse_bytes

EXACT_MEANS = ("recompute", "segments", "order")
"""Means that change no bit; all are allowed unless the user names some."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What a user asks of ``optimize``; the fields are those of its arguments.

    Attributes:
      budget: peak above the resident state, in bytes, or None.
      max_slowdown: bound on the factor of step time where there is no budget.
      allow: means that may be used.
      verify: whether the first call of each signature also runs the original and compares.
    """

    budget: int | None = None
    max_slowdown: float = 1.1
    allow: tuple[str, ...] = EXACT_MEANS
    verify: bool = False

    @staticmethod
    def of(budget, max_slowdown, allow, verify) -> Options:
        """The options, checked.

        Raises:
          OptionError: names the argument, its value and what it may be.
        """
        return Options(
            budget=None if budget is None else parse_bytes(budget, "budget"),
            max_slowdown=_slowdown(max_slowdown),
            allow=_means(allow),
            verify=_flag(verify),
        )


def _slowdown(value) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or math.isnan(value) or value < 1.0:
        raise OptionError(
            f"max_slowdown={value!r} must be a number of at least 1.0, "
            "the factor of step time that may be spent, e.g. 1.1"
        )
    return float(value)


def _means(value: Iterable[str] | None) -> tuple[str, ...]:
    if value is None:
        return EXACT_MEANS
    try:
        names = (value,) if isinstance(value, str) else tuple(value)
    except TypeError:
        raise OptionError(
            f"allow={value!r} must name means, of {', '.join(EXACT_MEANS)}, or be None"
        ) from None
    for name in names:
        if name not in EXACT_MEANS:
            raise OptionError(f"allow={value!r}: {name!r} is none of {', '.join(EXACT_MEANS)}")
    return names


def _flag(value) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"verify={value!r} must be True or False")
    return value
