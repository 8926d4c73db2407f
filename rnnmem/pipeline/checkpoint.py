"""Saving and restoring every stage's variables and optimizer, as a TensorFlow checkpoint.

The files are written and read by this process; workers need no common file system.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rnnmem.errors import OptionError
from rnnmem.pipeline.states import StageState

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


def write(states: list[StageState], path: str | os.PathLike) -> str:
    """Writes a checkpoint; returns its path."""
    return _checkpoint(states).write(os.fspath(path), _here())


def open_checkpoint(path: str | os.PathLike) -> Any:
    """A reader of a checkpoint.

    Raises:
      OptionError: there is none, or it cannot be read.
    """
    try:
        return tf.train.load_checkpoint(os.fspath(path))
    except (tf.errors.OpError, ValueError, TypeError) as error:
        raise OptionError(f"path={path!r} is no checkpoint that can be read: {error}") from error


def read(states: Sequence[StageState], path: str | os.PathLike) -> None:
    """Puts a checkpoint's values into all stages; nothing is changed unless all of them fit.

    Raises:
      OptionError: the checkpoint is of other stages.
    """
    reader = open_checkpoint(path)
    held = {
        name.removesuffix(_VALUE): tuple(shape)
        for name, shape in reader.get_variable_to_shape_map().items()
        if name.startswith("stage_") and name.endswith(_VALUE)
    }
    wanted = {
        f"stage_{state.index}/{part}/{i}": (state, variable)
        for state in states
        for part, variables in state.state.items()
        for i, variable in enumerate(variables)
    }
    for name, (state, variable) in wanted.items():
        if held.get(name) != tuple(variable.shape):
            raise OptionError(
                f"path={path!r} does not fit stage {state.index} ({state.name}): {variable.name} "
                f"has shape {tuple(variable.shape)}, the checkpoint has {held.get(name)}"
            )
    extra = sorted(held.keys() - wanted.keys())
    if extra:
        raise OptionError(
            f"path={path!r} holds {', '.join(extra[:3])}, which no stage here has: it was saved "
            "from other stages or with another optimizer"
        )
    for name, (_, variable) in wanted.items():
        variable.assign(reader.get_tensor(name + _VALUE))


def _checkpoint(states: list[StageState]) -> tf.train.Checkpoint:
    return tf.train.Checkpoint(
        **{f"stage_{state.index}": tf.train.Checkpoint(**state.state) for state in states}
    )


def _here() -> tf.train.CheckpointOptions:
    # Named in full: what is left out would be taken from the variable's own device.
    device = "/job:localhost/replica:0/task:0/device:CPU:0"
    return tf.train.CheckpointOptions(experimental_io_device=device)
