"""The recurrent programs that people write, each small, each with a fixed seed.

A program makes a ``Case``: a forward pass over its inputs, its variables, and what counts its side
effects. ``train_step`` makes a whole train step of any case, so a property is written once and
meets every program. A program that cannot be written as forward pass plus gradient brings a step
of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

T, B, D, H = 16, 16, 8, 32
"""Time steps, batch, features, hidden units."""

LARGE = {"T": 48, "B": 64, "D": 32, "H": 128}
"""The same where a blob is large against what the allocator rounds it up to."""

LEARNING_RATE = 0.125

Forward = Callable[..., tuple[tf.Tensor, Any]]


@dataclasses.dataclass
class Case:
    """One freshly built program.

    Attributes:
      forward: inputs -> (loss, other outputs).
      variables: trainable variables.
      inputs: what the first step is called with; the same for each step.
      step: a whole train step where ``forward`` alone does not say it; None: ``train_step``.
      effects: side effects so far, as something that ``==`` compares.
      state: variables that are not trained but change.
      longer: inputs of the same signature with which loops of unknown length run thrice as often;
        empty where there is no such loop.
    """

    forward: Forward | None
    variables: list[tf.Variable]
    inputs: tuple[Any, ...]
    step: Callable[..., Any] | None = None
    effects: Callable[[], Any] = lambda: ()
    state: list[tf.Variable] = dataclasses.field(default_factory=list)
    longer: tuple[Any, ...] = ()


@dataclasses.dataclass(frozen=True)
class Program:
    """A row of the table.

    Attributes:
      name: unique; ``group.detail``.
      make: dtype name -> a fresh case.
      dtypes: the dtypes that it can be made of.
      known: whether every shape and trip count is known when it is traced.
      longer: whether its cases have inputs at which loops run longer.
    """

    name: str
    make: Callable[[str], Case]
    dtypes: tuple[str, ...] = ("float32", "float64")
    known: bool = True
    longer: bool = False

    @property
    def is_keras(self) -> bool:
        """Whether the program is a Keras model with one input."""
        return self.name.startswith("keras.")


PROGRAMS: dict[str, Program] = {}


def program(name: str, **fields: Any):
    """Adds the decorated maker to the table."""

    def add(make):
        assert name not in PROGRAMS, name
        PROGRAMS[name] = Program(name, make, **fields)
        return make

    return add


def build(name: str, dtype: str = "float32") -> Case:
    """A fresh case of a program, the same at each call."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(7)
    return PROGRAMS[name].make(dtype)


@contextlib.contextmanager
def sized(**sizes: int) -> Iterator[None]:
    """Within it, programs are built and traced with other sizes of ``T``, ``B``, ``D``, ``H``."""
    here = globals()
    before = {name: here[name] for name in sizes}
    here.update(sizes)
    try:
        yield
    finally:
        here.update(before)


def train_step(case: Case) -> Callable[..., Any]:
    """The whole step: loss, outputs, gradients of all variables and float inputs, update."""
    if case.step is not None:
        return case.step

    def step(*inputs):
        watched = floats(inputs)
        with tf.GradientTape() as tape:
            tape.watch(watched)
            loss, outputs = case.forward(*inputs)
        gradients = tape.gradient(loss, [*case.variables, *watched])
        update(case.variables, gradients)
        return loss, outputs, [one for one in gradients if one is not None]

    return step


def floats(inputs) -> list[tf.Tensor]:
    """The float tensors among the inputs."""
    flat = tf.nest.flatten(inputs, expand_composites=True)
    return [one for one in flat if one.dtype.is_floating]


def update(variables, gradients) -> None:
    """Plain gradient descent, sparse where the gradient is."""
    for variable, gradient in zip(variables, gradients, strict=False):
        if isinstance(gradient, tf.IndexedSlices):
            variable.scatter_sub(
                tf.IndexedSlices(LEARNING_RATE * gradient.values, gradient.indices)
            )
        elif gradient is not None:
            variable.assign_sub(tf.cast(LEARNING_RATE, gradient.dtype) * gradient)


# The parts that programs are made of.


def values(*shape: int, dtype: str = "float32", scale: float = 1.0, seed: int = 0) -> tf.Tensor:
    """Fixed numbers without structure."""
    drawn = np.random.RandomState(seed + sum(shape)).standard_normal(shape) * scale
    return tf.constant(drawn, dtype)


def weights(*shape: int, dtype: str = "float32", seed: int = 0) -> tf.Variable:
    """A variable whose products neither vanish nor explode."""
    scale = 1.0 / np.sqrt(shape[0]) if len(shape) > 1 else 0.1
    return tf.Variable(values(*shape, dtype=dtype, scale=scale, seed=seed))


class Cell:
    """A gated cell written by hand, weights read at each call."""

    def __init__(self, inputs: int, units: int, dtype: str, seed: int = 0):
        self.w = weights(inputs, 2 * units, dtype=dtype, seed=seed)
        self.u = weights(units, 2 * units, dtype=dtype, seed=seed + 1)
        self.b = weights(2 * units, dtype=dtype, seed=seed + 2)
        self.variables = [self.w, self.u, self.b]

    def __call__(self, x, h):
        gate, candidate = tf.split(x @ self.w + h @ self.u + self.b, 2, axis=-1)
        gate = tf.sigmoid(gate)
        return gate * h + (1.0 - gate) * tf.tanh(candidate)


def simple(body, *, dtype: str, extra=(), time=None, known: bool = True, loop=None) -> Case:
    """A ``tf.while_loop`` over time whose step is ``body(i, x, h, cell) -> h``."""
    time = time or T
    cell = Cell(D, H, dtype)

    def forward(x, h):
        stop = time if known else tf.shape(x)[0]

        def step(i, h):
            return i + 1, body(i, x, h, cell)

        _, h = (loop or tf.while_loop)(lambda i, h: i < stop, step, (0, h))
        return tf.reduce_mean(h * h), h

    inputs = values(time, B, D, dtype=dtype), values(B, H, dtype=dtype)
    return Case(forward, [*cell.variables, *extra], inputs)


def one_at_a_time(cond, body, state):
    """A loop whose draws come in the order of its iterations: else TensorFlow's own bits vary."""
    return tf.while_loop(cond, body, state, parallel_iterations=1)


def over_time(cell: Cell, x, h):
    """All states of a cell, stacked along time."""
    states = tf.TensorArray(x.dtype, T)

    def step(i, h, states):
        h = cell(x[i], h)
        return i + 1, h, states.write(i, h)

    _, _, states = tf.while_loop(lambda i, *_: i < T, step, (0, h, states))
    return states.stack()


def squares(tensor) -> tf.Tensor:
    """A loss whose gradient cannot vanish."""
    return tf.reduce_mean(tf.square(tensor))


# tf.while_loop


@program("while.known_trips")
def _known_trips(dtype):
    return simple(lambda i, x, h, cell: cell(x[i], h), dtype=dtype)


@program("while.maximum_iterations")
def _maximum_iterations(dtype):
    def loop(cond, body, state):
        return tf.while_loop(cond, body, state, maximum_iterations=T)

    return simple(lambda i, x, h, cell: cell(x[i], h), dtype=dtype, loop=loop)


@program("while.maximum_iterations_tensor", known=False)
def _maximum_iterations_tensor(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h, limit):
        _, h = tf.while_loop(
            lambda i, h: i < T,
            lambda i, h: (i + 1, cell(x[i], h)),
            (0, h),
            maximum_iterations=limit,
        )
        return squares(h), h

    inputs = values(T, B, D, dtype=dtype), values(B, H, dtype=dtype), tf.constant(T - 3)
    return Case(forward, cell.variables, inputs)


@program("while.trips_tensor", known=False)
def _trips_tensor(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h, stop):
        _, h = tf.while_loop(
            lambda i, h: i < stop, lambda i, h: (i + 1, cell(x[i], h)), (tf.constant(0), h)
        )
        return squares(h), h

    inputs = values(T, B, D, dtype=dtype), values(B, H, dtype=dtype), tf.constant(T)
    return Case(forward, cell.variables, inputs)


@program("while.zero_trips", known=False)
def _zero_trips(dtype):
    case = _trips_tensor(dtype)
    return dataclasses.replace(case, inputs=(*case.inputs[:2], tf.constant(0)))


@program("while.zero_trips_known")
def _zero_trips_known(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        _, h = tf.while_loop(lambda i, h: i < 0, lambda i, h: (i + 1, cell(x[i], h)), (0, h))
        return squares(h), h

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("while.one_trip")
def _one_trip(dtype):
    return simple(lambda i, x, h, cell: cell(x[i], h), dtype=dtype, time=1)


@program("while.data_dependent", known=False)
def _data_dependent(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        def going(i, h, moved):
            return tf.logical_and(i < T, moved > 1e-3)

        def step(i, h, moved):
            new = 0.5 * cell(x[i], h)
            return i + 1, new, tf.reduce_mean(tf.abs(new - h))

        trips, h, _ = tf.while_loop(going, step, (0, h, tf.constant(1.0, dtype)))
        return squares(h), (h, trips)

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("while.parallel_iterations_1")
def _one_at_a_time(dtype):
    return simple(lambda i, x, h, cell: cell(x[i], h), dtype=dtype, loop=one_at_a_time)


@program("while.shape_invariants", known=False)
def _shape_invariants(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        def step(i, h, seen):
            h = cell(x[i], h) + 0.1 * tf.reduce_mean(seen, axis=0)
            return i + 1, h, tf.concat([seen, h[None]], axis=0)

        _, h, seen = tf.while_loop(
            lambda i, *_: i < T,
            step,
            (0, h, h[None]),
            shape_invariants=(
                tf.TensorShape([]),
                tf.TensorShape([B, H]),
                tf.TensorShape([None, B, H]),
            ),
        )
        return squares(h) + squares(seen), h

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("while.function_called_in_body")
def _function_in_body(dtype):
    case = simple(None, dtype=dtype)
    cell = Cell(D, H, dtype)

    @tf.function
    def inner(x, h):
        return cell(x, h)

    @tf.function
    def outer(x, h):
        return inner(x, h) + 0.5 * inner(x, tf.tanh(h))

    def forward(x, h):
        _, h = tf.while_loop(lambda i, h: i < T, lambda i, h: (i + 1, outer(x[i], h)), (0, h))
        return squares(h), h

    return Case(forward, cell.variables, case.inputs)


@program("while.loop_in_a_called_function")
def _loop_in_function(dtype):
    cell = Cell(D, H, dtype)

    @tf.function
    def states(x, h):
        return over_time(cell, x, h)

    def forward(x, h):
        hs = states(x, h)
        return squares(hs), hs

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("while.captured_tensor")
def _captured(dtype):
    cell = Cell(D, H, dtype)
    outside = values(B, H, dtype=dtype, seed=3)
    scale = weights(B, H, dtype=dtype, seed=4)

    def forward(x, h):
        derived = tf.tanh(tf.exp(scale) * outside)

        def step(i, h):
            return i + 1, cell(x[i], h) * derived + 0.3 * tf.sin(derived) * h

        _, h = tf.while_loop(lambda i, h: i < T, step, (0, h))
        return squares(h), h

    inputs = values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)
    return Case(forward, [*cell.variables, scale], inputs)


@program("while.unused_and_passed_state")
def _passed_state(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        def step(i, h, before, label, flag):
            return i + 1, cell(x[i], h + 0.5 * before), h, label, tf.logical_not(flag)

        start = (0, h, tf.zeros_like(h), tf.constant("label"), tf.constant(True))
        _, h, before, label, flag = tf.while_loop(lambda i, *_: i < T, step, start)
        return squares(h) + squares(before), (h, before, label, flag)

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("while.rotation")
def _rotation(dtype):
    angle = weights(H // 2, dtype=dtype)

    def forward(h):
        def step(i, h):
            a, b = tf.split(h, 2, axis=-1)
            c, s = tf.cos(angle), tf.sin(angle)
            return i + 1, tf.concat([c * a - s * b, s * a + c * b], axis=-1)

        _, h = tf.while_loop(lambda i, h: i < T, step, (0, h))
        return tf.reduce_sum(h[:, 0] * h[:, 1]), h

    return Case(forward, [angle], (values(B, H, dtype=dtype),))


@program("while.einsum_layernorm_softmax")
def _einsum(dtype):
    w = weights(H, H, dtype=dtype)
    gain, offset = weights(H, dtype=dtype, seed=2), weights(H, dtype=dtype, seed=3)

    def forward(memory, h):
        def step(i, h):
            mean, variance = tf.nn.moments(h, axes=[-1], keepdims=True)
            normed = tf.nn.batch_normalization(h, mean, variance, offset, 1.0 + gain, 1e-3)
            query = tf.einsum("bh,hk->bk", normed, w)
            scores = tf.nn.softmax(tf.einsum("bk,btk->bt", query, memory))
            return i + 1, h + tf.einsum("bt,btk->bk", scores, memory)

        _, h = tf.while_loop(lambda i, h: i < T, step, (0, h))
        return squares(h), h

    inputs = values(B, 6, H, dtype=dtype), values(B, H, dtype=dtype)
    return Case(forward, [w, gain, offset], inputs)


@program("while.convolution", dtypes=("float32",))
def _convolution(dtype):
    kernel = tf.Variable(values(3, 3, 2, 4, dtype=dtype, scale=0.3))
    back = tf.Variable(values(3, 3, 4, 2, dtype=dtype, scale=0.3))
    bias = weights(4, dtype=dtype)

    def forward(image):
        def step(i, image):
            hidden = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(image, kernel, 1, "SAME"), bias))
            return i + 1, image + 0.1 * tf.nn.conv2d(hidden, back, 1, "SAME")

        _, image = tf.while_loop(lambda i, _: i < T, step, (0, image))
        return squares(image), image

    return Case(forward, [kernel, back, bias], (values(4, 8, 8, 2, dtype=dtype),))


@program("while.dense_relu_chain")
def _dense_relu(dtype):
    first, second = weights(H, H, dtype=dtype), weights(H, H, dtype=dtype, seed=1)
    bias = weights(H, dtype=dtype)

    def forward(h):
        def step(i, h):
            hidden = tf.nn.relu(tf.nn.bias_add(h @ first, bias))
            return i + 1, 0.5 * h + 0.5 * tf.nn.elu(tf.nn.bias_add(hidden @ second, bias))

        _, h = tf.while_loop(lambda i, h: i < T, step, (0, h))
        return squares(h), h

    return Case(forward, [first, second, bias], (values(B, H, dtype=dtype),))


@program("while.pointwise_zoo")
def _pointwise_zoo(dtype):
    scale = weights(H, dtype=dtype)

    def forward(h):
        def step(i, h):
            a = tf.square(h) * h + h * 2.0 * 3.0 - (h + h)
            b = tf.sqrt(tf.abs(a) + 1.0) / (1.0 + tf.exp(-h))
            c = tf.transpose(tf.transpose(a * scale + b * scale))
            d = tf.where(c > 0, tf.math.log1p(tf.abs(c)), tf.math.expm1(tf.minimum(c, 0.0)))
            e = tf.pow(tf.abs(d) + 0.5, 2.0) + tf.pow(tf.abs(d) + 0.5, 0.5)
            return i + 1, tf.tanh(tf.reshape(tf.reshape(e, [-1]), tf.shape(h)) * 0.25 + h)

        _, h = tf.while_loop(lambda i, h: i < T, step, (0, h))
        return squares(h), h

    return Case(forward, [scale], (values(B, H, dtype=dtype),))


@program("while.complex_state", dtypes=("float32",))
def _complex_state(dtype):
    phase = weights(H, dtype=dtype)

    def forward(h):
        def step(i, z):
            edge = tf.complex(tf.cos(phase), tf.sin(phase))
            return i + 1, z * edge + tf.cast(0.1 * tf.abs(z), tf.complex64)

        _, z = tf.while_loop(lambda i, z: i < T, step, (0, tf.complex(h, 0.5 * h)))
        return squares(tf.math.real(z)), z

    return Case(forward, [phase], (values(B, H, dtype=dtype),))


# AutoGraph


@program("autograph.range")
def _autograph_range(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        for i in tf.range(T):
            h = cell(x[i], h)
        return squares(h), h

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("autograph.range_tensor", known=False)
def _autograph_range_tensor(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h, stop):
        for i in tf.range(stop):
            h = cell(x[i], h)
        return squares(h), h

    inputs = values(T, B, D, dtype=dtype), values(B, H, dtype=dtype), tf.constant(T)
    return Case(forward, cell.variables, inputs)


@program("autograph.over_tensor")
def _autograph_over_tensor(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        for row in x:
            h = cell(row, h)
        return squares(h), h

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("autograph.while", known=False)
def _autograph_while(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        i = tf.constant(0)
        while tf.reduce_mean(tf.abs(h)) > 1e-3 and i < T:
            h = 0.7 * cell(x[i], h)
            i += 1
        return squares(h), (h, i)

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("autograph.break_continue", known=False)
def _autograph_break(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        for i in tf.range(T):
            if i % 3 == 1:
                continue
            h = cell(x[i], h)
            if tf.reduce_mean(tf.abs(h)) < 1e-3 or i > T - 3:
                break
        return squares(h), h

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


# tf.scan, tf.foldl, tf.map_fn


@program("functional.scan")
def _scan(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        states = tf.scan(lambda h, row: cell(row, h), x, initializer=h)
        return squares(states), states

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("functional.scan_last")
def _scan_last(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        last = tf.scan(lambda h, row: cell(row, h), x, initializer=h)[-1]
        return squares(last), last

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("functional.scan_reverse_structured")
def _scan_reverse(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        def step(state, row):
            new = cell(row, state[0])
            return new, 0.5 * state[1] + tf.tanh(new)

        states = tf.scan(step, x, initializer=(h, tf.zeros_like(h)), reverse=True)
        return squares(states[0]) + squares(states[1]), states

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("functional.foldl")
def _foldl(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        h = tf.foldl(lambda h, row: cell(row, h), x, initializer=h)
        return squares(h), h

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("functional.foldr")
def _foldr(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        h = tf.foldr(lambda h, row: cell(row, h), x, initializer=h)
        return squares(h), h

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("functional.map_fn")
def _map_fn(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        rows = tf.map_fn(
            lambda row: tf.tanh(cell(row, h)) * tf.sigmoid(h),
            x,
            fn_output_signature=tf.TensorSpec([B, H], dtype),
        )
        return squares(rows), rows

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


# TensorArrays


@program("tensorarray.write_read")
def _tensorarray(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        rows = tf.TensorArray(x.dtype, T).unstack(x)
        states = tf.TensorArray(x.dtype, T)

        def step(i, h, states):
            h = cell(rows.read(i), h)
            return i + 1, h, states.write(i, h)

        _, _, states = tf.while_loop(lambda i, *_: i < T, step, (0, h, states))
        hs = states.stack()
        return squares(hs), hs

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("tensorarray.dynamic_size", known=False)
def _tensorarray_dynamic(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h, stop):
        states = tf.TensorArray(x.dtype, 0, dynamic_size=True, element_shape=[B, H])
        for i in tf.range(stop):
            h = cell(x[i], h)
            states = states.write(i, h)
        hs = states.stack()
        return squares(hs), hs

    inputs = values(T, B, D, dtype=dtype), values(B, H, dtype=dtype), tf.constant(T)
    return Case(forward, cell.variables, inputs)


@program("tensorarray.reads_earlier_steps")
def _tensorarray_earlier(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        states = tf.TensorArray(x.dtype, T + 2, clear_after_read=False, element_shape=[B, H])
        states = states.write(0, h).write(1, tf.tanh(h))

        def step(i, states):
            h = cell(x[i], states.read(i + 1) + 0.5 * states.read(i))
            return i + 1, states.write(i + 2, h)

        _, states = tf.while_loop(lambda i, *_: i < T, step, (0, states))
        hs = states.stack()
        return squares(hs), hs

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("tensorarray.gather_scatter")
def _tensorarray_gather(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        rows = tf.TensorArray(x.dtype, T).scatter(tf.range(T)[::-1], x)
        states = tf.TensorArray(x.dtype, T)

        def step(i, h, states):
            h = cell(rows.read(i), h)
            return i + 1, h, states.write(i, h)

        _, _, states = tf.while_loop(lambda i, *_: i < T, step, (0, h, states))
        hs = states.gather([0, 2, T - 1])
        return squares(hs), hs

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


# Nested loops


@program("nested.two_deep")
def _nested_two(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        def inner(j, h):
            return j + 1, 0.9 * h + 0.1 * tf.tanh(cell(x[j], h))

        def outer(i, h):
            _, h = tf.while_loop(lambda j, _: j < 4, inner, (0, h))
            return i + 1, tf.sigmoid(h) * h + tf.sin(h)

        _, h = tf.while_loop(lambda i, _: i < 6, outer, (0, h))
        return squares(h), h

    return Case(forward, cell.variables, (values(4, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("nested.three_deep")
def _nested_three(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        def third(k, h):
            return k + 1, 0.8 * h + 0.2 * tf.tanh(cell(x[k], h))

        def second(j, h):
            _, h = tf.while_loop(lambda k, _: k < 3, third, (0, h))
            return j + 1, tf.sin(h) * tf.cos(h) + h

        def first(i, h):
            _, h = tf.while_loop(lambda j, _: j < 2, second, (0, h))
            return i + 1, tf.sigmoid(h) * h

        _, h = tf.while_loop(lambda i, _: i < 3, first, (0, h))
        return squares(h), h

    return Case(forward, cell.variables, (values(4, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("nested.inner_trips_vary", known=False)
def _nested_vary(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        for i in tf.range(5):
            scale = tf.tanh(h)
            for j in tf.range(i):
                h = cell(x[j], h) * scale
            h = h + tf.sin(scale)
        return squares(h), h

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("nested.scan_in_scan")
def _nested_scan(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        def outer(h, row):
            return tf.scan(
                lambda inner, part: cell(part, inner) * 0.5 + tf.tanh(inner),
                tf.stack([row, -row, row * row]),
                initializer=h,
            )[-1]

        states = tf.scan(outer, x, initializer=h)
        return squares(states), states

    return Case(forward, cell.variables, (values(6, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("nested.keras_in_loop")
def _nested_keras(dtype):
    layer = keras.layers.GRU(H, dtype=dtype)
    layer.build((B, 6, H))

    def forward(x, h):
        for _ in tf.range(4):
            h = h + 0.5 * layer(x + h[:, None])
        return squares(h), h

    inputs = values(B, 6, H, dtype=dtype), values(B, H, dtype=dtype)
    return Case(forward, [one.value for one in layer.trainable_variables], inputs)


# Branches in the body


@program("branch.cond")
def _cond(dtype):
    def body(i, x, h, cell):
        return tf.cond(
            i % 2 == 0,
            lambda: cell(x[i], h),
            lambda: tf.sin(h) * tf.cos(h) + 0.5 * cell(x[i], tf.tanh(h)),
        )

    return simple(body, dtype=dtype)


@program("branch.cond_then_more")
def _cond_then_more(dtype):
    def body(i, x, h, cell):
        a = tf.tanh(cell(x[i], h))
        b = tf.cond(tf.reduce_sum(a) > 0, lambda: a * a, lambda: tf.exp(-a * a))
        return tf.sigmoid(a) * b + tf.sin(b)

    return simple(body, dtype=dtype)


@program("branch.switch_case")
def _switch_case(dtype):
    def body(i, x, h, cell):
        return tf.switch_case(
            i % 3,
            [
                lambda: cell(x[i], h),
                lambda: tf.sin(h) * tf.cos(h) + h,
                lambda: 0.5 * h * tf.sigmoid(h),
            ],
        )

    return simple(body, dtype=dtype)


@program("branch.loop_in_cond")
def _loop_in_cond(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        def long():
            return tf.while_loop(lambda i, _: i < T, lambda i, h: (i + 1, cell(x[i], h)), (0, h))[1]

        h = tf.cond(tf.reduce_sum(x) > -1e6, long, lambda: tf.tanh(h))
        return squares(h), h

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("branch.loop_in_cond_in_body")
def _loop_in_cond_in_body(dtype):
    def body(i, x, h, cell):
        def inner():
            return tf.while_loop(
                lambda j, _: j < 3, lambda j, h: (j + 1, tf.tanh(cell(x[i], h)) + h), (0, h)
            )[1]

        return tf.cond(i % 2 == 0, inner, lambda: tf.sin(h))

    return simple(body, dtype=dtype, time=8)


@program("branch.soft_sampling")
def _soft_sampling(dtype):
    """A decoder fed with a mean of words by its own guess, or with the right one."""
    table, out = weights(40, H, dtype=dtype, seed=5), weights(H, 40, dtype=dtype, seed=6)

    def body(i, x, h, cell):
        guess = tf.nn.softmax(h @ out)
        rows = tf.range(B) % 40
        given = tf.cond(i % 4 == 0, lambda: guess @ table, lambda: tf.gather(table, rows))
        return cell(x[i], tf.tanh(given) + h)

    return simple(body, dtype=dtype, extra=(table, out))


# Several loops


@program("several.encoder_decoder")
def _encoder_decoder(dtype):
    encoder, decoder = Cell(D, H, dtype), Cell(H, H, dtype, seed=5)
    query = weights(H, H, dtype=dtype, seed=9)

    def forward(x, h):
        memory = tf.transpose(over_time(encoder, x, h), [1, 0, 2])
        states = tf.TensorArray(x.dtype, T)

        def step(i, h, states):
            scores = tf.reduce_sum(tf.tanh(memory + (h @ query)[:, None]), axis=-1)
            context = tf.reduce_sum(tf.nn.softmax(scores)[..., None] * memory, axis=1)
            h = decoder(context, h)
            return i + 1, h, states.write(i, h)

        _, _, states = tf.while_loop(lambda i, *_: i < T, step, (0, memory[:, -1], states))
        return squares(states.stack()), memory

    variables = [*encoder.variables, *decoder.variables, query]
    return Case(forward, variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("several.stacked")
def _stacked(dtype):
    cells = [Cell(D, H, dtype), Cell(H, H, dtype, seed=5), Cell(H, H, dtype, seed=11)]

    def forward(x, h):
        for cell in cells:
            x = over_time(cell, x, h)
        return squares(x), x

    variables = [one for cell in cells for one in cell.variables]
    return Case(forward, variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("several.parallel_branches")
def _parallel(dtype):
    cells = [Cell(D, H, dtype, seed=3 * seed) for seed in range(4)]

    def forward(x, h):
        branches = [over_time(cell, x, h) for cell in cells]
        return squares(tf.add_n(branches)), branches

    variables = [one for cell in cells for one in cell.variables]
    return Case(forward, variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("several.shared_weights_twice")
def _shared(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h):
        ahead = over_time(cell, x, h)
        back = over_time(cell, x[::-1], h)[::-1]
        return squares(ahead * back), (ahead, back)

    return Case(forward, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


# Several gradients


def _own_step(case: Case, step) -> Case:
    return dataclasses.replace(case, step=step)


@program("gradients.two_losses")
def _two_losses(dtype):
    case = _tensorarray(dtype)

    def step(x, h):
        with tf.GradientTape() as first, tf.GradientTape() as second:
            _, hs = case.forward(x, h)
            one, other = squares(hs[-1]), tf.reduce_sum(tf.sin(hs))
        gradients = first.gradient(one, case.variables)
        more = second.gradient(other, case.variables)
        update(case.variables, gradients)
        return one, other, gradients, more

    return _own_step(case, step)


@program("gradients.persistent_tape")
def _persistent(dtype):
    case = simple(lambda i, x, h, cell: tf.sin(cell(x[i], h)) * h, dtype=dtype)

    def step(x, h):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([x, h])
            loss, out = case.forward(x, h)
            other = tf.reduce_sum(tf.exp(out))
        gradients = tape.gradient(loss, [*case.variables, x])
        more = tape.gradient(other, [*case.variables, h])
        del tape
        update(case.variables, gradients)
        return loss, other, gradients, more

    return _own_step(case, step)


@program("gradients.of_gradients")
def _second_order(dtype):
    case = simple(lambda i, x, h, cell: cell(x[i], h), dtype=dtype, time=6)

    def step(x, h):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss, _ = case.forward(x, h)
            penalty = tf.reduce_sum(tf.square(inner.gradient(loss, x)))
            total = loss + penalty
        gradients = outer.gradient(total, case.variables)
        update(case.variables, gradients)
        return total, gradients

    return _own_step(case, step)


@program("gradients.some_variables_only")
def _some_only(dtype):
    case = _encoder_decoder(dtype)
    return dataclasses.replace(case, variables=case.variables[1:3])


@program("gradients.custom_gradient")
def _custom_gradient(dtype):
    @tf.custom_gradient
    def clipped(x):
        y = tf.tanh(x)

        def grad(upstream):
            return tf.clip_by_value(upstream * (1.0 - y * y), -1.0, 1.0) * 0.5

        return y, grad

    return simple(lambda i, x, h, cell: clipped(cell(x[i], h)) + 0.5 * h, dtype=dtype)


@program("gradients.stop_gradient")
def _stop_gradient(dtype):
    def body(i, x, h, cell):
        a = cell(x[i], h)
        return a * tf.stop_gradient(tf.sigmoid(a)) + tf.grad_pass_through(tf.round)(h) * 0.1

    return simple(body, dtype=dtype)


@program("gradients.accumulated_in_loop")
def _gradient_in_loop(dtype):
    """Micro-batches: the tape and its gradient stand inside the loop's body."""
    cell = Cell(D, H, dtype)

    def step(x, h):
        def body(i, total, *sums):
            with tf.GradientTape() as tape:
                state = h
                for j in tf.range(4):
                    state = cell(x[4 * i + j], state)
                loss = squares(state)
            gradients = tape.gradient(loss, cell.variables)
            return i + 1, total + loss, *(a + b for a, b in zip(sums, gradients, strict=True))

        zeros = [tf.zeros_like(one) for one in cell.variables]
        start = (0, tf.constant(0.0, dtype), *zeros)
        _, total, *sums = tf.while_loop(lambda i, *_: i < 4, body, start)
        update(cell.variables, sums)
        return total, sums

    inputs = values(16, B, D, dtype=dtype), values(B, H, dtype=dtype)
    return Case(None, cell.variables, inputs, step=step)


# Calls: a forward and a backward half of their own


def layer(wrapped, dtype: str) -> Case:
    """A recurrent layer as a function of its input, first state and weights, and that wrapped."""
    case = Cell(D, H, dtype)

    def states(x, h, w, u, b):
        cell = Cell.__new__(Cell)
        cell.w, cell.u, cell.b = w, u, b
        return over_time(cell, x, h)

    function = wrapped(states)

    def forward(x, h):
        out = function(x, h, *[tf.convert_to_tensor(one) for one in case.variables])
        return squares(out), out

    return Case(forward, case.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)))


@program("calls.implementation")
def _implementation(dtype):
    """The device decides which of several functions runs, as for an LSTM of Keras 2."""
    chosen = {"api_implements": "states", "api_preferred_device": "CPU"}
    return layer(lambda states: tf.function(states, experimental_attributes=chosen), dtype)


@program("calls.custom_gradient")
def _custom_gradient_of_a_loop(dtype):
    def wrapped(states):
        @tf.custom_gradient
        def clipped(*given):
            with tf.GradientTape() as tape:
                tape.watch(given)
                out = states(*given)

            def grad(upstream):
                return [tf.clip_by_norm(one, 1.0) for one in tape.gradient(out, given, upstream)]

            return out, grad

        return clipped

    return layer(wrapped, dtype)


@program("calls.recompute_grad")
def _recompute_grad(dtype):
    return layer(lambda states: tf.recompute_grad(tf.function(states)), dtype)


# Training loops: the tape stands inside a loop or a branch


def _trained(cell, x, h):
    """One step of training on a loop over the rows of x; its loss."""
    with tf.GradientTape() as tape:
        state = h
        for t in tf.range(T):
            state = tf.sin(cell(x[t], state)) * state
        loss = squares(state)
    update(cell.variables, tape.gradient(loss, cell.variables))
    return loss


@program("training.loop")
def _training_loop(dtype):
    cell = Cell(D, H, dtype)

    def step(x, h):
        total = tf.constant(0.0, dtype)
        for i in tf.range(3):
            total += _trained(cell, x[i], h)
        return total

    inputs = values(3, T, B, D, dtype=dtype), values(B, H, dtype=dtype)
    return Case(None, cell.variables, inputs, step=step)


@program("training.early_stop", known=False)
def _training_until_it_is_good(dtype):
    cell = Cell(D, H, dtype)

    def step(x, h):
        loss, i = tf.constant(1e9, dtype), 0
        while i < 3 and loss > 1e-9:
            loss = _trained(cell, x[i], h)
            i += 1
        return loss, i

    inputs = values(3, T, B, D, dtype=dtype), values(B, H, dtype=dtype)
    return Case(None, cell.variables, inputs, step=step)


def _as_far_as_told(dtype, variables, forward) -> Case:
    """A training loop over ``forward(x, h, n)``, whose loops run as often as only ``n`` tells."""

    def step(x, h, n):
        loss = tf.constant(0.0, dtype)
        for _ in tf.range(2):
            with tf.GradientTape() as tape:
                loss = squares(forward(x, h, n))
            update(variables, tape.gradient(loss, variables))
        return loss

    given = values(T, B, H, dtype=dtype), values(B, H, dtype=dtype)
    few, many = tf.constant(T // 3), tf.constant(T)
    return Case(None, variables, (*given, few), step=step, longer=(*given, many))


@program("training.unknown_lengths", known=False, longer=True)
def _training_over_two_loops_of_unknown_length(dtype):
    cell, w = Cell(H, H, dtype), weights(H, H, dtype=dtype)

    def forward(x, h, n):
        state, i = h, 0
        while i < n and tf.reduce_sum(tf.abs(state)) < 1e9:
            state = tf.sin(cell(x[i], state)) * state
            i += 1
        for i in tf.range(n):
            state = tf.tanh(state @ w + x[i]) * state
        return state

    return _as_far_as_told(dtype, [*cell.variables, w], forward)


@program("training.unknown_lengths_in_loop", known=False, longer=True)
def _training_over_loops_of_unknown_length_in_loops(dtype):
    cell, w = Cell(H, H, dtype), weights(H, H, dtype=dtype)

    def forward(x, h, n):
        state = h
        for i in tf.range(n):
            state = cell(x[i], state)
            for _ in tf.range(i % 3):
                state = tf.tanh(state @ w) + 0.5 * state
                if tf.reduce_sum(state) > 1e9:
                    break
        for i in tf.range(n):
            if i % 4 == 3:
                continue
            state = tf.sin(state + x[i]) * state
        return state

    return _as_far_as_told(dtype, [*cell.variables, w], forward)


@program("training.nobody_asks", known=False, longer=True)
def _training_over_loops_whose_gradient_nobody_asks_for(dtype):
    w = weights(H, H, dtype=dtype)

    def forward(x, h, n):
        state, i = h, 0
        while i < n and tf.reduce_sum(tf.abs(state)) < 1e9:
            tf.ensure_shape(tf.cumsum(state @ w, axis=1), [B, H])  # read, and read by nobody
            state = tf.tanh(state / (1.0 + tf.norm(state, axis=1, keepdims=True)) + x[i])
            i += 1
        for i in tf.range(n):
            for _ in tf.range(i % 3):
                best = tf.math.top_k(state, 2).values
                state = tf.tanh(tf.ensure_shape(tf.concat([best, state[:, 2:]], 1), [B, H]))
            state = tf.tanh(state * 0.9) + x[i] * 0.1
        return state

    return _as_far_as_told(dtype, [w], forward)


@program("training.branch")
def _branch_that_trains(dtype):
    cell = Cell(D, H, dtype)

    def step(x, h):
        return tf.cond(
            tf.reduce_sum(x) > -1e6,
            lambda: _trained(cell, x, h),
            lambda: squares(cell(x[0], h)),
        )

    return Case(
        None, cell.variables, (values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)), step=step
    )


# Sparse, ragged, variable length


@program("sparse.embedding_before_loop")
def _embedding(dtype):
    cell, table = Cell(D, H, dtype), weights(50, D, dtype=dtype)

    def forward(ids, h):
        hs = over_time(cell, tf.nn.embedding_lookup(table, ids), h)
        return squares(hs), hs

    ids = tf.constant(np.random.RandomState(0).randint(0, 50, (T, B)), tf.int32)
    return Case(forward, [*cell.variables, table], (ids, values(B, H, dtype=dtype)))


@program("sparse.embedding_in_body")
def _embedding_in_body(dtype):
    cell, table = Cell(D, H, dtype), weights(50, D, dtype=dtype)

    def forward(ids, h):
        def step(i, h):
            return i + 1, cell(tf.nn.embedding_lookup(table, ids[i]), h)

        _, h = tf.while_loop(lambda i, _: i < T, step, (0, h))
        return squares(h), h

    ids = tf.constant(np.random.RandomState(0).randint(0, 50, (T, B)), tf.int32)
    return Case(forward, [*cell.variables, table], (ids, values(B, H, dtype=dtype)))


@program("ragged.rows", known=False)
def _ragged(dtype):
    cell = Cell(D, H, dtype)

    def forward(rows, h):
        lengths = rows.row_lengths()
        x = tf.transpose(rows.to_tensor(), [1, 0, 2])

        def step(i, h):
            alive = tf.cast(i, tf.int64) < lengths
            return i + 1, tf.where(alive[:, None], cell(x[i], h), h)

        _, h = tf.while_loop(lambda i, _: i < tf.shape(x)[0], step, (0, h))
        return squares(h), h

    lengths = np.random.RandomState(0).randint(1, T, B)
    rows = tf.RaggedTensor.from_row_lengths(values(lengths.sum(), D, dtype=dtype), lengths)
    return Case(forward, cell.variables, (rows, values(B, H, dtype=dtype)))


@program("ragged.map_fn", known=False)
def _ragged_map(dtype):
    w = weights(D, D, dtype=dtype)

    def forward(rows):
        out = tf.map_fn(
            lambda row: tf.tanh(row @ w) * tf.sigmoid(row),
            rows,
            fn_output_signature=tf.RaggedTensorSpec([None, D], dtype, ragged_rank=0),
        )
        return squares(out.flat_values), out

    lengths = np.random.RandomState(0).randint(1, T, B)
    rows = tf.RaggedTensor.from_row_lengths(values(lengths.sum(), D, dtype=dtype), lengths)
    return Case(forward, [w], (rows,))


@program("ragged.lengths")
def _lengths(dtype):
    cell = Cell(D, H, dtype)

    def forward(x, h, lengths):
        def step(i, h):
            return i + 1, tf.where((i < lengths)[:, None], cell(x[i], h), h)

        _, h = tf.while_loop(lambda i, _: i < T, step, (0, h))
        return squares(h), h

    lengths = tf.constant(np.random.RandomState(0).randint(1, T, B), tf.int32)
    inputs = values(T, B, D, dtype=dtype), values(B, H, dtype=dtype), lengths
    return Case(forward, cell.variables, inputs)


# Random ops


@program("random.stateful")
def _stateful_random(dtype):
    def body(i, x, h, cell):
        mask = tf.cast(tf.random.uniform([B, H], seed=3) < 0.8, h.dtype)
        return tf.tanh(cell(x[i], h * mask)) * mask + 0.1 * tf.random.normal([B, H], dtype=h.dtype)

    return simple(body, dtype=dtype, loop=one_at_a_time)


@program("random.stateless")
def _stateless_random(dtype):
    def body(i, x, h, cell):
        draw = tf.random.stateless_uniform([B, H], tf.stack([i, 7]))
        return tf.tanh(cell(x[i], h * tf.cast(draw < 0.8, h.dtype))) * tf.cast(draw, h.dtype)

    return simple(body, dtype=dtype)


@program("random.generator")
def _generator(dtype):
    generator = tf.random.Generator.from_seed(5)

    def body(i, x, h, cell):
        draw = generator.uniform([B, H])
        return tf.tanh(cell(x[i], h * tf.cast(draw < 0.8, h.dtype))) * tf.cast(draw, h.dtype)

    return dataclasses.replace(simple(body, dtype=dtype), state=[generator.state])


@program("random.nn_dropout")
def _nn_dropout(dtype):
    def body(i, x, h, cell):
        return tf.nn.dropout(cell(x[i], h), 0.2, seed=11) + 0.5 * h

    return simple(body, dtype=dtype, loop=one_at_a_time)


# Side effects in the body


@program("effects.print")
def _print(dtype):
    directory = tempfile.mkdtemp()
    path = os.path.join(directory, "printed")
    cell = Cell(D, H, dtype)

    def forward(x, h):
        def step(i, h):
            h = tf.tanh(cell(x[i], h)) * h
            tf.print("step", i, output_stream=f"file://{path}")
            return i + 1, h

        _, h = tf.while_loop(lambda i, _: i < T, step, (0, h))
        return squares(h), h

    def lines():
        if not os.path.exists(path):
            return 0
        with open(path, encoding="utf-8") as file:
            return file.read().count("\n")

    inputs = values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)
    return Case(forward, cell.variables, inputs, effects=lines)


@program("effects.assign")
def _assign(dtype):
    seen = tf.Variable(tf.zeros([B, H], dtype))
    steps = tf.Variable(0, dtype=tf.int64)

    def body(i, x, h, cell):
        h = tf.tanh(cell(x[i], h)) * h + 0.1 * seen
        seen.assign(0.9 * seen + 0.1 * h)
        steps.assign_add(1)
        return h

    return dataclasses.replace(simple(body, dtype=dtype), state=[seen, steps])


@program("effects.weight_changes_in_body")
def _weight_changes(dtype):
    w = weights(H, H, dtype=dtype)

    def forward(h):
        def step(i, h):
            read = w.read_value()
            new = tf.tanh(h @ read)
            w.assign(0.99 * read)
            return i + 1, new + tf.sin(new)

        _, h = tf.while_loop(lambda i, _: i < T, step, (0, h))
        return squares(h), h

    return Case(forward, [w], (values(B, H, dtype=dtype),))


@program("effects.py_function")
def _py_function(dtype):
    calls = []

    def body(i, x, h, cell):
        def double(value):
            calls.append(1)
            return 2.0 * value

        h = tf.tanh(cell(x[i], h))
        # TensorFlow has no gradient of a py_function in a loop: it forgets all calls but one.
        doubled = tf.stop_gradient(tf.py_function(double, [h], h.dtype))
        return h * tf.sigmoid(tf.ensure_shape(doubled, [B, H]))

    case = simple(body, dtype=dtype, time=6)
    return dataclasses.replace(case, effects=lambda: len(calls))


@program("effects.numpy_function")
def _numpy_function(dtype):
    calls = []

    def body(i, x, h, cell):
        def seen(value):
            calls.append(float(value.sum()))
            return value

        h = tf.tanh(cell(x[i], h))
        kept = tf.ensure_shape(tf.numpy_function(seen, [tf.stop_gradient(h)], h.dtype), [B, H])
        return h * tf.sigmoid(kept)

    case = simple(body, dtype=dtype, time=6)
    return dataclasses.replace(case, effects=lambda: len(calls))


@program("effects.assert")
def _assert(dtype):
    def body(i, x, h, cell):
        h = tf.tanh(cell(x[i], h)) + h
        tf.debugging.assert_all_finite(h, "state")
        tf.debugging.Assert(tf.reduce_all(tf.abs(h) < 1e6), [i])
        with tf.control_dependencies([tf.debugging.assert_less(i, T)]):
            return tf.identity(h)

    return simple(body, dtype=dtype)


@program("effects.check_numerics")
def _check_numerics(dtype):
    def body(i, x, h, cell):
        return tf.debugging.check_numerics(tf.tanh(cell(x[i], h)), "h") * h

    return simple(body, dtype=dtype)


@program("effects.hash_table")
def _hash_table(dtype):
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.range(T), (tf.range(T) * 5) % T), -1
    )

    def body(i, x, h, cell):
        return tf.tanh(cell(x[table.lookup(i)], h)) * h

    return simple(body, dtype=dtype)


# Keras


def keras_case(layers, dtype: str, *, shape=None) -> Case:
    """A model of layers over ``[B, T, D]``, its squared output as the loss."""
    policy = keras.dtype_policies.DTypePolicy(dtype)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        shape = (T, D) if shape is None else shape
        batch = keras.Input(batch_shape=(B, *shape), dtype=policy.variable_dtype)
        out = batch
        for layer in layers():
            out = layer(out)
        model = keras.Model(batch, out)
    finally:
        keras.config.set_dtype_policy(before)

    def forward(x):
        out = model(x, training=True)
        return tf.add_n([squares(tf.cast(one, policy.variable_dtype)) for one in flat(out)]), out

    case = Case(
        forward,
        [one.value for one in model.trainable_variables],
        (values(B, *shape, dtype=policy.variable_dtype),),
        state=[one.value for one in model.non_trainable_variables],
    )
    case.model = model
    return case


def flat(out):
    """A structure of tensors as a list."""
    return tf.nest.flatten(out)


def keras_program(name: str, layers, *, dtypes=("float32", "float64"), **fields) -> None:
    """Adds a Keras model to the table."""
    mixed = ("mixed_bfloat16", "mixed_float16")
    PROGRAMS[f"keras.{name}"] = Program(
        f"keras.{name}", lambda dtype: keras_case(layers, dtype, **fields), (*dtypes, *mixed)
    )


class MinimalCell(keras.layers.Layer):
    """The custom cell of Keras' own guide, with a gate."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = self.state_size = units

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.units), name="kernel")
        self.recurrent = self.add_weight(shape=(self.units, self.units), name="recurrent")
        self.built = True

    def call(self, inputs, states):
        before = states[0]
        h = keras.ops.matmul(inputs, self.kernel)
        out = keras.ops.tanh(h + keras.ops.matmul(before, self.recurrent))
        out = out * keras.ops.sigmoid(h) + before
        return out, [out]


class AttentionCell(keras.layers.Layer):
    """A decoder cell that attends over a memory made from a constant of the layer."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = self.state_size = units
        self.inner = keras.layers.GRUCell(units)

    def build(self, shape):
        self.query = self.add_weight(shape=(self.units, self.units), name="query")
        self.memory = self.add_weight(shape=(12, self.units), name="memory")
        self.inner.build((shape[0], shape[-1] + self.units))
        self.built = True

    def call(self, inputs, states, training=None):
        (before,) = states
        query = keras.ops.matmul(before, self.query)
        scores = keras.ops.sum(keras.ops.tanh(self.memory[None] + query[:, None]), axis=-1)
        weight = keras.ops.softmax(scores)
        context = keras.ops.sum(weight[..., None] * self.memory[None], axis=1)
        return self.inner(
            keras.ops.concatenate([inputs, context], axis=-1), [before], training=training
        )


L = keras.layers
keras_program("SimpleRNN", lambda: [L.SimpleRNN(H, return_sequences=True)])
keras_program("GRU", lambda: [L.GRU(H, return_sequences=True)])
keras_program("GRU_reset_before", lambda: [L.GRU(H, reset_after=False)])
keras_program("LSTM", lambda: [L.LSTM(H)])
keras_program("LSTM_sequences", lambda: [L.LSTM(H, return_sequences=True)])
keras_program("LSTM_stacked", lambda: [L.LSTM(H, return_sequences=True), L.LSTM(H), L.Dense(4)])
keras_program("RNN_cell", lambda: [L.RNN(L.LSTMCell(H), return_sequences=True)])
keras_program("StackedRNNCells", lambda: [L.RNN([L.LSTMCell(H), L.GRUCell(H)])])
keras_program("Bidirectional", lambda: [L.Bidirectional(L.LSTM(H, return_sequences=True))])
keras_program(
    "ConvLSTM2D",
    lambda: [L.ConvLSTM2D(4, 3, padding="same")],
    shape=(6, 6, 6, 2),
    dtypes=("float32",),
)
keras_program(
    "TimeDistributed", lambda: [L.GRU(H, return_sequences=True), L.TimeDistributed(L.Dense(4))]
)
keras_program("Masking", lambda: [L.Masking(), L.LSTM(H, return_sequences=True), L.GRU(H)])
keras_program("go_backwards", lambda: [L.LSTM(H, go_backwards=True, return_sequences=True)])
keras_program("stateful", lambda: [L.LSTM(H, stateful=True)])
keras_program("return_state", lambda: [L.LSTM(H, return_state=True, return_sequences=True)])
keras_program("dropout", lambda: [L.LSTM(H, dropout=0.2, return_sequences=True)])
keras_program(
    "recurrent_dropout",
    lambda: [
        L.LSTM(H, recurrent_dropout=0.2, dropout=0.1, return_sequences=True),
        L.GRU(H, recurrent_dropout=0.2, dropout=0.1),
    ],
)
keras_program("custom_cell", lambda: [L.RNN(MinimalCell(H), return_sequences=True)])
keras_program("attention_decoder", lambda: [L.RNN(AttentionCell(H), return_sequences=True)])
keras_program(
    "layer_norm_between",
    lambda: [
        L.LSTM(H, return_sequences=True),
        L.LayerNormalization(),
        L.GRU(H, activation="relu"),
        L.BatchNormalization(),
    ],
)
keras_program(
    "relu_hard_sigmoid",
    lambda: [L.LSTM(H, activation="relu", recurrent_activation="hard_sigmoid", use_bias=False)],
)


@program("keras_like.embedding_mask")
def _keras_embedding(dtype):
    model = keras.Sequential(
        [
            keras.Input(batch_shape=(B, T), dtype="int32"),
            L.Embedding(50, D, mask_zero=True, dtype=dtype),
            L.LSTM(H, return_sequences=True, dtype=dtype),
            L.LSTM(H, dtype=dtype),
        ]
    )
    ids = np.random.RandomState(0).randint(1, 50, (B, T))
    ids[np.arange(T)[None] >= np.random.RandomState(1).randint(2, T, B)[:, None]] = 0

    def forward(ids):
        out = model(ids, training=True)
        return squares(out), out

    variables = [one.value for one in model.trainable_variables]
    return Case(forward, variables, (tf.constant(ids, tf.int32),))


@program("keras_like.unknown_batch_and_time", known=False)
def _keras_unknown(dtype):
    model = keras.Sequential(
        [
            keras.Input((None, D), dtype=dtype),
            L.Bidirectional(L.GRU(H, return_sequences=True, dtype=dtype)),
            L.LSTM(H, dtype=dtype),
        ]
    )

    def forward(x):
        out = model(x, training=True)
        return squares(out), out

    def step(x):
        x = tf.ensure_shape(
            tf.raw_ops.PlaceholderWithDefault(input=x, shape=[None, None, D]), [None, None, D]
        )
        with tf.GradientTape() as tape:
            loss, out = forward(x)
        variables = [one.value for one in model.trainable_variables]
        gradients = tape.gradient(loss, variables)
        update(variables, gradients)
        return loss, out, gradients

    variables = [one.value for one in model.trainable_variables]
    return Case(forward, variables, (values(B, T, D, dtype=dtype),), step=step)


# What lies outside of loops.


@program("straight.dense")
def _straight_dense(dtype):
    kernels = [weights(H, H, dtype=dtype, seed=seed) for seed in range(6)]
    biases = [weights(H, dtype=dtype, seed=seed) for seed in range(6)]

    def forward(x):
        for kernel, bias in zip(kernels, biases, strict=True):
            x = x + tf.nn.gelu(tf.nn.bias_add(x @ kernel, bias))
        return squares(x), x

    return Case(forward, [*kernels, *biases], (values(T * B, H, dtype=dtype),))


@program("straight.attention")
def _straight_attention(dtype):
    shapes = ((H, 3 * H), (H, H), (H, 2 * H), (2 * H, H))
    made = [weights(*one, dtype=dtype, seed=n) for n, one in enumerate(shapes * 3)]

    def norm(x):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-6)

    def forward(x):
        for at in range(0, len(made), 4):
            q, k, v = tf.split(norm(x) @ made[at], 3, axis=-1)
            scores = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / H**0.5)
            x = x + tf.nn.dropout(scores @ v @ made[at + 1], 0.1, seed=at)
            x = x + tf.nn.relu(norm(x) @ made[at + 2]) @ made[at + 3]
        return squares(x), x

    return Case(forward, made, (values(B, T, H, dtype=dtype),))


@program("straight.scaled_scores")
def _straight_scaled_scores(dtype):
    made = [weights(32, 32, dtype=dtype, seed=seed) for seed in range(6)]

    def forward(x):
        for query, value in zip(made[::2], made[1::2], strict=True):
            scores = tf.matmul(x @ query, x, transpose_b=True) / 7
            x = x + tf.nn.softmax(scores) @ (x @ value) * 0.3
        return squares(x), x

    return Case(forward, made, (values(2, 256, 32, dtype=dtype),))


@program("straight.convolutions", dtypes=("float32",))
def _straight_convolutions(dtype):
    model = keras.Sequential(
        [
            keras.Input((16, 16, 3), batch_size=B),
            *(
                layer
                for seed in range(3)
                for layer in (
                    L.Conv2D(16, 3, padding="same", dtype=dtype),
                    L.BatchNormalization(dtype=dtype),
                    L.ReLU(dtype=dtype),
                    L.Dropout(0.1, seed=seed, dtype=dtype),
                )
            ),
            L.GlobalAveragePooling2D(dtype=dtype),
            L.Dense(4, dtype=dtype),
        ]
    )

    def forward(x):
        out = model(x, training=True)
        return squares(out), out

    variables = [one.value for one in model.trainable_variables]
    state = [one.value for one in model.non_trainable_variables]
    return Case(forward, variables, (values(B, 16, 16, 3, dtype=dtype),), state=state)


@program("straight.encoder_and_loop")
def _straight_encoder(dtype):
    kernels = [weights(D, H, dtype=dtype)]
    kernels += [weights(H, H, dtype=dtype, seed=seed) for seed in range(1, 4)]
    cell = Cell(H, H, dtype)

    def forward(x, h):
        for kernel in kernels:
            x = tf.nn.gelu(x @ kernel)
        states = over_time(cell, x, h)
        return squares(tf.tanh(states)), states

    inputs = values(T, B, D, dtype=dtype), values(B, H, dtype=dtype)
    return Case(forward, [*kernels, *cell.variables], inputs)


@program("straight.language_model")
def _straight_language_model(dtype):
    vocabulary = 1024
    embedding, cell = weights(vocabulary, H, dtype=dtype), Cell(H, H, dtype)
    words = np.random.default_rng(0).integers(0, vocabulary, (T + 1, B))

    def forward(words, h):
        states = over_time(cell, tf.gather(embedding, words[:-1]), h)
        rows = tf.reshape(states, [-1, H])
        logits = tf.matmul(rows, embedding, transpose_b=True)
        wanted = tf.one_hot(tf.reshape(words[1:], [-1]), vocabulary, dtype=dtype)
        smooth = 0.9 * wanted + 0.1 / vocabulary
        losses = tf.nn.softmax_cross_entropy_with_logits(smooth, logits)
        return tf.reduce_mean(losses), states

    inputs = tf.constant(words, tf.int32), values(B, H, dtype=dtype)
    return Case(forward, [embedding, *cell.variables], inputs)


@program("straight.tokens_of_sentences")
def _straight_tokens_of_sentences(dtype):
    vocabulary = 1024
    table, project = weights(vocabulary, H, dtype=dtype), weights(H, vocabulary, dtype=dtype)
    cell = Cell(H, H, dtype)
    words = np.random.default_rng(0).integers(0, vocabulary, (T + 1, B))
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype=dtype)

    def forward(words, h):
        states = over_time(cell, tf.gather(table, words[:-1]), h)
        logits = tf.tensordot(tf.transpose(states, [1, 0, 2]), project, 1) / 1.5
        wanted = tf.transpose(words[1:])
        right = tf.reduce_mean(tf.cast(tf.argmax(logits, -1, tf.int32) == wanted, dtype))
        return loss(wanted, logits), (right, states)

    inputs = tf.constant(words, tf.int32), values(B, H, dtype=dtype)
    return Case(forward, [table, project, *cell.variables], inputs)


def _layers(dtype, count=6):
    """A step over dense layers with residual connections and momentum, and its variables."""
    kernels = [weights(H, H, dtype=dtype, seed=seed) for seed in range(count)]
    moments = [tf.Variable(tf.zeros_like(one), trainable=False) for one in kernels]

    def trained(x):
        with tf.GradientTape() as tape:
            for kernel in kernels:
                x = x + tf.nn.gelu(x @ kernel)
            loss = squares(x)
        for kernel, moment, gradient in zip(
            kernels, moments, tape.gradient(loss, kernels), strict=True
        ):
            moment.assign(0.5 * moment + gradient)
            kernel.assign_sub(LEARNING_RATE * moment)
        return loss

    return trained, kernels, moments


@program("straight.training_loop")
def _straight_training_loop(dtype):
    trained, kernels, moments = _layers(dtype)

    def step(x):
        total = tf.constant(0.0, dtype)
        for i in tf.range(3):
            total += trained(x[i])
        return total

    return Case(None, kernels, (values(3, T * B, H, dtype=dtype),), step=step, state=moments)


@program("straight.training_loop_of_unknown_length", known=False)
def _straight_training_until_it_is_good(dtype):
    trained, kernels, moments = _layers(dtype)

    def step(x):
        loss, i = tf.constant(1e9, dtype), 0
        while i < 3 and loss > 1e-9:
            loss = trained(x)
            i += 1
        return loss, i

    return Case(None, kernels, (values(T * B, H, dtype=dtype),), step=step, state=moments)


@program("straight.training_branch")
def _straight_training_branch(dtype):
    trained, kernels, moments = _layers(dtype)

    def step(x):
        if tf.reduce_sum(x) > -1e6:
            loss = trained(x)
        else:
            loss = squares(x @ kernels[0])
        return loss

    return Case(None, kernels, (values(T * B, H, dtype=dtype),), step=step, state=moments)
