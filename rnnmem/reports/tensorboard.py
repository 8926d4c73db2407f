"""Peaks as scalars and the report's picture as an image, for TensorBoard."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from rnnmem.errors import OptionError

if TYPE_CHECKING:
    from rnnmem.reports.report import Report


class Writer:
    """Writes event files into a folder; use it in a ``with`` block, or close it.

    Args:
      log_dir: the folder.

    Raises:
      OptionError: tensorboard is missing.
    """

    def __init__(self, log_dir: str | os.PathLike):
        try:
            import tensorboard  # noqa: F401
        except ImportError:
            raise OptionError(
                f"log_dir={os.fspath(log_dir)!r} needs tensorboard: pip install 'rnnmem[report]'"
            ) from None
        self._writer = tf.summary.create_file_writer(os.fspath(log_dir))

    def scalars(self, values: dict[str, float | None], step: int) -> None:
        """Writes numbers by name; those that are None are not known, and left out."""
        with self._writer.as_default(step):
            for name, value in values.items():
                if value is not None:
                    tf.summary.scalar(f"memory/{name}", float(value))

    def report(self, report: Report, step: int = 0) -> None:
        """Writes a report: peaks as scalars, the picture as an image, the table as text."""
        self.scalars(
            {
                "predicted_peak_bytes_before": report.before.peak_bytes,
                "predicted_peak_bytes_after": report.after.peak_bytes,
                "measured_peak_bytes_before": report.before.measured_bytes,
                "measured_peak_bytes_after": report.after.measured_bytes,
                "budget_bytes": report.budget,
            },
            step,
        )
        picture = tf.io.decode_png(report.to_png(), channels=3)[None]
        with self._writer.as_default(step):
            tf.summary.image("memory/timeline", picture)
            tf.summary.text("memory/report", f"```\n{report}\n```")

    def flush(self) -> None:
        """Puts on disk what was written so far."""
        self._writer.flush()

    def close(self) -> None:
        """Ends the event file."""
        self._writer.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()
