"""Decorated functions that other graphs call: TensorFlow inlines the call and prunes it there."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem

B, H, T = 4, 32, 5
RANDOM = np.random.default_rng(3)
X, W = (RANDOM.normal(size=size).astype("float32") for size in ([B, H], [H, H]))


def loss_of(x, w):
    """A sum of two has a second reader, the next iteration; a clone of it has not."""

    def body(i, h, c):
        h, c = c * 0.9 + h * 0.1, tf.tanh(tf.reduce_max(tf.stack([c, h]), 0))
        return i + 1, h, tf.tanh(tf.tanh(h + c))

    h = tf.tanh(x @ w)
    _, h, c = tf.while_loop(lambda i, *_: i < T, body, (0, h, tf.sin(h)))
    return tf.reduce_mean(h * h) + tf.reduce_mean(c)


def divided(x, w):
    """The quotient's gradient is handed what is divided by a constant, and never reads it."""

    def body(i, h, c):
        c = tf.tanh(c * tf.sigmoid(tf.tanh(c + h)) / 3.0)
        return i + 1, tf.tanh(h + c), tf.tanh(c + h)

    h = tf.tanh(x @ w)
    _, h, c = tf.while_loop(lambda i, *_: i < T, body, (0, h, tf.sin(h)))
    return tf.reduce_mean(h * h) + tf.reduce_mean(c)


def divided_inside(x, w):
    """The same in a loop inside another, both of which run again."""

    def inner(j, h, c):
        c = tf.tanh(c * tf.sigmoid(tf.tanh(c + h)) / 3.0)
        return j + 1, tf.tanh(h + c), tf.tanh(c + h)

    def body(i, h, c):
        _, h, c = tf.while_loop(lambda j, *_: j < T, inner, (0, h, c))
        return i + 1, tf.tanh(h @ w), c

    h = tf.tanh(x @ w)
    _, h, c = tf.while_loop(lambda i, *_: i < T, body, (0, h, tf.sin(h)))
    return tf.reduce_mean(h * h) + tf.reduce_mean(c)


def run_alone(fn):
    def later(x, w):
        w = tf.constant(w)
        with tf.GradientTape() as tape:
            tape.watch(w)
            loss = fn(tf.constant(x), w)
        return loss, tape.gradient(loss, w)

    return later


def differentiated_later(fn):
    @tf.function
    def later(x, w):
        with tf.GradientTape() as tape:
            tape.watch(w)
            loss = fn(x, w)
        return loss, tape.gradient(loss, w)

    return later


def called(fn):
    @tf.function
    def outer(x, w):
        loss, gradient = fn(x, w)
        return loss, gradient * 2.0

    return outer


def step(x, w):
    with tf.GradientTape() as tape:
        tape.watch(w)
        loss = loss_of(x, w)
    return loss, tape.gradient(loss, w)


@pytest.mark.slow
@pytest.mark.parametrize(
    "use, fn",
    [
        (differentiated_later, loss_of),
        (differentiated_later, divided),
        (differentiated_later, divided_inside),
        (run_alone, divided),
        (run_alone, divided_inside),
        (called, step),
    ],
)
def test_a_call_without_state_keeps_its_bits(use, fn):
    rewritten = rnnmem.optimize(tf.function(fn), allow=("recompute",), max_slowdown=3.0)
    wanted, found = (use(one)(X, W) for one in (tf.function(fn), rewritten))
    assert rewritten.plan(X, W) is not None
    for one, other in zip(found, wanted, strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()


@pytest.mark.parametrize("asks", [False, True], ids=["no gradient", "a gradient"])
@pytest.mark.parametrize("max_slowdown", [1.5, 2.0])
def test_what_is_fused_where_a_caller_reads_no_gradient_is_fused_here_too(asks, max_slowdown):
    start = tf.constant(np.random.default_rng(106346).normal(size=(32, 64)) * 0.5, tf.float32)

    unconnected = tf.Variable(1.0)

    def loss_of(h, steps):
        i = tf.constant(0)
        while i < steps and tf.reduce_sum(tf.abs(h)) < 1e4:
            i += 1
            h = h * 0.8 + tf.tanh(tf.sigmoid(h) * h) * 0.2  # one op, if nobody saves the sigmoid
        return tf.reduce_mean(tf.square(h)), h

    def called(fn):
        @tf.function
        def later(h, steps):
            with tf.GradientTape() as tape:
                tape.watch(h)
                loss, last = fn(h, steps)
            gradient = tape.gradient(loss, h if asks else unconnected)
            return (loss, last, gradient) if asks else (loss, last)

        return later(start, tf.constant(24))

    optimised = rnnmem.optimize(tf.function(loss_of), max_slowdown=max_slowdown)
    for one, other in zip(called(tf.function(loss_of)), called(optimised), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not optimised.plan(start, tf.constant(24)).changes_nothing


@pytest.mark.slow
def test_what_is_fused_where_a_caller_reads_the_gradient_of_a_later_loop_alone():
    random = np.random.default_rng(5)
    start = tf.constant(random.normal(size=(32, 64)) * 0.5, tf.float32)
    weight = tf.Variable(random.normal(size=(64, 64)).astype("float32") * 0.1)

    def loss_of(h, steps):
        i = tf.constant(0)
        while i < steps and tf.reduce_sum(tf.abs(h)) < 1e5:
            i += 1
            h = h * 0.8 + tf.tanh(tf.sigmoid(h) * h) * 0.2
        last = h
        for _ in tf.range(12):
            last = tf.tanh(last @ weight) * tf.sigmoid(last)
        return tf.reduce_mean(h * last), h, last

    def called(fn):
        @tf.function
        def later(h, steps):
            with tf.GradientTape() as tape:
                tape.watch(h)
                loss, *others = fn(h, steps)
            return loss, *others, tape.gradient(loss, weight)

        return later(start, tf.constant(20))

    optimised = rnnmem.optimize(tf.function(loss_of), max_slowdown=2.0)
    for one, other in zip(called(tf.function(loss_of)), called(optimised), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not optimised.plan(start, tf.constant(20)).changes_nothing
