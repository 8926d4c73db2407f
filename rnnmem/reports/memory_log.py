"""The peak of each step of a training loop, kept and shown in TensorBoard."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rnnmem.errors import MeasureError
from rnnmem.tf import measure
from rnnmem.warn import warn_user

if TYPE_CHECKING:
    from rnnmem.reports.report import Report


class MemoryLog:
    """Watches the steps of a plain training loop.

    Give each step to it::

        log = rnnmem.MemoryLog("runs/memory")
        for batch in batches:
            with log.step():
                train_step(*batch)
        log.report(rnnmem.report(train_step, *batch))

    Args:
      log_dir: folder of TensorBoard's event files; None: nothing is written.
      device: whose memory, e.g. "GPU:1"; by default the first GPU, else "CPU:0".

    Attributes:
      peaks: bytes above what was resident before the step, one for each step.

    Raises:
      MeasureError: the device counts no memory.
      OptionError: the device is not here, or tensorboard is missing.
    """

    def __init__(self, log_dir: str | os.PathLike | None = None, device: str | None = None):
        self.device = measure.counting_device(device)
        self.peaks: list[int] = []
        self._resident: int | None = None
        self._warned = False
        self._bounds: dict[str, float | None] = {}
        self._writer: Any = None
        if log_dir is not None:
            from rnnmem.reports.tensorboard import Writer

            self._writer = Writer(log_dir)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Measures the block as one step; one that raises is not counted."""
        self.begin()
        yield
        self.end()

    def begin(self) -> None:
        """Starts a step, where a ``with`` block does not fit."""
        self._resident = measure.reset_peak(self.device)

    def end(self) -> int:
        """Ends a step; returns its peak in bytes above what was resident.

        Raises:
          MeasureError: no step was begun.
        """
        if self._resident is None:
            raise MeasureError("no step was begun: call begin() before the step, or use step()")
        peak = measure.peak(self.device) - self._resident
        if peak <= 0 and not self._warned:
            self._warned = True
            warn_user(f"a step used no memory of {self.device}: name its device with device=...")
        if self._writer is not None:
            told = {"peak_bytes": peak, "resident_bytes": self._resident}
            self._writer.scalars({**told, **self._bounds}, len(self.peaks))
        self.peaks.append(peak)
        self._resident = None
        return peak

    def report(self, report: Report) -> None:
        """Writes a report beside the steps: its peaks, its picture and its text.

        From then on the predicted peak and the budget stand beside the peak of each step.
        """
        self._bounds = {
            "predicted_peak_bytes": report.running.peak_bytes,
            "budget_bytes": report.budget,
        }
        if self._writer is not None:
            self._writer.report(report, len(self.peaks))

    def close(self) -> None:
        """Ends the event file; called twice it does nothing."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
