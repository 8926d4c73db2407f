"""Steps in training loops and in branches run again what they saved; every bit stays."""

import functools

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.planning.plan import Plan
from tests.cases import Case, assert_same_bits, numbers, values, weights
from tests.passes.straight_line.test_apply import plan_of

pytestmark = [
    pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning"),
    pytest.mark.usefixtures("deterministic"),
]


def layers(count=8):
    """Dense layers with residual connections and a running mean that each step updates."""
    made = weights(*[(64, 64)] * count)
    mean = tf.Variable(tf.zeros([64]), trainable=False)

    def loss(x):
        for kernel in made:
            x = x + tf.nn.gelu(x @ kernel)
        mean.assign(0.9 * mean + 0.1 * tf.reduce_mean(x, 0))
        return tf.reduce_mean(tf.square(x - mean))

    return loss, made, [mean], numbers(1024, 64)


def convolutions():
    """Convolutions with batch normalisation, whose moments are variables."""
    made = weights((3, 3, 3, 16), *[(3, 3, 16, 16)] * 3)
    mean, variance = (tf.Variable(one([16]), trainable=False) for one in (tf.zeros, tf.ones))

    def loss(x):
        for kernel in made:
            x = tf.nn.conv2d(x, kernel, 1, "SAME")
            now = tf.nn.moments(x, [0, 1, 2])
            mean.assign(0.9 * mean + 0.1 * now[0])
            variance.assign(0.9 * variance + 0.1 * now[1])
            x = tf.nn.relu(tf.nn.batch_normalization(x, *now, None, None, 1e-3))
        return tf.reduce_mean(tf.square(x))

    return loss, made, [mean, variance], numbers(4, 48, 48, 3)


def encoder():
    """Dense layers over all steps in front of a loop, with dropout."""
    made = weights((32, 64), (64, 64), (64, 64), (64, 64), (64, 64))

    def loss(x):
        for at, kernel in enumerate(made[:4]):
            x = tf.nn.dropout(tf.nn.gelu(x @ kernel), 0.1, seed=at)
        x = tf.transpose(x, [1, 0, 2])

        def body(t, h):
            return t + 1, tf.tanh(x[t] + h @ made[4])

        _, h = tf.while_loop(lambda t, h: t < 32, body, (0, tf.zeros([32, 64])))
        return tf.reduce_mean(tf.square(h))

    return loss, made, [], numbers(32, 32, 32)


def momentum(loss, made):
    """A step, and the variables that it keeps."""
    moments = [tf.Variable(tf.zeros_like(one), trainable=False) for one in made]

    def step(x):
        with tf.GradientTape() as tape:
            value = loss(x)
        for variable, moment, gradient in zip(
            made, moments, tape.gradient(value, made), strict=True
        ):
            moment.assign(0.9 * moment + gradient)
            variable.assign_sub(0.01 * moment)
        return value

    return step, moments


def in_a_loop(model, known=True):
    loss, made, state, x = model()
    step, moments = momentum(loss, made)

    def train(x, count):
        total = 0.0
        for _ in tf.range(3 if known else count):
            total += step(x)
        return total

    return Case(train, [((x, tf.constant(3)), {})] * 2, values(*made, *moments, *state))


def in_a_branch(model):
    loss, made, state, x = model()
    step, moments = momentum(loss, made)

    def train(x, go):
        value = 0.0
        if go:
            value = step(x)
        return value

    calls = [((x, tf.constant(go)), {}) for go in (True, False, True)]
    return Case(train, calls, values(*made, *moments, *state))


def skipped(model):
    """A step whose update is left out where the loss is not finite, in a loop."""
    loss, made, state, x = model()

    def train(x):
        total = 0.0
        for _ in tf.range(3):
            with tf.GradientTape() as tape:
                value = loss(x)
            gradients = tape.gradient(value, made)
            if tf.math.is_finite(value):
                for variable, gradient in zip(made, gradients, strict=True):
                    variable.assign_sub(0.01 * gradient)
            total += value
        return total

    return Case(train, [((x,), {})] * 2, values(*made, *state))


def accumulated(model):
    """Gradients of some batches, added up in a loop."""
    loss, made, state, x = model()

    def train(x):
        sums = [tf.zeros_like(one) for one in made]
        for i in tf.range(3):
            with tf.GradientTape() as tape:
                value = loss(x * tf.cast(i, tf.float32))
            gradients = tape.gradient(value, made)
            sums = [total + one for total, one in zip(sums, gradients, strict=True)]
        for variable, total in zip(made, sums, strict=True):
            variable.assign_sub(0.01 * total)
        return sums[0]

    return Case(train, [((x,), {})] * 2, values(*made, *state))


MAKERS = {
    "loop": functools.partial(in_a_loop, layers),
    "loop_of_unknown_length": functools.partial(in_a_loop, layers, known=False),
    "loop_of_convolutions": functools.partial(in_a_loop, convolutions),
    "loop_around_a_loop": functools.partial(in_a_loop, encoder),
    "branch": functools.partial(in_a_branch, layers),
    "branch_around_a_loop": functools.partial(in_a_branch, encoder),
    "skipped": functools.partial(skipped, layers),
    "accumulated": functools.partial(accumulated, layers),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_every_bit_stays(name, grappler):
    assert_same_bits(MAKERS[name], max_slowdown=1.5)


@pytest.mark.slow
@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("name", MAKERS)
def test_less_is_held_in_one_run_of_the_step(name):
    made = MAKERS[name]()
    plan = plan_of(made, max_slowdown=1.5)
    (one,) = plan.nested
    assert one.plan.of("straight_line")
    assert one.plan.predicted_peak < 0.85 * one.plan.original_peak
    assert Plan.from_json(plan.to_json()) == plan
    again = plan_of(MAKERS[name](), plan=plan.to_json())
    assert again.nested[0].plan.of("straight_line") == one.plan.of("straight_line")
    assert again.predicted_peak == plan.predicted_peak


@pytest.mark.slow
def test_a_training_loop_is_verified_explained_and_run():
    made = MAKERS["loop"]()
    arguments, _ = made.calls[0]
    step = rnnmem.optimize(tf.function(made.fn), max_slowdown=1.5, verify=True)
    step(*arguments)
    text = str(step.explain(*arguments))
    assert "outside of loops run again" in text
    assert any(line.split()[:2] == ["straight_line", "while"] for line in text.splitlines())
    assert step.inspect(*arguments).rewritten is not None


@pytest.mark.slow
def test_a_training_loop_that_a_tape_differentiates_runs_as_tensorflow_runs_it():
    made = MAKERS["loop"]()
    (x, count), _ = made.calls[0]
    step = rnnmem.optimize(tf.function(made.fn), max_slowdown=1.5)
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = step(x, count)
    assert tape.gradient(total, x) is not None


@pytest.mark.slow
def test_a_budget_holds_for_a_training_loop():
    made = MAKERS["loop"]()
    arguments, _ = made.calls[0]
    with pytest.raises(rnnmem.BudgetError, match="the smallest peak") as caught:
        plan_of(made, budget=2**16)
    plan = plan_of(MAKERS["loop"](), budget=caught.value.smallest)
    assert plan.at_every_depth("straight_line")
