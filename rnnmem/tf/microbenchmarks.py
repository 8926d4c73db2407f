"""Small graphs whose times tell what TensorFlow's executor and its kernels cost here.

Each measurement is a difference: a graph with some copies of a thing, and one that has fewer. What
the executor does is measured in loops, because that is where small ops matter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from rnnmem.tf.own_devices import sync_devices

ITERATIONS = 60
"""Of the loops that are run."""
REPEATS = 40
"""Runs of one graph at most; the fastest counts, for whatever else runs only adds to it."""
LEAST_REPEATS = 4
RUN_SECONDS = 0.02
"""Time for which one graph is run, about."""
WARM = 3
"""Runs before: TensorFlow traces the graph, and learns which kernels are cheap."""
THIN_ROWS = 16

Step = Callable[..., Sequence[Any]]
"""Values of one iteration -> those of the next."""


def seconds(
    run: Callable[..., Any], *inputs: Any, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of the fastest of some runs, by the wall's clock: kernels share work among cores."""
    for _ in range(WARM):
        run(*inputs)
    found: list[float] = []
    while len(found) < LEAST_REPEATS or (sum(found) < RUN_SECONDS and len(found) < REPEATS):
        sync_devices()
        start = clock()
        run(*inputs)
        sync_devices()
        found.append(clock() - start)
    return min(found)


def _iteration_seconds(run: Callable[..., Any], start: tf.Tensor) -> float:
    """CPU seconds of an iteration of a run's loops: a busy machine leaves them as they are.

    On a GPU, for which the CPU only waits, it is the wall's seconds.
    """
    on_gpu = tf.config.list_logical_devices("GPU")
    clock = time.perf_counter if on_gpu else time.process_time
    return seconds(run, start, clock=clock) / ITERATIONS


def loop(step: Step, variables: int, shape: Sequence[int] = (4, 4)) -> float:
    """CPU seconds of one iteration of a loop over so many values."""

    @tf.function(autograph=False)
    def run(value: tf.Tensor) -> Any:
        values = [value + float(number) for number in range(variables)]
        return tf.while_loop(_goes_on, lambda i, *held: (i + 1, *step(*held)), (0, *values))

    return _iteration_seconds(run, tf.fill(shape, 0.1))


def small_op(value: Any, other: Any = None) -> Any:
    """An op that no graph optimizer merges with another of its kind."""
    return tf.raw_ops.TanhGrad(y=value, dy=value if other is None else other)


def ops(count: int) -> Step:
    """So many small ops on the first value, one after the other."""

    def step(first: Any, *rest: Any) -> Sequence[Any]:
        for _ in range(count):
            first = small_op(first)
        return (first, *rest)

    return step


def optionals(count: int) -> Step:
    """So many optimization barriers around the first value, one after the other."""

    def step(first: Any, *rest: Any) -> Sequence[Any]:
        for _ in range(count):
            wrapped = tf.raw_ops.OptionalFromValue(components=[first])
            (first,) = tf.raw_ops.OptionalGetValue(
                optional=wrapped, output_types=[first.dtype], output_shapes=[first.shape]
            )
        return (small_op(first), *rest)

    return step


def branch(dead: int = 0) -> Step:
    """A branch op that hands on all values, and passes by so many ops that do not run."""

    def step(*held: Any) -> Sequence[Any]:
        def taken() -> list[Any]:
            return [small_op(one) for one in held]

        def passed_by() -> list[Any]:
            (first,) = ops(dead)(held[0])
            return [small_op(one) for one in (first, *held[1:])]

        return tf.cond(tf.reduce_sum(held[0][0, :1]) > -1e9, taken, passed_by)

    return step


def lists(count: int, size: int, pushes: bool = True) -> float:
    """CPU seconds of an iteration of two loops: one pushes to some lists, one pops from them.

    Args:
      count: of the lists.
      size: elements of what is pushed.
      pushes: else the same loops, without what is kept.
    """

    def forward(i: Any, held: Any, *kept: Any) -> tuple:
        made = [small_op(held, held + float(number)) for number in range(count)]
        pairs = zip(kept, made, strict=True) if pushes else ()
        return (i + 1, tf.add_n(made), *[_push(*pair) for pair in pairs])

    def backward(i: Any, held: Any, *kept: Any) -> tuple:
        popped = [_pop(one, size) for one in kept]
        items = [item for _, item in popped] or [held] * count
        made = [small_op(held, item + float(number)) for number, item in enumerate(items)]
        return (i + 1, tf.add_n(made), *[one for one, _ in popped])

    @tf.function(autograph=False)
    def run(value: tf.Tensor) -> tf.Tensor:
        empty = [_empty(size) for _ in range(count if pushes else 0)]
        _, held, *kept = tf.while_loop(_goes_on, forward, (0, value, *empty))
        return tf.while_loop(_goes_on, backward, (0, held, *kept))[1]

    return _iteration_seconds(run, tf.fill([size], 0.1))


def _goes_on(i: Any, *_: Any) -> Any:
    return i < ITERATIONS


def _empty(size: int) -> Any:
    return tf.raw_ops.EmptyTensorList(
        element_shape=[size], max_num_elements=-1, element_dtype=tf.float32
    )


def _push(held: Any, item: Any) -> Any:
    return tf.raw_ops.TensorListPushBack(input_handle=held, tensor=item)


def _pop(held: Any, size: int) -> tuple[Any, Any]:
    return tf.raw_ops.TensorListPopBack(
        input_handle=held, element_shape=[size], element_dtype=tf.float32
    )


def chained(copies: int, shape: Sequence[int], other: tf.Tensor) -> float:
    """Seconds of a product of what such a product makes: no run hands out more than one value."""

    def seconds_of(count: int) -> float:
        @tf.function(autograph=False)
        def run(value: tf.Tensor, shared: tf.Tensor) -> tf.Tensor:
            for _ in range(count):
                value = tf.matmul(value, shared)
            return value

        return seconds(run, numbers(*shape), other)

    return (seconds_of(1 + copies) - seconds_of(1)) / copies


def product(rows: int, size: int, copies: int) -> float:
    """Seconds of a product of so many rows with a square matrix, and of starting it."""
    return chained(copies, (rows, size), numbers(size, size))


def batched(copies: int) -> float:
    """Seconds of a product of several small matrices, and of starting it."""
    return chained(copies, (4, 8, 8), numbers(4, 8, 8))


def pointwise(op: Callable[[Any, Any], Any], size: int, copies: int) -> float:
    """Seconds of one of some ops that run one after the other, each with buffers of its own.

    In a step most of what an op reads and writes is out of the nearest caches, as here.

    Args:
      op: elementwise, of a value of its own and of another that all of them read.
      size: elements of their values.
      copies: how many there are.
    """

    @tf.function(autograph=False)
    def run(shared: tf.Tensor, *values: tf.Tensor) -> Sequence[tf.Tensor]:
        made: list[tf.Tensor] = []
        for value in values:
            with tf.control_dependencies(made[-1:]):
                made.append(op(value, shared))
        return made

    values = [numbers(size, seed=number) for number in range(copies)]
    return seconds(run, numbers(size), *values) / copies


def numbers(*shape: int, seed: int = 0) -> tf.Tensor:
    """Small numbers without structure."""
    return tf.random.stateless_uniform(shape, seed=[1, seed], minval=-0.01, maxval=0.01)
