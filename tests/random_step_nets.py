"""Random step nets: a recipe is plain data that prints; ``build`` makes a train step of it.

Every value that a recipe handles is a matrix ``[ROWS, COLUMNS]`` of the recipe's dtype, kept in a
pool. An instruction takes values from the pool (indices count from the newest and wrap around, so
every recipe is valid) and puts its result there.

The kinds of instruction came in two generations. What a seed draws of the first stays what it was,
for recorded cases name seeds; the second draws from all kinds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

from tests import random_step_net_kinds as second

ROWS, COLUMNS = 3, 4


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One step of a step net: ``kind`` says what, ``a`` and ``b`` of which values, ``n`` how."""

    kind: str
    a: int
    b: int
    n: int
    inner: tuple[Instruction, ...] = ()
    other: tuple[Instruction, ...] = ()


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A train step with one loop, and whatever stands in its body.

    Attributes:
      dtype: of all values.
      trips: iterations.
      known: how the trip count is given: ``constant``, ``tensor``, ``limit`` or ``data``.
      states: carried matrices.
      instructions: the body.
      following: for each state, the value (an index) it has next, and whether that is bounded.
      stacked: whether the body writes a TensorArray that the loss reads.
      gradients: 1, or 2 for a persistent tape with two losses.
      of_inputs: whether gradients of the inputs are asked for too.
      dynamic: whether the step is traced for any number of rows.
      after: instructions after the loop, on its states.
      seed: of the numbers.
      tapes: who differentiates: a tape of the step (``one``), a ``persistent`` one or two tapes in
        the step, or, where the step is its forward part alone, a tape ``outside`` it or two.
      blurred: whether the loop carries states of unknown rank.
    """

    dtype: str
    trips: int
    known: str
    states: int
    instructions: tuple[Instruction, ...]
    following: tuple[tuple[int, bool], ...]
    stacked: bool
    gradients: int
    of_inputs: bool
    dynamic: bool
    after: tuple[Instruction, ...]
    seed: int
    tapes: str = "one"
    blurred: bool = False


def every_instruction(one: Recipe | Instruction) -> Iterator[Instruction]:
    """The instructions of a recipe, or in another one, however deep."""
    is_recipe = isinstance(one, Recipe)
    for inner in (*one.instructions, *one.after) if is_recipe else (*one.inner, *one.other):
        yield inner
        yield from every_instruction(inner)


# Values -> value. Each keeps the shape and stays finite for bounded arguments.
ONE: dict[str, Callable] = {
    "abs": tf.abs,
    "add_constant": lambda x: x + 1.5,
    "cast": lambda x: tf.cast(tf.cast(x, tf.bfloat16), x.dtype),
    "cast_up": lambda x: tf.cast(tf.sin(tf.cast(x, tf.float64)), x.dtype),
    "clip": lambda x: tf.clip_by_value(x, -0.5, 0.5),
    "cosine": tf.cos,
    "cumulative_sum": lambda x: tf.cumsum(x, axis=1),
    "divide_constant": lambda x: x / 3.0,
    "elu": tf.nn.elu,
    "exponential": lambda x: tf.exp(-tf.abs(x)),
    "gelu": tf.nn.gelu,
    "gelu_by_tanh": lambda x: tf.nn.gelu(x, approximate=True),
    "identity": tf.identity,
    "logarithm": lambda x: tf.math.log(tf.abs(x) + 0.5),
    "logarithm_1p": lambda x: tf.math.log1p(tf.abs(x)),
    "log_softmax": tf.nn.log_softmax,
    "multiply_constant": lambda x: 0.3 * x * 2.0,
    "negative": tf.negative,
    "normalise": lambda x: tf.math.l2_normalize(x + 0.1, axis=-1),
    "pad": lambda x: tf.pad(x, [[1, 0], [0, 0]])[:-1],
    "reduce_max": lambda x: x - tf.reduce_max(x, axis=-1, keepdims=True),
    "reduce_mean": lambda x: x * tf.reduce_mean(x, axis=0),
    "reduce_sum": lambda x: x * 0.1 + tf.reduce_sum(x) * 0.05,
    "reduce_variance": lambda x: x / (1.0 + tf.math.reduce_variance(x, axis=1, keepdims=True)),
    "relu": tf.nn.relu,
    "relu6": lambda x: tf.nn.relu6(x + 3.0) / 6.0,
    "reshape": lambda x: tf.reshape(tf.tanh(tf.reshape(x, [-1])), [-1, COLUMNS]),
    "reverse": lambda x: tf.reverse(x, [1]),
    "roll": lambda x: tf.roll(x, 1, axis=0),
    "rsqrt": lambda x: tf.math.rsqrt(tf.abs(x) + 0.5),
    "selu": tf.nn.selu,
    "sigmoid": tf.sigmoid,
    "sine": tf.sin,
    "slice": lambda x: tf.concat([x[:, 2:], x[:, :2]], axis=1),
    "softmax": tf.nn.softmax,
    "softplus": tf.nn.softplus,
    "softsign": tf.nn.softsign,
    "split": lambda x: tf.concat(tf.split(x, 2, axis=1)[::-1], axis=1),
    "square": tf.square,
    "square_root": lambda x: tf.sqrt(tf.abs(x) + 0.1),
    "stack": lambda x: tf.stack(tf.unstack(x, axis=1)[::-1], axis=1),
    "stop_gradient": lambda x: x * tf.stop_gradient(x),
    "tanh": tf.tanh,
    "tile": lambda x: tf.tile(x[:, :2], [1, 2]),
    "transpose": lambda x: tf.transpose(tf.sin(tf.transpose(x))),
}
TWO: dict[str, Callable] = {
    "add": lambda x, y: x + y,
    "add_n": lambda x, y: tf.add_n([0.5 * x, tf.tanh(y), tf.sin(x), tf.tanh(x)]),
    "add_pushed": lambda x, y: tf.add_n([tf.exp(-tf.abs(x)), tf.tanh(y), tf.sigmoid(x)]),
    "add_read": lambda x, y: tf.tanh(x + y * 0.1 + tf.nn.relu(x)),
    "add_states": lambda x, y: tf.tanh(x + y + tf.sigmoid(x)),
    "add_tree": lambda x, y: tf.tanh(x) + tf.sigmoid(y) + (tf.sigmoid(x) + tf.sin(y)),
    "concat": lambda x, y: tf.concat([x[:, 1:3], y[:, :2]], axis=1),
    "divide": lambda x, y: x / (1.0 + tf.abs(y)),
    "divide_no_nan": lambda x, y: tf.math.divide_no_nan(x, tf.abs(y) + 0.5),
    "einsum": lambda x, y: tf.einsum("ij,kj,kl->il", x, y, y) * 0.1,
    "equal": lambda x, y: x * tf.cast(tf.greater(x, y), x.dtype),
    "matmul": lambda x, y: tf.matmul(tf.matmul(x, y, transpose_b=True), x) * 0.1,
    "maximum": tf.maximum,
    "minimum": tf.minimum,
    "multiply": lambda x, y: x * y,
    "multiply_row": lambda x, y: x * y[0] + y[:, :1],
    "multiply_scaled": lambda x, y: tf.tanh(0.3 * (x * tf.sin(y))),
    "power": lambda x, y: tf.pow(tf.abs(x) + 0.5, tf.tanh(y)),
    "squared_difference": tf.math.squared_difference,
    "subtract": lambda x, y: x - y,
    "where": lambda x, y: tf.where(x > y, x * 0.5, y),
}
EFFECTS = ("moving_average", "random")
TRAINED = ("add_bias", "captured", "embedding", "matmul_weight", "scale")
"""Kinds whose result depends on a trained variable."""
SUMS = ("add_captured", "add_pair", "add_residual", "add_rows")
"""Kinds that add three values or more, among them what the step is given."""
WEIGHTED = (*TRAINED, *SUMS, "gather", "matmul_captured", "read_array", "stateless_random")
TAPES = ("one", "one", "one", "one", "persistent", "persistent", "two", "outside", "two outside")
BRANCHING = ("cond", "switch")
NESTING = (*BRANCHING, "loop", "map", "function", "tape")
LARGEST = 5  # index of a value


class Draw(Protocol):
    """Where a recipe's choices come from."""

    def whole(self, low: int, high: int) -> int:
        """A whole number, both ends included."""

    def one_of(self, choices: Sequence) -> Any:
        """One of the choices."""


class Drawn:
    """Choices that hypothesis makes, so that it can make a recipe smaller."""

    def __init__(self, draw: Callable):
        self.draw = draw

    def whole(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def one_of(self, choices: Sequence) -> Any:
        return self.draw(st.sampled_from(choices))


class Thrown:
    """Choices of a seeded generator: no two recipes are alike, as they are where one is mutated."""

    def __init__(self, seed: object):
        self.random = random.Random(str(seed))

    def whole(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def one_of(self, choices: Sequence) -> Any:
        return self.random.choice(choices)


def random_instructions(
    draw: Draw, most: int, depth: int = 0, generation: int = 1
) -> tuple[Instruction, ...]:
    """Some instructions, with nested ones down to two levels."""
    kinds = [*sorted(ONE), *sorted(TWO) * 2, *WEIGHTED * 4, *(EFFECTS * 3 if depth == 0 else ())]
    nesting, branching = NESTING, BRANCHING
    if generation > 1:
        kinds += [*second.PLAIN] * 10 + [*second.EFFECTS] * (10 if depth == 0 else 0)
        nesting, branching = (*NESTING, *second.NESTING), (*BRANCHING, *second.BRANCHING)
    found = []
    for _ in range(draw.whole(1, most)):
        nests = depth < 2 and draw.whole(0, 5) == 5
        kind = draw.one_of(nesting if nests else kinds)
        inner = random_instructions(draw, 3 - depth, depth + 1, generation) if nests else ()
        other = random_instructions(draw, 2, depth + 1, generation) if kind in branching else ()
        a, b, n = (draw.whole(0, LARGEST) for _ in range(3))
        found.append(Instruction(kind, a, b, n, inner, other))
    return tuple(found)


def random_recipe(draw: Draw, generation: int = 1) -> Recipe:
    """Any recipe; but where no variable is trained in the body, inputs are."""
    states = draw.whole(1, 3)
    body = random_instructions(draw, 7, generation=generation)
    trained = any(one.kind in TRAINED for one in body)
    dynamic = draw.whole(0, 4) == 4  # TensorFlow stacks no rows that nobody wrote then
    return Recipe(
        dtype=draw.one_of(["float32", "float32", "float64", "bfloat16"]),
        trips=draw.one_of([4, 5, 3, 2, 1, 0, 6, 5, 4, 3]),
        known=draw.one_of(["constant", "tensor", "limit", "data"]),
        states=states,
        instructions=body,
        # The first state always has a new value: one that stays is no loop.
        following=tuple(
            (draw.whole(0, LARGEST + (index > 0)), bool(draw.whole(0, 1)))
            for index in range(states)
        ),
        stacked=not dynamic and bool(draw.whole(0, 1)),
        gradients=draw.one_of([1, 1, 1, 2]),
        of_inputs=not trained or bool(draw.whole(0, 1)),
        dynamic=dynamic,
        after=random_instructions(draw, 2, 1, generation),
        seed=draw.whole(0, 999),
        tapes=draw.one_of(TAPES),
        blurred=generation > 1 and draw.whole(0, 4) == 4,
    )


@st.composite
def recipes(draw):
    """Any recipe, for hypothesis."""
    return random_recipe(Drawn(draw))


class Built:
    """A recipe as a train step."""

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self.dtype = tf.dtypes.as_dtype(recipe.dtype)
        self.random = np.random.RandomState(recipe.seed)
        self.weight = tf.Variable(self._values(COLUMNS, COLUMNS) * 0.5)
        self.bias = tf.Variable(self._values(COLUMNS))
        self.table = tf.Variable(self._values(5, COLUMNS))
        self.average = tf.Variable(self._values(ROWS, COLUMNS), trainable=False)
        self.variables = [self.weight, self.bias, self.table]
        self.kept = [*self.variables, self.average]
        self.captured = self._values(ROWS, COLUMNS)
        self.square = self._values(COLUMNS, COLUMNS)
        self.inputs = (
            self._values(7, ROWS, COLUMNS),
            tf.stack([self._values(ROWS, COLUMNS) for _ in range(recipe.states)]),
            tf.constant(recipe.trips),
        )
        self.trained_inside, *self.slots = [
            tf.Variable(tf.abs(self._values(COLUMNS, COLUMNS)) * scale, trainable=False)
            for scale in (0.5, 0.1, 0.1)
        ]
        if any(one.kind == "update" for one in every_instruction(recipe)):
            self.kept += [self.trained_inside, *self.slots]
        self.rows = None if recipe.dynamic else ROWS
        self._outside: dict[Callable, Callable] = {}
        self.original = self.traced()

    def traced(self):
        """The step as TensorFlow runs it, in a trace of its own.

        TensorFlow's executor runs an op beside others until some thirty runs have shown that it is
        cheap; then it runs in turn. So early runs of a trace may win other races than later ones.
        """
        return tf.function(
            self.step,
            input_signature=[
                tf.TensorSpec([7, self.rows, COLUMNS], self.dtype),
                tf.TensorSpec([self.recipe.states, self.rows, COLUMNS], self.dtype),
                tf.TensorSpec([], tf.int32),
            ],
            autograph=False,
        )

    def _values(self, *shape: int) -> tf.Tensor:
        return tf.cast(tf.constant(self.random.standard_normal(shape)), self.dtype)

    def run(self, function):
        """What a step leaves behind, under the tapes outside it where the recipe has any."""
        if not self.is_forward:
            return function(*self.inputs)
        if function not in self._outside:
            self._outside[function] = tf.function(
                lambda *inputs: self._differentiated(function, *inputs), autograph=False
            )
        (outputs, losses), gradients = self._outside[function](*self.inputs)
        return outputs, losses, [one for some in gradients for one in some if one is not None]

    @property
    def is_forward(self) -> bool:
        """Whether the step is a forward part, which tapes outside it differentiate."""
        return "outside" in self.recipe.tapes

    def _differentiated(self, forward, rows, start, trips):
        """The forward part, and the gradients of each of its losses."""
        recipe = self.recipe
        watched = [rows, start] if recipe.of_inputs else []
        persistent = recipe.tapes == "persistent" or recipe.gradients > 1
        with contextlib.ExitStack() as recording:
            tapes = [
                recording.enter_context(tf.GradientTape(persistent))
                for _ in range(1 + recipe.tapes.startswith("two"))
            ]
            for tape in tapes:
                tape.watch(watched)
            outputs, losses = forward(rows, start, trips)
        count = max(recipe.gradients, len(tapes))
        gradients = [
            tapes[number % len(tapes)].gradient(loss, [*self.variables, *watched])
            for number, loss in enumerate(losses[:count])
        ]
        return (outputs, losses), gradients

    def step(self, rows, start, trips):
        """The whole train step, or its forward part."""
        if self.is_forward:
            return self._forward(rows, start, trips)
        (outputs, losses), gradients = self._differentiated(self._forward, rows, start, trips)
        for variable, gradient in zip(self.variables, gradients[0], strict=False):
            if gradient is not None:
                variable.assign_sub(0.125 * tf.convert_to_tensor(gradient))
        return outputs, losses, [one for some in gradients for one in some if one is not None]

    def _forward(self, rows, start, trips):
        recipe = self.recipe
        scale = tf.tanh(self.captured * self.bias)
        states = [start[index] for index in range(recipe.states)]
        stop = trips if recipe.known == "tensor" else recipe.trips
        of_rows = None
        if any(one.kind in ("array_of_rows", "read_outside") for one in every_instruction(recipe)):
            of_rows = tf.TensorArray(self.dtype, 7).unstack(rows)
        array = tf.TensorArray(self.dtype, 7, element_shape=[self.rows, COLUMNS])

        def going(i, array, turn, *states):
            if recipe.known == "data":
                return tf.logical_and(i < stop, tf.reduce_sum(states[0]) < 1e3)
            return i < stop

        def body(i, array, turn, *states):
            pool = self._sharpened(states)
            around = _Around(i, rows, scale, [turn], of_rows)
            self._run(recipe.instructions, pool, around)
            if recipe.stacked:
                array = array.write(i, pool[-1])
            return i + 1, array, around.turn[0], *self._next(pool)

        _, array, _, *states = tf.while_loop(
            going,
            body,
            (0, array, 0, *states),
            maximum_iterations=recipe.trips if recipe.known == "limit" else None,
            shape_invariants=self._invariants(),
        )
        states = self._sharpened(states)
        pool = [*states]
        around = _Around(tf.constant(0), rows, scale, [tf.constant(0)], of_rows)
        self._run(recipe.after, pool, around)
        first = tf.add_n([_mean(tf.square(one)) for one in [*states, pool[-1]]])
        if recipe.stacked:
            first += _mean(tf.sin(array.stack()))
        second = tf.reduce_sum(tf.tanh(states[0]))
        return states, [first, second]

    def _invariants(self):
        """What the loop knows of the shapes that it carries; None: what it finds by itself."""
        if not self.recipe.blurred:
            return None
        unknown = tf.TensorShape(None)
        return (tf.TensorShape([]), unknown, tf.TensorShape([]), *[unknown] * self.recipe.states)

    def _sharpened(self, states):
        """The states, with the shapes that they have though the loop forgot them."""
        if not self.recipe.blurred:
            return [*states]
        return [tf.ensure_shape(one, [self.rows, COLUMNS]) for one in states]

    def _next(self, pool):
        found = []
        for index, (source, bounded) in enumerate(self.recipe.following):
            if source == 6:
                found.append(pool[index])  # the state stays what it was
            else:
                value = _at(pool, source)
                found.append(tf.tanh(value) if bounded else tf.clip_by_value(value, -4.0, 4.0))
        return found

    def _run(self, instructions, pool, around) -> None:
        for number, one in enumerate(instructions):
            value = self._value(one, pool, around, number)
            pool.append(tf.ensure_shape(value, [self.rows, COLUMNS]))

    def _value(self, one: Instruction, pool, around: _Around, number: int):
        x, y = _at(pool, one.a), _at(pool, one.b)
        if one.kind in ONE:
            return ONE[one.kind](x)
        if one.kind in TWO:
            return TWO[one.kind](x, y)
        if one.kind in second.KINDS:
            return second.KINDS[one.kind](self, one, pool, around, x)
        if one.kind in NESTING:
            return getattr(self, f"_{one.kind}")(one, pool, around, x)
        if one.kind in SUMS:
            return self._sum(one, x, y, around)
        return self._weighted(one, x, around, number)

    def _sum(self, one: Instruction, x, y, around: _Around):
        row = around.rows[around.i % 7]
        match one.kind:
            case "add_captured":
                return tf.tanh(x + around.scale + y * 0.5) + self.captured
            case "add_pair":
                return tf.tanh(x * 0.5 + y + row) + tf.nn.relu(x)
            case "add_residual":
                return x + tf.nn.relu(x) @ self.square * 0.3 + row
            case "add_rows":
                return tf.tanh(x + row * 0.1 + around.rows[(around.i + one.n) % 7] * 0.8)
        raise AssertionError(one)

    def _weighted(self, one: Instruction, x, around: _Around, number: int):
        seed = 7 * number + one.n + 1
        match one.kind:
            case "add_bias":
                return tf.nn.bias_add(x, self.bias) if one.n % 2 else x + self.bias
            case "captured":
                return x * around.scale + tf.sin(self.captured)
            case "embedding":
                ids = tf.cast(tf.abs(x[:, 0]) * 3.0, tf.int32) % 5
                return tf.nn.embedding_lookup(self.table, ids) * x
            case "gather":
                return around.rows[around.i % 7] + x
            case "matmul_captured":
                return x @ self.square * 0.3
            case "matmul_weight":
                return tf.nn.relu(x @ self.weight + self.bias) if one.n % 2 else x @ self.weight
            case "moving_average":
                with around.in_turn() as finish:
                    before = tf.identity(self.average.read_value())
                    after = 0.5 * before + 0.25 * tf.tanh(tf.stop_gradient(x))
                    finish(self.average.assign(after).read_value())
                return x * before
            case "random":
                with around.in_turn() as finish:
                    drawn = tf.random.uniform([ROWS, COLUMNS], seed=seed)
                    finish(drawn)
                return x * self._cast(drawn)
            case "read_array":
                return tf.gather(around.rows, (around.i + one.n) % 7) * x
            case "scale":
                return x * tf.tanh(self.bias)
            case "stateless_random":
                drawn = tf.random.stateless_uniform([ROWS, COLUMNS], tf.stack([around.i, seed]))
                return tf.where(drawn < 0.7, x, tf.zeros_like(x))
        raise AssertionError(one)

    def _cast(self, x):
        return tf.cast(x, self.dtype)

    def _branch(self, instructions, pool, around):
        def run():
            inner = [*pool]
            self._run(instructions, inner, around)
            return inner[-1]

        return run

    def _cond(self, one, pool, around, x):
        chosen = tf.reduce_sum(x) > 0 if one.n % 2 else around.i % 2 == 0
        return tf.cond(
            chosen,
            self._branch(one.inner, pool, around),
            self._branch(one.other, pool, around),
        )

    def _switch(self, one, pool, around, x):
        branches = [
            self._branch(one.inner, pool, around),
            self._branch(one.other, pool, around),
            lambda: tf.sin(x),
        ]
        return tf.switch_case((around.i + one.n) % 3, branches)

    def _loop(self, one, pool, around, x):
        stop = around.i % 3 if one.n == 0 else one.n

        def body(j, value):
            inner = [*pool, value]
            self._run(one.inner, inner, dataclasses.replace(around, i=j))
            return j + 1, tf.tanh(inner[-1])

        invariants = (tf.TensorShape([]), tf.TensorShape([self.rows, COLUMNS]))
        return tf.while_loop(lambda j, _: j < stop, body, (0, x), shape_invariants=invariants)[1]

    def _map(self, one, pool, around, x):
        def body(part):
            inner = [*pool, x * part]
            self._run(one.inner, inner, around)
            return inner[-1]

        return tf.reduce_sum(tf.map_fn(body, tf.stack([x[0], x[1]])), axis=0) * 0.5

    def _tape(self, one, pool, around, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = self._branch(one.inner, [*pool, x * 0.5], around)()
        gradient = tape.gradient(value, x, unconnected_gradients="zero")
        return x + tf.clip_by_value(tf.stop_gradient(gradient), -1.0, 1.0)

    def _function(self, one, pool, around, x):
        return tf.function(self._branch(one.inner, pool, around), autograph=False)()


@dataclasses.dataclass(frozen=True)
class _Around:
    """What a body sees from outside: its counter, the rows that it may read, a captured tensor."""

    i: tf.Tensor
    rows: tf.Tensor
    scale: tf.Tensor
    turn: list[tf.Tensor]
    array: tf.TensorArray | None

    @contextlib.contextmanager
    def in_turn(self):
        """Ops with effects wait for those of the iteration before; TensorFlow does not make them.

        ``finish`` is given what they hand on, so that those of the next iteration wait for it.
        """
        with tf.control_dependencies(self.turn):

            def finish(*tensors):
                with tf.control_dependencies([*self.turn, *tensors]):
                    self.turn[0] = tf.identity(self.turn[0]) + 1

            yield finish


def _at(pool, index: int):
    return pool[-1 - index % len(pool)]


def _mean(x):
    return tf.reduce_mean(x)
