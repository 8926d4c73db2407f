"""What each op type takes beside its estimate, from which the op table's weights come.

    python -m benchmarks.op_times                      # every type that runs on a matrix of numbers
    python -m benchmarks.op_times --op=Tan --op=Lgamma

Copies of the op run one after the other, on a matrix of 64 by 512 numbers and on one of 4 by 4.
What the larger takes more, as a multiple of an addition, is the weight that the table should have:
an ``Exp`` weighs 4. An idle machine is needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from absl import app, flags

from rnnmem.ir.op_table import MAY_RERUN, TABLE, Work, types
from rnnmem.tf import microbenchmarks
from rnnmem.tf.private import op_def

FLAGS = flags.FLAGS
LARGE, SMALL = (64, 512), (4, 4)
COPIES = 16
WORKS = (Work.POINTWISE, Work.READS)
DTYPES = (tf.float32, tf.int32, tf.bool, tf.complex64)
"""The first of these that an op takes."""
ABOVE_ONE = frozenset({"Acosh", "Zeta", "Polygamma"})
"""Types that want numbers above 1; others have some between 0 and 1."""
AROUND_ONE = frozenset({"Erfc"})
"""Types that compute numbers beyond 1 in another way: such numbers are among theirs."""
AXES = frozenset({"axis", "reduction_indices", "dimension"})
"""Names of inputs that tell the axis: the last."""


def values(op_type: str, dtype: tf.DType, shape: tuple[int, ...]) -> tf.Tensor:
    """Numbers that the op is defined for."""
    numbers = np.random.default_rng(0).uniform(0.1, 0.9, shape) + (op_type in ABOVE_ONE)
    if op_type in AROUND_ONE:
        numbers = 4 * numbers - 2
    if dtype.is_integer:
        numbers = 1 + 9 * numbers
    return tf.constant((numbers > 0.5) if dtype == tf.bool else numbers, dtype)


def arguments(op_type: str, shape: tuple[int, ...]) -> dict[str, Any] | None:
    """What the op is given by name; None where it wants more than matrices of numbers."""
    definition = op_def(op_type)
    if definition is None:
        return None  # registered once it is used
    free = {attr.name: attr for attr in definition.attr}
    found: dict[str, Any] = {}
    for given in definition.input_arg:
        if given.name in AXES:
            found[given.name] = tf.constant(1)
        elif given.number_attr or given.type_list_attr:
            return None
        else:
            asked = free[given.type_attr].allowed_values.list.type if given.type_attr else ()
            allowed = asked or (DTYPES if given.type_attr else (given.type,))
            dtype = next((one for one in DTYPES if one in allowed), None)
            if dtype is None:
                return None
            found[given.name] = values(op_type, dtype, shape)
    return found


def chained(run: Callable, given: dict[str, Any], copies: int) -> Callable:
    """Copies of an op, one after the other: each is read, or TensorFlow takes it out."""

    @tf.function
    def function(**given):
        results: list[Any] = []
        for _ in range(copies):
            with tf.control_dependencies(results[-1:]):
                results.append(tf.nest.flatten(run(**given))[0])
        return results

    return function.get_concrete_function(**given)


def seconds(op_type: str, shape: tuple[int, ...]) -> float | None:
    """What one run of the op takes; None where it does not run on a matrix of numbers."""
    given = arguments(op_type, shape)
    if not given:
        return None
    run = getattr(tf.raw_ops, op_type)
    axes = {name: given.pop(name) for name in AXES & given.keys()}
    try:
        several, one = (
            microbenchmarks.seconds(
                functools.partial(chained(functools.partial(run, **axes), given, copies), **given)
            )
            for copies in (COPIES + 1, 1)
        )
    except (tf.errors.OpError, TypeError, ValueError):
        return None
    return max(0.0, several - one) / COPIES


def rows(names: list[str]) -> Iterator[tuple[str, float, float, float, float]]:
    """Type, its weight in the table, that measured, and seconds of the small and the large run."""
    elements = LARGE[0] * LARGE[1]
    small, large = (seconds("Exp", shape) or 0.0 for shape in (SMALL, LARGE))
    addition = (large - small) / elements / TABLE["Exp"].weight
    for name in names:
        found = [seconds(name, shape) for shape in (SMALL, LARGE)]
        if None not in found:
            small, large = found
            yield name, TABLE[name].weight, (large - small) / elements / addition, small, large


def main(_):
    """Prints the table: a type whose weight is off by more than a half is marked."""
    known = MAY_RERUN | types("pure")
    names = FLAGS.op or [one for one in TABLE if TABLE[one].work in WORKS and one in known]
    print(f"{'op type':32}{'weight':>8}{'measured':>10}{'small':>9}{'large':>9}")
    for name, weight, measured, small, large in rows(names):
        off = "" if weight / 1.5 <= max(1.0, measured) <= weight * 1.5 else "  OFF"
        times = f"{small * 1e6:7.1f}us{large * 1e6:7.1f}us"
        print(f"{name:32}{weight:8.1f}{measured:10.1f}{times}{off}", flush=True)


if __name__ == "__main__":
    flags.DEFINE_multi_string("op", None, "op types (default: all that can be measured)")
    app.run(main)
