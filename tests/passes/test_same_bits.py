"""A rewritten train step gives every bit that the original gives, and what it meant to save.

Each case is made twice, with variables of its own. One function is called as TensorFlow runs it,
the other under ``optimize``; results and state are compared by their bits after every call.
"""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from tests.cases import Case, assert_same_bits, numbers, thrice, train, values, weights

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")]

CASES: dict[str, Callable[..., Case]] = {}
SAVING = set()
"""Cases whose peak must fall."""


def case(make=None, *, saves=False):
    if make is None:
        return lambda make: case(make, saves=saves)
    CASES[make.__name__] = make
    if saves:
        SAVING.add(make.__name__)
    return make


def lstm_cell(x, h, c, kernel, recurrent, bias):
    z = tf.matmul(x, kernel) + tf.matmul(h, recurrent) + bias
    i, f, g, o = tf.split(z, 4, axis=1)
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(c), c


@case(saves=True)
def lstm_that_reads_variables(steps=7, batch=3, units=5):
    kernel, recurrent, bias = made = weights((units, 4 * units), (units, 4 * units), (1, 4 * units))

    def loss(x):
        def body(i, h, c):
            return i + 1, *lstm_cell(x[i], h, c, kernel, recurrent, bias)

        start = tf.zeros([batch, units])
        _, h, _ = tf.while_loop(lambda i, h, c: i < steps, body, (0, start, start))
        return tf.reduce_sum(h * h)

    return Case(train(loss, made), thrice(numbers(steps, batch, units)), values(*made))


@case(saves=True)
def branch_that_reads_variables(steps=9, batch=4, units=32):
    one, other, bias = made = weights((units, units), (units, units), (1, units))

    def loss(x):
        def body(i, h):
            gate = tf.cond(
                i % 3 == 1,
                lambda: tf.tanh(tf.tanh(tf.matmul(h, one) + bias) * 0.5),
                lambda: tf.sigmoid(tf.matmul(tf.sigmoid(tf.matmul(h, other)), one)),
            )
            return i + 1, gate + x[i]

        _, h = tf.while_loop(lambda i, h: i < steps, body, (0, tf.zeros([batch, units])))
        return tf.reduce_sum(h * h)

    return Case(train(loss, made), thrice(numbers(steps, batch, units)), values(*made))


@case
def branch_whose_variable_the_loop_changes(steps=6, batch=3, units=5):
    (kernel,) = made = weights((units, units))
    seen = tf.Variable(0.0)

    def loss(x):
        def body(i, h):
            h = tf.cond(
                i % 2 == 0, lambda: tf.tanh(tf.matmul(h, kernel)) * seen, lambda: tf.tanh(h)
            )
            seen.assign_add(1.0)
            return i + 1, h + x[i]

        _, h = tf.while_loop(lambda i, h: i < steps, body, (0, tf.zeros([batch, units])))
        return tf.reduce_sum(h * h)

    return Case(train(loss, made), thrice(numbers(steps, batch, units)), values(*made, seen))


@case
def one_value_computed_twice_and_summed(steps=9, batch=4, units=16):
    (start,) = made = weights((batch, units))

    def loss(x):
        def body(i, h, rows):
            # Merged, both sigmoids would give the gradient's sum one addend twice.
            z = tf.sigmoid(h) + tf.sigmoid(h) + tf.sin(h) + tf.tanh(h)
            return i + 1, z * 0.3 + x[i], rows.write(i, z)

        rows = tf.TensorArray(tf.float32, steps)
        _, _, rows = tf.while_loop(lambda i, h, rows: i < steps, body, (0, start + 0.0, rows))
        return tf.reduce_sum(rows.stack() ** 2)

    return Case(train(loss, made), thrice(numbers(steps, batch, units)), values(*made))


@case(saves=True)
def weights_cast_in_every_iteration(steps=9, batch=2, units=64):
    kernel, recurrent = made = weights((units, units), (units, units))

    def loss(x):
        def body(i, h):
            low = [tf.cast(one, tf.bfloat16) for one in (x[i], kernel, h, recurrent)]
            z = tf.matmul(low[0], low[1]) + tf.matmul(low[2], low[3])
            return i + 1, tf.cast(tf.tanh(z), tf.float32)

        _, h = tf.while_loop(lambda i, h: i < steps, body, (0, tf.zeros([batch, units])))
        return tf.reduce_sum(h * h)

    return Case(train(loss, made), thrice(numbers(steps, batch, units)), values(*made))


@case(saves=True)
def lstm_that_returns_sequences(steps=7, batch=3, units=5):
    kernel, recurrent, bias = made = weights((units, 4 * units), (units, 4 * units), (1, 4 * units))

    def loss(x):
        rows = tf.TensorArray(tf.float32, steps).unstack(x)
        written = tf.TensorArray(tf.float32, steps)
        h = c = tf.zeros([batch, units])
        for i in tf.range(steps):
            h, c = lstm_cell(rows.read(i), h, c, kernel, recurrent, bias)
            written = written.write(i, h)
        return tf.reduce_mean(tf.square(written.stack() - x))

    step = train(tf.function(loss), made)
    return Case(step, thrice(numbers(steps, batch, units)), values(*made))


@case
def sums_of_what_was_pushed(steps=6, batch=3, units=5):
    """An accumulator keeps an addend's buffer, so that the sum does not begin with it."""
    weight, mix = made = weights((units, units), (units, units))

    def loss(x):
        def body(i, h, c):
            total = tf.add_n([h, c, tf.tanh(h)])
            return i + 1, tf.tanh(h @ weight + tf.sigmoid(total) * x[i]), tf.sin(c @ mix + total)

        start = tf.ones([batch, units])
        _, h, c = tf.while_loop(lambda i, h, c: i < steps, body, (0, start, 0.3 * start))
        return tf.reduce_sum(h * c)

    return Case(train(loss, made), thrice(numbers(steps, batch, units)), values(*made))


@case
def a_gradient_that_is_a_sum(steps=6, batch=3, units=5):
    """What waits for a tree of additions would keep TensorFlow from making one sum of it."""
    (weight,) = made = weights((units, units))

    def loss(x):
        def body(i, h, g):
            return i + 1, tf.tanh(h @ weight + x[i]), tf.tanh(g * x[i])

        start = tf.ones([batch, units])
        _, h, g = tf.while_loop(lambda i, h, g: i < steps, body, (0, start, start))
        normal = tf.math.l2_normalize(h + 0.1, axis=-1)
        return tf.add_n([tf.reduce_mean(tf.square(one)) for one in (h, g, normal)])

    return Case(train(loss, made), thrice(numbers(steps, batch, units)), values(*made))


@case
def gradients_whose_shape_is_not_known(steps=2, batch=3, units=4):
    """Knowing the shape of a popped blob, TensorFlow makes one sum of what it leaves as two."""

    def loss(x):
        def body(i, a, b, c):
            z = tf.ensure_shape(tf.identity(c), [batch, units])
            return i + 1, tf.clip_by_value(z, -4.0, 4.0), tf.tanh(z), tf.tanh(b)

        states = tf.while_loop(lambda i, *_: i < steps, body, (0, x[0], x[1], x[2]))[1:]
        return tf.add_n([tf.reduce_mean(tf.square(one)) for one in [*states, 3.0 * states[2]]])

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = loss(x)
        return value, tape.gradient(value, x)

    return Case(step, thrice(numbers(3, batch, units)), values())


@case(saves=True)
def attention(steps=6, batch=2, units=4):
    query, key, score, mix = made = weights(
        (units, units), (units, units), (units, 1), (2 * units, units)
    )

    def loss(memory, x):
        keys = tf.einsum("sbu,uv->sbv", memory, key)

        def body(i, h, total):
            energy = tf.tanh(keys + tf.matmul(h, query))
            weight = tf.nn.softmax(tf.einsum("sbu,uo->sb", energy, score), axis=0)
            context = tf.reduce_sum(weight[:, :, None] * memory, axis=0)
            h = tf.tanh(tf.matmul(tf.concat([context, x[i]], 1), mix) + h)
            return i + 1, h, total + tf.reduce_sum(h * h)

        start = (0, tf.zeros([batch, units]), 0.0)
        return tf.while_loop(lambda i, h, total: i < steps, body, start)[2]

    shape = steps, batch, units
    return Case(train(loss, made), thrice(numbers(*shape), numbers(*shape, seed=2)), values(*made))


@case
def branch_in_the_body(steps=6, batch=2, units=4):
    left, right = made = weights((units, units), (units, units))

    def loss(x):
        def body(i, h):
            h = tf.cond(
                i % 2 == 0,
                lambda: tf.tanh(h @ left) * tf.sigmoid(h + x[i]),
                lambda: tf.tanh(tf.sin(h @ right) + x[i]),
            )
            return i + 1, h

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < steps, body, (0, x[0]))[1] ** 2)

    return Case(train(loss, made), thrice(numbers(steps, batch, units)), values(*made))


@case(saves=True)
def dropout_in_the_body(steps=6, batch=2, units=4):
    (kernel,) = made = weights((units, units))

    def loss(x):
        def body(i, h):
            mask = tf.cast(tf.random.uniform([batch, units], seed=3) > 0.3, tf.float32)
            h = tf.tanh(tf.sin(tf.exp(-h * h) * mask) @ kernel + x[i])
            return i + 1, tf.nn.dropout(h, 0.2, seed=4)

        # With more parallel iterations it is a race which of them gets which draw.
        end = tf.while_loop(lambda i, h: i < steps, body, (0, x[0]), parallel_iterations=1)
        return tf.reduce_sum(end[1] ** 2)

    return Case(train(loss, made), thrice(numbers(steps, batch, units)), values(*made))


@case(saves=True)
def stateless_dropout_in_the_body(steps=6, batch=2, units=4):
    (kernel,) = made = weights((units, units))

    def loss(x, seed):
        def body(i, h):
            mask = tf.random.stateless_uniform([batch, units], tf.stack([seed, i])) > 0.3
            h = tf.tanh(h @ kernel + x[i]) * tf.cast(mask, tf.float32)
            return i + 1, h

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < steps, body, (0, x[0]))[1] ** 2)

    calls = [((numbers(steps, batch, units), tf.constant(seed)), {}) for seed in (1, 2)]
    return Case(train(loss, made), calls, values(*made))


@case
def nested_loops(steps=5, batch=2, units=4):
    outer, inner = made = weights((units, units), (units, units))

    def loss(x):
        def step(i, h):
            def deeper(j, g):
                return j + 1, tf.tanh(tf.sin(g @ inner) * tf.cos(h) + x[i])

            _, g = tf.while_loop(lambda j, g: j < 3, deeper, (0, h))
            return i + 1, tf.tanh(g @ outer) * tf.sigmoid(h)

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < steps, step, (0, x[0]))[1] ** 2)

    return Case(train(loss, made), thrice(numbers(steps, batch, units)), values(*made))


@case
def two_losses_of_one_loop(steps=6, batch=2, units=4):
    (kernel,) = made = weights((units, units))

    def step(x):
        with tf.GradientTape(persistent=True) as tape:

            def body(i, h, total):
                h = tf.tanh(tf.sin(h @ kernel) * tf.sigmoid(x[i]))
                return i + 1, h, total + tf.reduce_sum(tf.exp(h))

            start = (0, x[0], 0.0)
            _, h, total = tf.while_loop(lambda i, h, total: i < steps, body, start)
            last = tf.reduce_sum(h * h)
        gradients = tape.gradient(last, kernel), tape.gradient(total, kernel)
        kernel.assign_sub(0.1 * gradients[0] + 0.2 * gradients[1])
        return last, total, gradients

    return Case(step, thrice(numbers(steps, batch, units)), values(*made))


@case(saves=True)
def weights_cast_to_bfloat16(steps=6, batch=2, units=4):
    (kernel,) = made = weights((units, units))

    def loss(x):
        x = tf.cast(x, tf.bfloat16)

        def body(i, h):
            return i + 1, tf.tanh(h @ tf.cast(kernel, tf.bfloat16) + x[i])

        h = tf.while_loop(lambda i, h: i < steps, body, (0, x[0]))[1]
        return tf.reduce_sum(tf.cast(h, tf.float32) ** 2)

    return Case(train(loss, made), thrice(numbers(steps, batch, units)), values(*made))


@case
def unknown_dimensions(steps=6, batch=2, units=4):
    (kernel,) = made = weights((units, units))

    def loss(x):
        def body(i, h):
            return i + 1, tf.tanh(tf.sin(h @ kernel) * tf.sigmoid(x[i]))

        limit = tf.shape(x)[0]
        return tf.reduce_sum(tf.while_loop(lambda i, h: i < limit, body, (0, x[0]))[1] ** 2)

    step = tf.function(train(loss, made), input_signature=[tf.TensorSpec([None, None, units])])
    calls = [((numbers(n, m, units),), {}) for n, m in ((steps, batch), (1, 1), (2 * steps, 3))]
    return Case(step, calls, values(*made))


@case
def as_many_trips_as_the_data_wants(steps=6, batch=2, units=4):
    (kernel,) = made = weights((units, units))

    def loss(x):
        def more(h, steps):
            return tf.reduce_sum(tf.abs(h)) > 0.3

        def body(h, steps):
            return tf.tanh(h @ kernel) * tf.cos(h), steps + 1

        h, count = tf.while_loop(more, body, (x, 0))
        return tf.reduce_sum(h * h) * tf.cast(count, tf.float32)

    calls = [((numbers(batch, units) * scale,), {}) for scale in (1.0, 0.0, 10.0)]
    return Case(train(loss, made), calls, values(*made))


@case
def no_trip_at_all(steps=0, batch=2, units=4):
    (kernel,) = made = weights((units, units))

    def loss(x, limit):
        def body(i, h):
            return i + 1, tf.tanh(tf.sin(h @ kernel) * tf.sigmoid(x))

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < limit, body, (0, x))[1] ** 2)

    x = numbers(batch, units)
    calls = [((x, tf.constant(limit)), {}) for limit in (0, 3, 0)]
    return Case(train(loss, made), calls, values(*made))


@case
def scan_fold_and_map(steps=6, batch=2, units=4):
    (kernel,) = made = weights((units, units))

    def loss(x):
        scanned = tf.scan(lambda h, x: tf.tanh(tf.sin(h @ kernel) + x), x)
        folded = tf.foldl(lambda h, x: tf.tanh(h @ kernel) * tf.sigmoid(x), scanned)
        mapped = tf.map_fn(lambda row: tf.sin(row @ kernel) * tf.cos(row), scanned)
        return tf.reduce_sum(folded**2) + tf.reduce_mean(mapped)

    return Case(train(loss, made), thrice(numbers(steps, batch, units)), values(*made))


@case
def clipped_gradients_under_adam(steps=6, batch=2, units=4):
    kernel, recurrent, bias = made = weights((units, 4 * units), (units, 4 * units), (1, 4 * units))
    adam = tf.keras.optimizers.Adam(0.1)
    adam.build(made)

    def step(x):
        with tf.GradientTape() as tape:

            def body(i, h, c):
                return i + 1, *lstm_cell(x[i], h, c, kernel, recurrent, bias)

            start = tf.zeros([batch, units])
            _, h, _ = tf.while_loop(lambda i, h, c: i < steps, body, (0, start, start))
            loss = tf.reduce_sum(h * h)
        gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, made), 0.01)
        adam.apply_gradients(zip(gradients, made, strict=True))
        return loss, norm

    return Case(step, thrice(numbers(steps, batch, units)), values(*made, *adam.variables))


@case
def keras_lstm_with_recurrent_dropout(steps=6, batch=2, units=4):
    tf.keras.utils.set_random_seed(3)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.LSTM(units, return_sequences=True, recurrent_dropout=0.2),
            tf.keras.layers.LSTM(units, recurrent_dropout=0.2),
        ]
    )
    model.build((batch, steps, units))

    def loss(x):
        return tf.reduce_sum(model(x, training=True) ** 2)

    step = train(loss, [one.value for one in model.trainable_variables])
    state = values(*(one.value for one in model.variables))
    return Case(step, thrice(numbers(batch, steps, units)), state)


@case
def effects_in_the_body(steps=6, batch=2, units=4):
    (kernel,) = weights((units, units))
    runs, seen = tf.Variable(0), []

    def loss(x):
        def body(i, h):
            runs.assign_add(1)
            tf.py_function(lambda value: seen.append(float(value)), [h[0, 0]], [])
            return i + 1, tf.tanh(tf.sin(h @ kernel) * tf.sigmoid(x[i]))

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < steps, body, (0, x[0]))[1] ** 2)

    # py_function's list is as good as state: how often, in which order, with which values.
    state = lambda: [runs.numpy(), kernel.numpy(), np.array(seen)]  # noqa: E731
    return Case(train(loss, [kernel]), thrice(numbers(steps, batch, units)), state)


@case
def variable_changed_in_the_body(steps=6, batch=2, units=4):
    (kernel,) = weights((units, units))
    scale = tf.Variable(1.0)

    def loss(x):
        def body(i, h):
            before = scale.read_value()
            scale.assign(before * 0.9)
            return i + 1, tf.tanh(tf.sin(h @ kernel) * before * scale + x[i])

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < steps, body, (0, x[0]))[1] ** 2)

    return Case(train(loss, [kernel]), thrice(numbers(steps, batch, units)), values(kernel, scale))


@case
def weights_changed_between_loop_and_gradient(steps=6, batch=2, units=4):
    (kernel,) = made = weights((units, units))

    def step(x):
        with tf.GradientTape() as tape:

            def body(i, h):
                return i + 1, tf.tanh(tf.sin(h @ kernel) * tf.sigmoid(x[i]))

            h = tf.while_loop(lambda i, h: i < steps, body, (0, x[0]))[1]
            loss = tf.reduce_sum(h * h)
        kernel.assign(kernel * 0.5)  # recomputation must not see this
        gradient = tape.gradient(loss, kernel)
        kernel.assign_sub(0.1 * gradient)
        return loss, gradient

    return Case(step, thrice(numbers(steps, batch, units)), values(*made))


@case
def gradient_of_a_gradient(steps=4, batch=2, units=3):
    (kernel,) = made = weights((units, units))

    def step(x):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as tape:

                def body(i, h):
                    return i + 1, tf.tanh(tf.sin(h @ kernel) + x[i])

                h = tf.while_loop(lambda i, h: i < steps, body, (0, x[0]))[1]
                loss = tf.reduce_sum(h * h)
            gradient = tape.gradient(loss, kernel)
            norm = tf.reduce_sum(gradient**2)
        second = outer.gradient(norm, kernel)
        kernel.assign_sub(0.01 * second)
        return loss, gradient, second

    return Case(step, thrice(numbers(steps, batch, units)), values(*made))


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_every_bit_is_the_same(make, grappler, deterministic):
    assert_same_bits(make, max_slowdown=float("inf"))


@pytest.mark.parametrize("name", sorted(SAVING))
def test_memory_is_saved(name):
    made = CASES[name](steps=48, batch=16, units=64)
    args, kwargs = made.calls[0]
    as_it_was = rnnmem.measure(tf.function(made.fn), *args, repeats=1, **kwargs)
    optimised = rnnmem.optimize(made.fn, max_slowdown=float("inf"))
    assert not optimised.plan(*args, **kwargs).changes_nothing
    now = rnnmem.measure(optimised, *args, repeats=1, **kwargs)
    assert now.peak_bytes < 0.8 * as_it_was.peak_bytes
