"""Tells how far a long conversion is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from rnnmem.conversion.plan import ConversionPlan, Step
from rnnmem.sizes import MIB

_LONG = 256 * MIB

Report = Callable[[Step], None]


@contextlib.contextmanager
def reporting(
    plan: ConversionPlan, progress: bool | None | Callable[[int, int, str], None]
) -> Iterator[Report]:
    """A function to be called with each finished step.

    Args:
      plan: what will be done.
      progress: None shows a bar for long work on a terminal, True always, False never; a function
        is called with bytes done, bytes in all and the tensor's name.
    """
    total = sum(step.tensor.bytes_before for step in plan.changing)
    if callable(progress):
        yield _Counter(total, progress)
        return
    if progress is None:
        progress = total >= _LONG and sys.stderr.isatty()
    if not progress:
        yield lambda step: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("convert", total=total)
        yield lambda step: bar.advance(task, step.tensor.bytes_before)


class _Counter:
    def __init__(self, total: int, tell: Callable[[int, int, str], None]):
        self._total = total
        self._tell = tell
        self._sum = 0

    def __call__(self, step: Step) -> None:
        self._sum += step.tensor.bytes_before
        self._tell(self._sum, self._total, step.tensor.name)
