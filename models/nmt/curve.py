"""The curve of a training: every loss with its bits in a text file, and summaries for TensorBoard.

Summaries are written as TensorBoard reads them, without the package itself.
"""

from __future__ import annotations

import os
import pathlib

import numpy as np
import tensorflow as tf

LOSSES, SUMMARIES = "losses.tsv", "summaries"


class Curve:
    """Writes what a training is told to; what lies behind the step it goes on from is dropped."""

    def __init__(self, folder: str | os.PathLike, step: int):
        """Opens the files.

        Args:
            folder: of the training.
            step: that the training goes on from; 0 is for a new one.

        Raises:
            ValueError: the file of losses does not reach that step.
        """
        path = pathlib.Path(folder) / LOSSES
        lines = path.read_bytes().splitlines(True)[:step] if step and path.is_file() else []
        if len(lines) < step:
            raise ValueError(f"{path}: {len(lines)} losses, the checkpoint is of step {step}")
        self._file = open(path, "a", buffering=1, encoding="ascii")
        self._file.truncate(sum(map(len, lines)))
        self._writer = tf.summary.create_file_writer(str(pathlib.Path(folder) / SUMMARIES))

    def add(self, step: int, loss: np.ndarray, **more: float) -> None:
        """Notes a step's loss, float32, and whatever else is told."""
        self._file.write(f"{step}\t{float(loss)!r}\t{loss.tobytes().hex()}\n")
        for name, value in {"loss": loss, **more}.items():
            self._scalar(f"train/{name}", value, step)

    def validation(self, step: int, loss: float, bleu: float | None) -> None:
        """Notes what the validation said."""
        self._scalar("validation/loss", loss, step)
        if bleu is not None:
            self._scalar("validation/BLEU", bleu, step)

    def flush(self) -> None:
        """Brings all of it to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._writer.flush()

    def _scalar(self, name, value, step):
        metadata = tf.compat.v1.SummaryMetadata()
        metadata.plugin_data.plugin_name = "scalars"
        with self._writer.as_default():
            tf.summary.write(name, tf.constant(value, tf.float32), step, metadata=metadata)
