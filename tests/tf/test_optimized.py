"""What TensorFlow makes of two functions is compared without running either."""

import pytest
import tensorflow as tf

import rnnmem
from rnnmem import work
from rnnmem.tf.optimized import other_arithmetic, other_gradient
from tests.cases import numbers, outcome, weights

LEFT = "graph optimizer would compute"


def concrete(body, *shapes):
    function = tf.function(body)
    return function.get_concrete_function(*[tf.TensorSpec(shape) for shape in shapes])


def three(order):
    def body(x, y, z):
        given = [tf.sin(x), tf.cos(y), tf.tanh(z)]
        first, second, third = (given[at] for at in order)
        return (first - second) + third

    return concrete(body, (4,), (4,), (4,))


def test_a_sum_in_another_order_is_found():
    assert other_arithmetic(three((0, 1, 2)), three((0, 1, 2))) is None
    assert other_arithmetic(three((0, 1, 2)), three((2, 1, 0))) == "sub"


def test_neither_function_runs():
    runs = tf.Variable(0)

    def counted(x):
        runs.assign_add(1)
        return tf.sin(x)

    one, other = concrete(counted, (3,)), concrete(counted, (3,))
    assert other_arithmetic(one, other) is None
    assert runs.numpy() == 0
    assert other(tf.zeros(3)).numpy().tolist() == [0.0, 0.0, 0.0] and runs.numpy() == 1


def test_where_it_cannot_be_found_out_nothing_is_said(monkeypatch):
    with tf.Graph().as_default():
        captured = tf.constant(1.0)

        def body(x):
            return x + captured

        inside = concrete(body, (3,))
        assert other_arithmetic(inside, inside) is None

    def fails(*_):
        raise RuntimeError("no such graph")

    monkeypatch.setattr("rnnmem.tf.private.optimized_copy", fails)
    assert other_arithmetic(three((0, 1, 2)), three((2, 1, 0))) is None
    assert other_gradient(three((0, 1, 2)), 1, None, None) is None


def recurrent(kernels):
    def forward(x, h):
        return tf.while_loop(
            lambda i, h: i < 12, lambda i, h: (i + 1, tf.tanh(x[i] + h @ kernels[0])), (0, h)
        )[1]

    return forward


def trained():
    kernels = weights((16, 16))
    forward = recurrent(kernels)

    def step(x, h):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(forward(x, h) ** 2)
        return loss, tape.gradient(loss, kernels)

    return tf.function(step)


ARGUMENTS = numbers(12, 8, 16), numbers(8, 16, seed=2)


def test_a_function_that_would_compute_otherwise_is_left_alone(monkeypatch):
    asked = []

    def found(original, rewritten, of_nothing):
        asked.append(rewritten)
        return "while/body/_1/rnnmem/again/while/Tanh"

    monkeypatch.setattr(work, "other_arithmetic", found)
    step = trained()
    optimised = rnnmem.optimize(step, max_slowdown=2.0)
    plan = optimised.plan(*ARGUMENTS)
    assert plan.changes_nothing and asked
    assert any(LEFT in note and "test_optimized.py" in note for note in plan.notes)
    assert outcome(optimised(*ARGUMENTS)) == outcome(step(*ARGUMENTS))


@pytest.mark.parametrize("differs", [True, False])
def test_so_is_one_whose_gradient_would(monkeypatch, differs):
    real, asked = work.other_gradient, []

    def found(*given):
        asked.append(real(*given))
        return "while/Tanh" if differs else asked[-1]

    monkeypatch.setattr(work, "other_gradient", found)
    kernels = weights((16, 16))
    original = tf.function(recurrent(kernels))
    optimised = rnnmem.optimize(tf.function(recurrent(kernels)), max_slowdown=2.0)

    def gradient(function):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(function(*ARGUMENTS) ** 2)
        return loss, tape.gradient(loss, kernels)

    assert outcome(gradient(optimised)) == outcome(gradient(original))
    assert asked == [None]
    plan = optimised.plan(*ARGUMENTS)
    assert plan.changes_nothing is differs
    assert any(LEFT in note for note in plan.notes) is differs


def test_an_error_in_leaving_a_gradient_alone_is_a_warning(monkeypatch):
    real, calls = work.rewrite_gradient, []

    def fails_then(*given):
        calls.append(given)
        if len(calls) == 2:
            raise ZeroDivisionError("a defect")
        return real(*given)

    monkeypatch.setattr(work, "other_gradient", lambda *given: "while/Tanh")
    monkeypatch.setattr(work, "rewrite_gradient", fails_then)
    kernels = weights((16, 16))
    optimised = rnnmem.optimize(tf.function(recurrent(kernels)), max_slowdown=2.0)
    with pytest.warns(rnnmem.RnnmemWarning, match="ZeroDivisionError"), tf.GradientTape() as tape:
        loss = tf.reduce_sum(optimised(*ARGUMENTS) ** 2)
    assert tape.gradient(loss, kernels) is not None and len(calls) == 2
