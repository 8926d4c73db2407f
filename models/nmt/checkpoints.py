"""Checkpoints of a training: complete or not there, the newest read first.

A checkpoint is a folder `step-00001200` that holds TensorFlow's files (weights and the optimizer's
slots) and `progress.json` (everything else). It is written under another name and renamed when all
of it is on the disk, so a crash or a full disk in between leaves the previous one as it was.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil

import tensorflow as tf

STATE, PROGRESS = "state", "progress.json"
KEPT = 2


class Checkpoints:
    """The checkpoints in one folder."""

    def __init__(self, folder: str | os.PathLike, fingerprint: dict, **state: tf.Module):
        """Looks at a folder, which need not exist yet.

        Args:
            folder: where the checkpoints are.
            fingerprint: what must be the same in a training that is resumed, to JSON.
            **state: the modules whose variables are saved.
        """
        self.folder = pathlib.Path(folder)
        self.fingerprint = fingerprint
        self._checkpoint = tf.train.Checkpoint(**state)

    def newest(self) -> pathlib.Path | None:
        """The checkpoint of the latest step, or None."""
        found = sorted(p for p in self.folder.glob("step-*") if (p / PROGRESS).is_file())
        return found[-1] if found else None

    def save(self, step: int, progress: dict) -> None:
        """Writes a checkpoint and removes old ones.

        Args:
            step: of the training.
            progress: what else is needed to go on, to JSON.

        Raises:
            OSError: it cannot be written, e.g. the disk is full; earlier ones are whole.
        """
        name = f"step-{step:08d}"
        new = self.folder / f".new-{name}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            self._checkpoint.write(str(new / STATE))
            content = {"fingerprint": self.fingerprint, "step": step, **progress}
            (new / PROGRESS).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            for file in [*new.iterdir(), new]:
                _to_disk(file)
            shutil.rmtree(self.folder / name, ignore_errors=True)
            os.rename(new, self.folder / name)
            _to_disk(self.folder)
        except (OSError, tf.errors.OpError) as error:
            shutil.rmtree(new, ignore_errors=True)
            reason = error.message if isinstance(error, tf.errors.OpError) else error
            newest = self.newest()
            kept = f"{newest.name} is whole" if newest else "there is none before it"
            raise OSError(
                f"{self.folder / name}: the checkpoint cannot be saved ({reason}); {kept}"
            ) from error
        for old in sorted(self.folder.glob("step-*"))[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def restore(self) -> dict | None:
        """Reads the newest checkpoint into the state.

        Returns:
            Its step and progress, or None where there is no checkpoint.

        Raises:
            ValueError: it is damaged, or of another model, text or training; names it.
        """
        newest = self.newest()
        if newest is None:
            return None
        try:
            progress = json.loads((newest / PROGRESS).read_text(encoding="utf-8"))
            theirs = progress.pop("fingerprint")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{newest / PROGRESS}: not a checkpoint's ({error!r})") from error
        differing = [
            f"{key} was {was!r} and is {ours!r}"
            for key, was, ours in _entries(theirs, self.fingerprint)
            if was != ours
        ]
        if differing:
            raise ValueError(
                f"{newest}: a checkpoint of another training: {'; '.join(differing)}. Give the "
                "flags it was started with, another --out, or --restart to train afresh"
            )
        try:
            status = self._checkpoint.read(str(newest / STATE))
            status.assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise ValueError(f"{newest}: damaged or of another model ({error})") from error
        return progress

    def clear(self) -> None:
        """Removes all checkpoints."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _entries(theirs, ours):
    """(name, theirs, ours) of all that both tell; what stands in a table by its own name."""
    for key in [key for key in ours if key in theirs]:
        if isinstance(ours[key], dict) and isinstance(theirs[key], dict):
            yield from _entries(theirs[key], ours[key])
        else:
            yield key, theirs[key], ours[key]


def _to_disk(path):
    """Makes sure that a file or folder survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
