"""An optimised function as a notebook shows it: what it is, what was planned, how to see more."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from rnnmem.ir.graph import kind_text
from rnnmem.planning.options import Options
from rnnmem.planning.plan import Plan
from rnnmem.planning.telling import verdict
from rnnmem.sizes import counted, format_bytes
from rnnmem.tables import table_of

_MOST = 8
"""Signatures that are told of, the last ones, and tensors of each."""
_NUMBERS = ("predicted peak as it was", "now", "measured", "step time")


@dataclasses.dataclass(frozen=True)
class Signature:
    """What was planned for arguments of some types and shapes.

    Attributes:
      arguments: dtypes and shapes of its tensors, ``(dtype, shape)``.
      plan: the decisions, as far as they are known.
      gradient_to_come: whether they are made once somebody asks for the gradient.
      measured: bytes that the first call took above the resident state, or None.
    """

    arguments: Sequence[tuple[str, Any]]
    plan: Plan
    gradient_to_come: bool = False
    measured: int | None = None


def options_given(options: Options) -> dict[str, Any]:
    """The options that are not as they are by default; of a plan only that there is one."""
    default = Options()
    found = {
        field.name: value
        for field in dataclasses.fields(Options)
        if (value := getattr(options, field.name)) != getattr(default, field.name)
    }
    plan = found.pop("plan", None)
    return found if plan is None else {**found, "plan": ...}


def function_parts(
    name: str, where: str, options: Options, planned: Sequence[Signature]
) -> Iterator[Table | str]:
    """Lines and a table of a function that ``optimize`` was applied to.

    Args:
      name: the function's.
      where: where it was written, in brackets; empty where nobody knows.
      options: what was asked for.
      planned: what was planned so far, the newest last.
    """
    yield f"{name}{where}, optimised by rnnmem: {_options(options)}"
    callee = name if name.isidentifier() else "f"  # of a lambda
    if not planned:
        yield f"Nothing is planned yet: call it, or {callee}.plan(...) with its arguments."
    else:
        if len(planned) > _MOST:
            yield f"{counted(len(planned), 'signature')} planned, the last {_MOST} of them:"
        yield _table(planned[-_MOST:])
    yield (
        f"{callee}.explain(...) tells what becomes of each blob, and why; "
        f"rnnmem.report({callee}, ...) shows where its memory goes, before and after, predicted "
        "and measured."
    )


def _options(options: Options) -> str:
    asked: Mapping[str, Any] = options_given(options)
    if not asked:
        return f"default options, max_slowdown={options.max_slowdown:g}"
    return ", ".join(f"{name}={_value(name, value)}" for name, value in asked.items())


def _value(name: str, value: Any) -> str:
    if value is ...:
        return "..."
    return format_bytes(value) if name == "budget" else repr(value)


def _table(planned: Sequence[Signature]) -> Table:
    """A row for each signature; columns of which nothing is known are left out."""
    rows = [_row(one) for one in planned]
    shown = [any(row[at] for row in rows) for at in range(len(rows[0]))]
    headings = ("arguments", "what changes", *_NUMBERS)
    table = table_of([one for one, there in zip(headings, shown, strict=True) if there], _NUMBERS)
    for row in rows:
        table.add_row(*(cell for cell, there in zip(row, shown, strict=True) if there))
    return table


def _row(one: Signature) -> tuple[str, ...]:
    plan = one.plan
    if one.gradient_to_come:
        return _arguments(one), "its gradient is planned once it is asked for", "", "", "", ""
    before, after = (
        told if interval or told == "?" else f"about {told}"
        for told, interval in zip(
            plan.told_peaks, (plan.original_interval, plan.predicted_interval), strict=True
        )
    )
    is_predicted = plan.original_peak is not None or plan.predicted_peak is not None
    return (
        _arguments(one),
        verdict(plan),
        before if is_predicted else "",
        after if is_predicted else "",
        "" if one.measured is None else format_bytes(one.measured),
        "" if plan.changes_nothing else plan.told_time,
    )


def _arguments(one: Signature) -> str:
    told = [kind_text(dtype, shape) for dtype, shape in one.arguments[:_MOST]]
    rest = len(one.arguments) - _MOST
    return ", ".join([*told, f"{rest} more"] if rest > 0 else told) or "none"
