"""What a case of the TensorFlow tests is made of, and how two runs are compared: by their bits."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import rnnmem


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


def weights(*shapes: tuple[int, ...]) -> list[tf.Variable]:
    return [
        tf.Variable(numbers(*shape, seed=seed) * 0.5 / np.sqrt(shape[0]))
        for seed, shape in enumerate(shapes)
    ]


def train(loss_of: Callable, variables: list[tf.Variable], rate: float = 0.05) -> Callable:
    """A step that returns loss and gradients, and walks down them."""

    def step(*args, **kwargs):
        with tf.GradientTape() as tape:
            loss = loss_of(*args, **kwargs)
        gradients = tape.gradient(loss, variables)
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(rate * tf.convert_to_tensor(gradient))
        return loss, gradients

    return step


def _run(case: Case, optimised: bool, **options: Any) -> list:
    if optimised:
        fn = rnnmem.optimize(case.fn, **options)
    else:
        fn = case.fn if hasattr(case.fn, "python_function") else tf.function(case.fn)
    return [
        (outcome(fn(*args, **kwargs)), [as_bytes(one) for one in case.state()])
        for args, kwargs in case.calls
    ]


def assert_same_bits(make: Callable[[], Case], **options: Any) -> None:
    """Runs a case as TensorFlow runs it, then, made again, under ``optimize``."""
    tf.random.set_seed(11)
    expected = _run(make(), optimised=False)
    tf.random.set_seed(11)
    found = _run(make(), optimised=True, **options)
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        assert other == one, f"call {number} differs"
