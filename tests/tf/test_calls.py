"""Loops in functions of which TensorFlow's graph optimizer makes no part of the caller."""

import itertools

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.tf.functions import net_of
from rnnmem.tf.optimized import other_arithmetic
from tests.cases import numbers, outcome, weights

GIVEN = numbers(24, 8, 6), numbers(8, 16, seed=2)
_layers = itertools.count()


def chosen_by(device):
    return {"api_implements": name(), "api_preferred_device": device}


def name():
    """One for each layer, as Keras 2 does: functions of one name stand for each other."""
    return f"layer {next(_layers)}"


def layer(attributes):
    """Half an LSTM, in a function that has other implementations, as one of Keras 2."""

    def states(x, h, kernel):
        return tf.while_loop(
            lambda i, h: i < 24,
            lambda i, h: (i + 1, tf.tanh(tf.concat([x[i], h], -1) @ kernel) * 0.5 + h * 0.5),
            (0, h),
            maximum_iterations=24,
        )[1]

    return tf.function(states, autograph=False, experimental_attributes=attributes)


def trained(attributes, **options):
    (kernel,) = weights((22, 16))
    run = layer(attributes)

    def step(x, h):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(run(x, h, tf.identity(kernel)) ** 2)
        return loss, tape.gradient(loss, kernel)

    return tf.function(step, **options)


def planned(attributes):
    step = trained(attributes)
    optimised = rnnmem.optimize(step, max_slowdown=2.0)
    assert outcome(optimised(*GIVEN)) == outcome(step(*GIVEN))
    return optimised.plan(*GIVEN)


def test_halves_that_run_on_this_device_are_rewritten_together():
    plan = planned(chosen_by("CPU"))
    assert plan.loops and not plan.changes_nothing, plan.notes


@pytest.mark.parametrize("attributes", [chosen_by("GPU"), {"api_implements": name()}])
def test_those_that_another_device_is_to_run_stay_calls(attributes):
    assert not planned(attributes).loops


def test_with_a_gpu_they_stay_calls(monkeypatch):
    concrete = trained(chosen_by("CPU")).get_concrete_function(*GIVEN)
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind])
    calls = [op for op in net_of(concrete).ops if "f" in op.nets]
    assert calls and all("api_implements" in op.nets["f"].attributes["attributes"] for op in calls)


def test_where_xla_compiles_they_stay_calls():
    step = trained(chosen_by("CPU"), jit_compile=True)
    optimised = rnnmem.optimize(step, max_slowdown=2.0)
    assert outcome(optimised(*GIVEN)) == outcome(step(*GIVEN))
    assert not optimised.plan(*GIVEN).loops


def test_so_does_the_gradient_that_a_tape_outside_asks_for():
    (kernel,) = weights((22, 16))
    run = layer(chosen_by("CPU"))

    def loss(x, h):
        return tf.reduce_sum(run(x, h, tf.identity(kernel)) ** 2)

    def gradient(function):
        with tf.GradientTape() as tape:
            found = function(*GIVEN)
        return found, tape.gradient(found, kernel)

    optimised = rnnmem.optimize(tf.function(loss), max_slowdown=2.0)
    assert outcome(gradient(optimised)) == outcome(gradient(tf.function(loss)))
    assert optimised.plan(*GIVEN).loops


def summing(order, attributes, scale=3.0):
    """A sum of three in a function of its own; the optimizer gives it what is constant."""

    def total(x, y, z, scale):
        given = [tf.sin(x), tf.cos(y), tf.tanh(z)]
        first, second, third = (given[at] for at in order)
        return (first - second) + third * scale, first

    inner = tf.function(total, autograph=False, experimental_attributes=attributes)

    def body(x, y, z):
        return inner(x, y, z, tf.fill([4], scale))[0]

    return tf.function(body).get_concrete_function(*[tf.TensorSpec((4,))] * 3)


@pytest.mark.parametrize("called", [lambda: chosen_by("CPU"), lambda: {"_noinline": True}])
def test_sums_inside_a_call_are_compared(called):
    one = summing((0, 1, 2), called())
    assert other_arithmetic(one, summing((0, 1, 2), called())) is None
    assert other_arithmetic(one, summing((0, 1, 2), None)) is None
    assert other_arithmetic(one, summing((2, 1, 0), called())) is not None
    assert other_arithmetic(one, summing((0, 1, 2), called(), 2.0)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_recurrent_layers_of_keras_2_over_an_open_batch(name):
    """Zeros of an unknown size are no constants, so the calls are still given them."""
    keras = pytest.importorskip("tf_keras", reason="tf_keras (Keras 2) is not installed")
    made = getattr(keras.layers, name)(16)
    made.build((None, 24, 6))
    variables = made.trainable_variables

    @tf.function(input_signature=[tf.TensorSpec((None, 24, 6))])
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(made(x)))
        return loss, tape.gradient(loss, variables)

    x = numbers(8, 24, 6)
    optimised = rnnmem.optimize(step, max_slowdown=2.0)
    assert outcome(optimised(x)) == outcome(step(x))
    assert optimised.plan(x).loops, optimised.plan(x).notes


@pytest.mark.slow
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_recurrent_layers_of_keras_2(name, mask):
    keras = pytest.importorskip("tf_keras", reason="tf_keras (Keras 2) is not installed")
    x = numbers(8, 24, 6)
    lengths = tf.sequence_mask([24, 3, 7, 1, 24, 12, 9, 2], 24) if mask else None
    made = getattr(keras.layers, name)(16, return_sequences=True)
    made.build(x.shape)
    variables = made.trainable_variables

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(made(x, mask=lengths)))
        return loss, tape.gradient(loss, variables)

    step = tf.function(step)
    optimised = rnnmem.optimize(step, max_slowdown=2.0)
    assert outcome(optimised(x)) == outcome(step(x))
    assert optimised.plan(x).loops, optimised.plan(x).notes
