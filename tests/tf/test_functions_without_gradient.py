"""Functions that run, and that TensorFlow cannot differentiate: nobody asked it to."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.errors import RnnmemWarning

X = tf.constant(np.random.default_rng(1).normal(size=(2, 3)), tf.float32)


def looped(op):
    def step(h):
        for _ in tf.range(tf.shape(h)[0] + 2):
            h = tf.tanh(op(h) + h)
        return h

    return step


def of_an_op_that_has_none(h):
    return tf.raw_ops.SoftsignGrad(gradients=h, features=h + 1.0)


def of_a_users_own(h):
    @tf.custom_gradient
    def doubled(value):
        def gradient(upstream):
            raise NotImplementedError("no gradient. Nor will there be")

        return value * 2.0, gradient

    return doubled(h)


def step_with_a_gradient(h):
    """A step whose gradient has none, with a loop that its tape never saw."""
    with tf.GradientTape() as tape:
        tape.watch(h)
        loss = tf.reduce_sum(tf.nn.softsign(h))
    return looped(lambda one: one * 0.5)(tape.gradient(loss, h))


FUNCTIONS = {
    "op": (looped(of_an_op_that_has_none), "LookupError: No gradient defined for operation"),
    "custom": (looped(of_a_users_own), "NotImplementedError: no gradient"),
    "second": (step_with_a_gradient, "LookupError: No gradient defined for operation"),
}


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_entry_answers_and_says_why(name, verify):
    function, reason = FUNCTIONS[name]
    expected = tf.function(function)(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RnnmemWarning)
        optimised = rnnmem.optimize(function, verify=verify)
        for _ in range(2):
            assert optimised(X).numpy().tobytes() == expected.numpy().tobytes()
            plan = optimised.plan(X)
            assert plan.changes_nothing
            (note,) = plan.notes
            assert reason in note
            assert note in str(optimised.explain(X))
            assert optimised.inspect(X).net is not None
            assert note in rnnmem.report(optimised, X).notes
        assert rnnmem.largest(optimised, lambda size: X, "1GiB", high=2) == 2


@pytest.mark.parametrize("name", FUNCTIONS)
def test_who_asks_for_the_gradient_gets_tensorflows_error(name):
    function, _ = FUNCTIONS[name]
    optimised = rnnmem.optimize(function)
    optimised.plan(X)

    def of(fn):
        @tf.function(autograph=False)
        def differentiated():
            with tf.GradientTape() as tape:
                tape.watch(X)
                loss = tf.reduce_sum(fn(X))
            return tape.gradient(loss, X)

        with pytest.raises((LookupError, NotImplementedError)) as caught:
            differentiated()
        return caught.type

    assert of(optimised) is of(tf.function(function))
