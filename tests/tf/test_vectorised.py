"""Jacobians, vectorised maps and hessians, for which TensorFlow looks inside what was rewritten."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops.parallel_for import pfor

import rnnmem
from rnnmem.tf.private import gradients, vectorisation
from tests.allocations import ops_run

MUL = "MatMul"
REWRITERS = ("arithmetic_optimization", "constant_folding", "remapping")


def numbers(*shape, seed=1, scale=1.0):
    drawn = scale * np.random.default_rng(seed).normal(size=shape)
    return tf.constant(drawn, tf.float32)


X, W, U = numbers(2, 4), numbers(4, 4, seed=2, scale=0.4), numbers(4, 4, seed=3, scale=0.4)


# Forward functions that somebody else differentiates.


def loop(x):
    h = x
    for _ in tf.range(5):
        h = tf.tanh(h @ W) * tf.sigmoid(h)
    return h


def long_loop(x):
    h, c = x, tf.zeros_like(x)
    for _ in tf.range(40):
        g, f = tf.tanh(h @ W), tf.sigmoid(h @ U)
        c = f * c + (1.0 - f) * g
        h = tf.tanh(c) * tf.sigmoid(g)
    return h


def loop_in_a_loop(x):
    h = x
    for _ in tf.range(3):
        for _ in tf.range(4):
            h = tf.tanh(h @ W) * tf.sigmoid(h)
        h = tf.sin(h)
    return h


def branch_in_a_loop(x):
    h = x
    for i in tf.range(6):
        if i % 2 == 0:
            h = tf.tanh(h @ W) * tf.sigmoid(h)
        else:
            h = tf.sin(h @ U) + h
    return h


FORWARD = (loop, long_loop, loop_in_a_loop, branch_in_a_loop)


# Ways to differentiate them; all of these work without rnnmem.


def batch_jacobian(f):
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = f(X)
    return tape.batch_jacobian(y, X)


def jacobian_through_a_function(f):
    outer = tf.function(lambda x: tf.sin(f(tf.cos(x))))
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = outer(X)
    return tape.jacobian(y, X)


def jacobian_of_a_persistent_tape(f):
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(X)
        y = f(X)
    return tape.jacobian(y, X), tape.batch_jacobian(y, X)


def jacobian_in_a_function(f):
    return tf.function(lambda: batch_jacobian(f))()


def jacobian_and_gradient_in_a_function(f):
    def both():
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(X)
            y = f(X)
        return tape.gradient(y, X), tape.batch_jacobian(y, X), tape.gradient(y, X)

    return tf.function(both)()


def jacobian_without_vectorising(f):
    def one():
        with tf.GradientTape() as tape:
            tape.watch(X)
            y = f(X)
        return tape.jacobian(y, X, experimental_use_pfor=False)

    return tf.function(one)()


def hessian(f):
    return tf.function(lambda x: tf.hessians(tf.reduce_sum(f(x)), x))(X)


def tangents(f):
    with tf.autodiff.ForwardAccumulator(X, U[:2]) as accumulator:
        y = f(X)
    return y, accumulator.jvp(y)


def vectorised_map(f):
    return tf.vectorized_map(lambda row: f(row[None])[0], X)


def gradient_of_a_vectorised_map(f):
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = tf.vectorized_map(lambda row: f(row[None])[0], X)
    return tape.gradient(y, X)


SAME_BITS = (
    jacobian_of_a_persistent_tape,
    jacobian_in_a_function,
    jacobian_and_gradient_in_a_function,
    jacobian_without_vectorising,
    hessian,
    tangents,
    vectorised_map,
    gradient_of_a_vectorised_map,
)


def gradient_of_each_row(f):
    def one(row):
        with tf.GradientTape() as tape:
            tape.watch(row)
            y = tf.reduce_sum(f(row[None]) ** 2)
        return tape.gradient(y, row)

    return tf.vectorized_map(one, X)


def bits(results):
    return [leaf.numpy().tobytes() for leaf in tf.nest.flatten(results)]


def assert_close(found, expected):
    """Equal but for what fusions do to the last bits."""
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        scale = np.max(np.abs(other.numpy()))
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=0, atol=1e-5 * scale)


def optimised(forward):
    return rnnmem.optimize(tf.function(forward), max_slowdown=3.0)


@pytest.mark.slow
@pytest.mark.parametrize("forward", FORWARD, ids=lambda one: one.__name__)
def test_an_eager_jacobian_looks_inside_the_rewritten_loops(forward):
    f = optimised(forward)
    assert not f.plan(X).changes_nothing
    assert_close(batch_jacobian(f), batch_jacobian(tf.function(forward)))


@pytest.mark.slow
def test_a_function_around_it_is_looked_into_too():
    use = jacobian_through_a_function
    assert_close(use(optimised(loop)), use(tf.function(loop)))


@pytest.mark.slow
def test_its_bits_are_the_same_where_nothing_fuses():
    context.context().set_optimizer_experimental_options(dict.fromkeys(REWRITERS, False))
    try:
        f = optimised(long_loop)
        assert bits(batch_jacobian(f)) == bits(batch_jacobian(tf.function(long_loop)))
    finally:
        for name in REWRITERS:
            context.context()._optimizer_experimental_options.pop(name, None)
        context.context().set_optimizer_experimental_options({})


@pytest.mark.slow
@pytest.mark.parametrize("use", SAME_BITS, ids=lambda one: one.__name__)
def test_what_tensorflow_is_left_to_keeps_its_bits(use):
    assert bits(use(optimised(loop))) == bits(use(tf.function(loop)))


@pytest.mark.slow
def test_the_gradient_of_each_row_is_tensorflows():
    assert bits(gradient_of_each_row(optimised(loop))) == bits(
        gradient_of_each_row(tf.function(loop))
    )


@pytest.mark.slow
def test_a_function_called_in_the_map_is_looked_into_too():
    def rows(f):
        def gradient(row):
            with tf.GradientTape() as tape:
                tape.watch(row)
                y = tf.reduce_sum(f(row[None]) ** 2)
            return tape.gradient(y, row)

        return tf.vectorized_map(tf.function(gradient), X)

    assert_close(rows(optimised(loop)), rows(tf.function(loop)))


@pytest.mark.slow
def test_a_vectorised_step_is_tensorflows():
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(loop(x) ** 2)
        return tape.gradient(y, x)

    def rows(f):
        return tf.vectorized_map(lambda row: f(row[None]), X)

    f = rnnmem.optimize(tf.function(step), max_slowdown=3.0)
    assert not f.plan(X[:1]).changes_nothing
    assert bits(rows(f)) == bits(rows(tf.function(step)))


def test_a_step_with_a_jacobian_in_it():
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = loop(x)
        return tape.batch_jacobian(y, x)

    assert bits(rnnmem.optimize(step)(X)) == bits(tf.function(step)(X))


def test_what_cannot_be_vectorised_is_called_in_turn(monkeypatch):
    expected = batch_jacobian(tf.function(loop))

    def refuse(pfor_input):
        raise ValueError("no such loop")

    f = optimised(loop)
    f.plan(X)
    monkeypatch.setitem(pfor._pfor_converter_registry, "While", refuse)
    monkeypatch.setitem(pfor._pfor_converter_registry, "StatelessWhile", refuse)
    assert_close(batch_jacobian(f), expected)


@pytest.mark.slow
def test_ordinary_gradients_are_not_left_to_tensorflow(monkeypatch):
    asked = []
    look = vectorisation.is_vectorised_or_differentiated_again
    monkeypatch.setattr(
        gradients,
        "is_vectorised_or_differentiated_again",
        lambda graph: asked.append(look(graph)) or asked[-1],
    )

    def gradient(f):
        with tf.GradientTape() as tape:
            tape.watch(X)
            y = f(X)
        return tape.gradient(y, X)

    assert bits(gradient(optimised(loop))) == bits(gradient(tf.function(loop)))
    f = optimised(loop)
    tf.function(lambda: gradient(f))()
    assert asked == [False]  # an eager call has its own pair, and nobody asks
    jacobian_in_a_function(f)
    assert asked[1:] == [True]


def products(f, folder):
    """The kinds of products that a jacobian of the function runs."""

    def jacobian():
        with tf.GradientTape() as tape:
            tape.watch(X)
            y = f(X)
        return tape.jacobian(y, X)

    return {kind for kind in ops_run(jacobian, (), folder) if MUL in kind}


@pytest.mark.slow
def test_a_product_with_what_a_barrier_hides_is_vectorised_as_it_was(tmp_path):
    # the matrix is read once beside the loop; of unknown rank, it would be one of a batch
    weight = tf.Variable(W)

    def forward(x):
        h = x
        for _ in tf.range(5):
            h = tf.tanh(tf.nn.elu(h) @ weight)
        return h

    optimised = rnnmem.optimize(tf.function(forward), max_slowdown=2.0)
    assert products(optimised, tmp_path / "optimised") == products(
        tf.function(forward), tmp_path / "original"
    )
    assert not optimised.plan(X).changes_nothing


@pytest.mark.slow
def test_a_product_with_what_a_list_of_lists_holds_is_vectorised_as_it_was(tmp_path):
    # running again, the loop in between makes lists of what the inner ones save
    weight = tf.Variable(W)

    def forward(x):
        h, c = x, tf.sin(x)
        for _ in tf.range(3):
            for j in tf.range(3):
                for _ in tf.range(j):
                    h = tf.tanh(tf.tanh(c * 0.5 + h * 0.2) @ weight)
                    c = tf.tanh(c * 1.1)
                h = tf.tanh(tf.tanh(h) * 1.2)
        return h + 0.1 * c

    optimised = rnnmem.optimize(tf.function(forward), max_slowdown=2.0)
    assert products(optimised, tmp_path / "optimised") == products(
        tf.function(forward), tmp_path / "original"
    )
    (plan,) = optimised.plan(X).loops
    assert len(plan.recomputed) > 20
