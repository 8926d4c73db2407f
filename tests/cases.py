"""What a case of the TensorFlow tests is made of, and how two runs are compared: by their bits."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


@dataclasses.dataclass
class Case:
    """A function, the calls to make one after the other, and a view of the state behind it."""

    fn: Any
    calls: list[tuple[tuple, dict]]
    state: Callable[[], list] = list


def thrice(*args: Any, **kwargs: Any) -> list[tuple[tuple, dict]]:
    return [(args, kwargs)] * 3


def values(*variables: Any) -> Callable[[], list]:
    return lambda: [np.asarray(variable) for variable in variables]


def numbers(*shape: int, seed: int = 1) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).normal(size=shape), tf.float32)


def as_bytes(value: Any) -> tuple:
    """What is compared: type, dtype, shape and bits."""
    if isinstance(value, (tf.Tensor, tf.Variable, np.ndarray)):
        array = np.asarray(value)
        content = array.tolist() if array.dtype == object else array.tobytes()
        return ("array", array.dtype.name, array.shape, content)
    return (type(value).__name__, value)


def outcome(results: Any) -> tuple:
    """The structure of what a call returned, and the bits of its leaves."""
    structure = tf.nest.map_structure(lambda leaf: type(leaf).__name__, results)
    leaves = tf.nest.flatten(results, expand_composites=True)
    return structure, [as_bytes(leaf) for leaf in leaves]
