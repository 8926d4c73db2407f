"""Loops as people write them, in odd places and of odd make: the bits stay."""

import contextlib
from collections.abc import Callable

import pytest
import tensorflow as tf

import rnnmem
from tests.cases import Case, assert_same_bits, numbers, thrice, train, values, weights

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")]

T, B, U = 5, 2, 4
CASES: dict[str, Callable[[], Case]] = {}


def case(make):
    CASES[make.__name__] = make
    return make


def recur(x, kernel, start=None, **options):
    """The state after a loop over the rows of x: h = tanh(sin(h w) sigmoid(x))."""

    def body(i, h):
        return i + 1, tf.tanh(tf.sin(h @ kernel) * tf.sigmoid(x[i]))

    start = x[0] if start is None else start
    return tf.while_loop(lambda i, h: i < tf.shape(x)[0], body, (0, start), **options)[1]


def case_of(loss, made, *calls):
    return Case(train(loss, made), list(calls) or thrice(numbers(T, B, U)), values(*made))


@case
def encoder_and_decoder():
    made = weights((U, U), (U, U))

    def loss(x):
        state = recur(x, made[0])
        return tf.reduce_sum(recur(x, made[1], start=state) ** 2)

    return case_of(loss, made)


@case
def both_directions_with_one_weight():
    made = weights((U, U))

    def loss(x):
        return tf.reduce_sum(recur(x, made[0]) * recur(x[::-1], made[0]))

    return case_of(loss, made)


@case
def two_models_against_each_other():
    """The second tape differentiates the first model too, for nobody: that loop never runs."""
    made = weights((U, U), (U, U))
    makes = tf.function(lambda x: recur(x, made[0])[None] + x)
    judges = tf.function(lambda x: tf.reduce_sum(recur(x, made[1])))

    def step(x):
        with tf.GradientTape() as first, tf.GradientTape() as second:
            made_up = judges(makes(x))
            one, other = -made_up, made_up - judges(x)
        gradients = [first.gradient(one, made[0]), second.gradient(other, made[1])]
        for variable, gradient in zip(made, gradients, strict=True):
            variable.assign_sub(0.05 * gradient)
        return one, other

    return Case(step, thrice(numbers(T, B, U)), values(*made))


@case
def the_same_function_called_twice():
    made = weights((U, U))
    layer = tf.function(lambda x, start: recur(x, made[0], start))

    def loss(x):
        return tf.reduce_sum(layer(x, layer(x, x[0])) ** 2)

    return case_of(loss, made)


@case
def three_loops_deep():
    made = weights((U, U), (U, U), (U, U))

    def loss(x):
        def outer(i, h):
            def middle(j, h):
                def inner(k, h):
                    return k + 1, tf.tanh(tf.sin(h @ made[0]) * tf.cos(x[i]))

                h = tf.while_loop(lambda k, h: k < 2, inner, (0, h))[1]
                return j + 1, tf.tanh(tf.exp(-h @ made[1]) * h)

            h = tf.while_loop(lambda j, h: j < 3, middle, (0, h))[1]
            return i + 1, tf.sigmoid(tf.sin(h @ made[2]))

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < T, outer, (0, x[0]))[1] ** 2)

    return case_of(loss, made)


@case
def inner_loop_over_all_that_came_before():
    made = weights((U, U))

    def loss(x):
        def outer(i, h):
            def inner(j, s):
                return j + 1, s + tf.tanh(tf.sin(x[j] @ made[0]) * h)

            s = tf.while_loop(lambda j, s: j <= i, inner, (0, tf.zeros_like(h)))[1]
            return i + 1, tf.tanh(s)

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < T, outer, (0, x[0]))[1] ** 2)

    return case_of(loss, made)


@case
def inner_loop_that_writes_a_list():
    made = weights((U, U))

    def loss(x):
        def outer(i, h):
            rows = tf.TensorArray(tf.float32, 3, element_shape=[B, U])

            def inner(j, h, rows):
                h = tf.tanh(tf.sin(h @ made[0]) + x[i])
                return j + 1, h, rows.write(j, h)

            _, h, rows = tf.while_loop(lambda j, h, rows: j < 3, inner, (0, h, rows))
            return i + 1, tf.sin(tf.reduce_mean(rows.stack(), 0)) * tf.cos(h)

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < T, outer, (0, x[0]))[1] ** 2)

    return case_of(loss, made)


@case
def loop_in_a_branch():
    made = weights((U, U))

    def loss(x, deep):
        h = tf.cond(deep, lambda: recur(x, made[0]), lambda: tf.sin(x[0] @ made[0]))
        return tf.reduce_sum(h**2)

    return case_of(loss, made, *[((numbers(T, B, U), tf.constant(d)), {}) for d in (True, False)])


@case
def loop_in_a_branch_in_a_loop():
    made = weights((U, U))

    def loss(x):
        def body(i, h):
            return i + 1, tf.cond(
                i % 2 == 0, lambda: recur(x[:3], made[0], h), lambda: tf.sin(h @ made[0])
            )

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < T, body, (0, x[0]))[1] ** 2)

    return case_of(loss, made)


@case
def embedding_in_the_body():
    made = weights((7, U), (U, U))

    def loss(words):
        def body(i, h):
            return i + 1, tf.tanh(tf.gather(made[0], words[i]) + tf.sin(h @ made[1]))

        h = tf.while_loop(lambda i, h: i < T, body, (0, tf.zeros([B, U])))[1]
        return tf.reduce_sum(h**2)

    return case_of(loss, made, *thrice(tf.constant([[1, 2], [3, 3], [6, 0], [1, 1], [5, 4]])))


@case
def options_of_while_loop():
    made = weights((U, U))

    def loss(x):
        h = recur(x, made[0], parallel_iterations=3, swap_memory=True, maximum_iterations=4)
        return tf.reduce_sum(h**2)

    return case_of(loss, made)


@case
def state_in_a_structure():
    made = weights((U, U))

    def loss(x):
        def body(i, state):
            h = tf.tanh(tf.sin(state["h"] @ made[0]) * x[i])
            return i + 1, {"h": h, "pair": (state["pair"][1], tf.exp(-h)), "count": 1 + i}

        start = {"h": x[0], "pair": (x[0], x[1]), "count": 0}
        state = tf.while_loop(lambda i, state: i < T, body, (0, start))[1]
        return tf.reduce_sum(state["pair"][0] * state["pair"][1] + state["h"])

    return case_of(loss, made)


@case
def states_that_swap_places():
    made = weights((U, U))

    def loss(x):
        def body(i, a, b):
            return i + 1, b, tf.tanh(tf.sin(a @ made[0]) * b)

        _, a, b = tf.while_loop(lambda i, a, b: i < T, body, (0, x[0], x[1]))
        return tf.reduce_sum(a * b)

    return case_of(loss, made)


@case
def a_state_that_grows():
    made = weights((U, U))

    def loss(x):
        def body(i, h, seen):
            h = tf.tanh(tf.sin(h @ made[0]) * x[i] + tf.reduce_mean(seen, 0))
            return i + 1, h, tf.concat([seen, h[None]], 0)

        shapes = tf.TensorShape([]), tf.TensorShape([B, U]), tf.TensorShape([None, B, U])
        start = 0, x[0], x[:1]
        _, h, seen = tf.while_loop(lambda i, h, seen: i < T, body, start, shape_invariants=shapes)
        return tf.reduce_sum(tf.sin(seen)) + tf.reduce_sum(h)

    return case_of(loss, made)


@case
def doubles_and_complex_numbers():
    made = [tf.Variable(tf.cast(one, tf.float64)) for one in weights((U, U))]

    def loss(x):
        x = tf.cast(x, tf.float64)

        def body(i, h):
            z = tf.complex(h @ made[0], x[i])
            return i + 1, tf.tanh(tf.math.real(z * z) + tf.abs(z))

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < T, body, (0, x[0]))[1] ** 2)

    return case_of(loss, made)


@case
def own_gradient_in_the_body():
    made = weights((U, U))

    @tf.custom_gradient
    def squash(x):
        y = tf.tanh(tf.sin(x))
        return y, lambda upstream: upstream * tf.clip_by_value(1.0 - y * y, 0.1, 0.9)

    def loss(x):
        def body(i, h):
            return i + 1, squash(h @ made[0] + x[i])

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < T, body, (0, x[0]))[1] ** 2)

    return case_of(loss, made)


@case
def a_function_called_in_the_body():
    made = weights((U, U))
    cell = tf.function(lambda h, x: tf.tanh(tf.sin(h @ made[0]) * tf.sigmoid(x)))

    def loss(x):
        def body(i, h):
            return i + 1, cell(cell(h, x[i]), x[0])

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < T, body, (0, x[0]))[1] ** 2)

    return case_of(loss, made)


@case
def a_weight_that_is_read_three_times():
    made = weights((U, U))

    def loss(x):
        def body(i, h):
            h = tf.tanh(tf.sin(h @ made[0]) * x[i])
            h = tf.tanh(tf.cos(h @ made[0]) * x[0])
            return i + 1, tf.tanh(tf.sin(h @ made[0]) - x[1])

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < T, body, (0, x[0]))[1] ** 2)

    return case_of(loss, made)


@case
def normalised_and_masked():
    made = weights((U, U))

    def loss(x, lengths):
        def body(i, h):
            new = tf.sin(h @ made[0]) + x[i]
            mean, variance = tf.nn.moments(new, [1], keepdims=True)
            new = tf.tanh(tf.nn.batch_normalization(new, mean, variance, None, None, 1e-3))
            return i + 1, tf.where((i < lengths)[:, None], new, h)

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < T, body, (0, x[0]))[1] ** 2)

    return case_of(loss, made, *thrice(numbers(T, B, U), tf.constant([2, 5])))


@case
def convolution_in_the_body():
    made = weights((3, 3, 2, 2))

    def loss(x):
        def body(i, h):
            return i + 1, tf.tanh(tf.nn.conv2d(tf.sin(h), made[0], 1, "SAME") * x[i])

        return tf.reduce_sum(tf.while_loop(lambda i, h: i < T, body, (0, x[0]))[1] ** 2)

    return case_of(loss, made, *thrice(numbers(T, B, 4, 4, 2)))


@case
def gradients_of_inputs_alone():
    (kernel,) = weights((U, U))

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(recur(x, kernel) ** 2)
        return loss, tape.gradient(loss, x)

    return Case(step, thrice(numbers(T, B, U)))


@case
def tf_gradients_and_a_stopped_one():
    (kernel,) = made = weights((U, U))

    def step(x):
        weight = kernel.read_value()
        h = recur(x, weight)
        loss = tf.reduce_sum(h * tf.stop_gradient(recur(x, tf.sin(weight))))
        return loss, tf.gradients(loss, weight)

    return Case(step, thrice(numbers(T, B, U)), values(*made))


@case
def forward_and_gradient_in_functions_of_their_own():
    (kernel,) = made = weights((U, U))
    forward = tf.function(lambda x: tf.reduce_sum(recur(x, kernel) ** 2))

    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            loss = forward(x)
        return loss, tape.gradient(loss, kernel)

    def step(x):
        loss, slope = gradient(x)
        kernel.assign_sub(0.1 * slope)
        return loss, slope

    return Case(step, thrice(numbers(T, B, U)), values(*made))


@case
def two_steps_unrolled_in_one_call():
    (kernel,) = made = weights((U, U))
    once = train(lambda x: tf.reduce_sum(recur(x, kernel) ** 2), made)

    def step(x):
        return once(x), once(x * 0.5)

    return Case(step, thrice(numbers(T, B, U)), values(*made))


@case
def training_steps_in_a_loop():
    (kernel,) = made = weights((U, U))
    once = train(lambda x: tf.reduce_sum(recur(x, kernel) ** 2), made)

    @tf.function
    def step(x):
        total = 0.0
        for _ in tf.range(3):
            total += once(x)[0]
        return total

    return Case(step, thrice(numbers(T, B, U)), values(*made))


@case
def speech_under_connectionist_temporal_classification():
    """The loss has loops of its own, whose step nets call functions by name."""
    tf.keras.utils.set_random_seed(3)
    model = tf.keras.Sequential(
        [tf.keras.layers.GRU(U, return_sequences=True), tf.keras.layers.Dense(6)]
    )
    labels = tf.constant([[1, 2, 0], [3, 4, 5]])

    def loss(x):
        logits = tf.transpose(model(x), [1, 0, 2])
        frames, batch = tf.unstack(tf.shape(logits))[:2]
        lengths = tf.fill([batch], frames)
        return tf.reduce_sum(
            tf.nn.ctc_loss(labels, logits, tf.constant([2, 3]), lengths, blank_index=0)
        )

    model(numbers(B, 9, U))
    made = [one.value for one in model.trainable_variables]
    return case_of(loss, made, *thrice(numbers(B, 9, U)))


@case
def gru_with_masking_under_keras():
    tf.keras.utils.set_random_seed(3)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Embedding(9, U, mask_zero=True),
            tf.keras.layers.Bidirectional(tf.keras.layers.GRU(U, return_sequences=True)),
            tf.keras.layers.SimpleRNN(3),
        ]
    )
    words = tf.constant([[1, 2, 3, 0, 0], [4, 5, 6, 7, 8]])
    model(words)

    def loss(words):
        return tf.reduce_sum(model(words, training=True) ** 2)

    made = [one.value for one in model.trainable_variables]
    return case_of(loss, made, *thrice(words))


# TensorFlow's graph optimizer multiplies a constant with one factor of a product or the other, as
# their names are sorted and others read the product.
SCALED: dict[str, Callable] = {
    "argument_and_result": lambda h, w: tf.tanh(0.3 * (h * tf.tanh(h @ w))) + h * 0.9,
    "result_and_argument": lambda h, w: tf.tanh(tf.constant(0.3) * (tf.tanh(h @ w) * h)) + h,
    "constant_last": lambda h, w: tf.tanh(tf.tanh(h @ w) * h * 0.7) + h * 0.9,
    "two_results": lambda h, w: tf.tanh(0.3 * (tf.sin(h @ w) * tf.tanh(h @ w))) + h * 0.9,
    "two_of_the_argument": lambda h, w: tf.tanh(0.3 * (h * tf.sin(h))) + (h @ w) * 0.9,
    "divided": lambda h, w: tf.tanh((h * tf.tanh(h @ w)) / 0.3) + h * 0.9,
    "gelu": lambda h, w: tf.tanh(h + tf.nn.gelu(h @ w) @ tf.transpose(w)),
    "gelu_by_tanh": lambda h, w: tf.nn.gelu(h @ w, approximate=True) + h * 0.3,
    "gelu_by_hand": lambda h, w: (
        0.5 * (h @ w) * (1 + tf.tanh(0.79788 * ((h @ w) + 0.044715 * (h @ w) ** 3))) + h * 0.5
    ),
}


@pytest.mark.parametrize("scope", ["", "Decoder"])
@pytest.mark.parametrize("kind", SCALED)
def test_a_constant_is_multiplied_with_the_same_factor(kind, scope, deterministic):
    def make():
        (kernel,) = made = weights((16, 16))

        def loss(x):
            with tf.name_scope(scope) if scope else contextlib.nullcontext():
                _, h = tf.while_loop(
                    lambda i, _: i < 20, lambda i, h: (i + 1, SCALED[kind](h, kernel)), (0, x)
                )
            return tf.reduce_sum(h**2)

        return case_of(loss, made, *thrice(numbers(6, 16)))

    assert_same_bits(make, max_slowdown=float("inf"))


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_the_bits_stay(make, grappler, deterministic):
    assert_same_bits(make, max_slowdown=float("inf"))


@pytest.mark.parametrize("name", ["encoder_and_decoder", "three_loops_deep"])
@pytest.mark.parametrize("bound", [1.0, 1.1])
def test_the_bits_stay_within_a_bound_on_time(name, bound, deterministic):
    assert_same_bits(CASES[name], max_slowdown=bound)


def test_under_xla_the_rewrite_runs_and_agrees(deterministic):
    made = weights((U, U))

    def loss(x):
        def body(i, h):
            return i + 1, tf.tanh(tf.sin(h @ made[0]) * tf.sigmoid(x[i]))

        loop = tf.while_loop(lambda i, h: i < T, body, (0, x[0]), maximum_iterations=T)
        return tf.reduce_sum(loop[1] ** 2)

    def step(x):
        with tf.GradientTape() as tape:
            result = loss(x)
        return result, tape.gradient(result, made[0])

    compiled = tf.function(step, jit_compile=True)
    optimised = rnnmem.optimize(tf.function(step, jit_compile=True), max_slowdown=float("inf"))
    x = numbers(T, B, U)
    assert not optimised.plan(x).changes_nothing
    for one, other in zip(compiled(x), optimised(x), strict=True):
        tf.debugging.assert_near(one, other, rtol=1e-5)
