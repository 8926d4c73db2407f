"""Calls inside graphs that know more of shapes than a signature: sums are grouped as they were."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.tf.inlined_calls import shapes_of_call

STEPS, UNITS = 4, 8
RANDOM = np.random.default_rng(101199)
W, V = (tf.Variable(RANDOM.normal(size=(UNITS, UNITS)) * 0.3) for _ in range(2))
BIAS = tf.Variable(RANDOM.normal(size=UNITS) * 0.1)
UNKNOWN = [tf.TensorSpec([None, None, UNITS], tf.float64), tf.TensorSpec([None, UNITS], tf.float64)]
LEFT = "called inside a graph with arguments of shapes"


def loss_of(x, h):
    """The gradient reads sin(h) as it was saved, of any batch size, and x as the caller gave it."""
    for i in tf.range(STEPS):
        h = tf.tanh(tf.matmul(tf.sin(h), W) + tf.matmul(x[i], V) + BIAS)
    return tf.reduce_mean(tf.square(h))


def step(x, h):
    with tf.GradientTape() as tape:
        loss = loss_of(x, h)
    return loss, *tape.gradient(loss, [W, V, BIAS])


def called(fn, signature=None):
    return tf.function(lambda x, h: fn(x, h), input_signature=signature)


def differentiated_later(fn, signature=None):
    def outer(x, h):
        with tf.GradientTape() as tape:
            loss = fn(x, h)
        return loss, *tape.gradient(loss, [W, V, BIAS])

    return tf.function(outer, input_signature=signature)


def given(batch):
    random = np.random.default_rng(batch)
    sizes = (STEPS, batch, UNITS), (batch, UNITS)
    return [tf.constant(random.normal(size=size)) for size in sizes]


def left(fn, arguments):
    return any(LEFT in note for note in fn.plan(*arguments).notes)


def results(fn, arguments):
    return [one.numpy().tobytes() for one in fn(*arguments)]


BOTH = pytest.mark.parametrize("use, fn", [(called, step), (differentiated_later, loss_of)])


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("batch, is_left", [(1, True), (2, False)])
def test_bits_are_the_originals_and_a_call_that_keeps_them_is_rewritten(use, fn, batch, is_left):
    plain = tf.function(fn, input_signature=UNKNOWN)
    rewritten = rnnmem.optimize(plain, max_slowdown=2.0)
    arguments = given(batch)
    assert results(use(rewritten), arguments) == results(use(plain), arguments)
    assert not rewritten.plan(*arguments).changes_nothing
    assert left(rewritten, arguments) == is_left


@pytest.mark.slow
@BOTH
def test_a_caller_that_knows_no_more_is_rewritten(use, fn):
    plain = tf.function(fn, input_signature=UNKNOWN)
    rewritten = rnnmem.optimize(plain, max_slowdown=2.0)
    arguments = given(1)
    assert results(use(rewritten, UNKNOWN), arguments) == results(use(plain, UNKNOWN), arguments)
    assert not left(rewritten, arguments)


@BOTH
def test_so_is_none_whose_inlined_call_is_computed_otherwise(use, fn, monkeypatch):
    for name in ("other_arithmetic_called", "other_gradient_called"):
        monkeypatch.setattr(f"rnnmem.work.{name}", lambda *_: "a sum")
    rewritten = rnnmem.optimize(tf.function(fn, input_signature=UNKNOWN), max_slowdown=2.0)
    arguments = given(1)
    use(rewritten, UNKNOWN)(*arguments)
    assert left(rewritten, arguments)


def test_each_kind_of_call_is_compared_once(monkeypatch):
    asked = []

    def differs(*arguments):
        asked.append(arguments)
        return

    monkeypatch.setattr("rnnmem.work.other_arithmetic_called", differs)
    rewritten = rnnmem.optimize(tf.function(step, input_signature=UNKNOWN), max_slowdown=2.0)
    outer = called(lambda x, h: (*rewritten(x, h), *rewritten(x, h * 0.5)))
    outer(*given(2))
    assert len(asked) == 1
    called(rewritten)(*given(3))
    assert len(asked) == 2


def test_shapes_of_a_call():
    concrete = tf.function(loss_of, input_signature=UNKNOWN).get_concrete_function()
    assert [str(shape) for shape in shapes_of_call(concrete, given(1))] == ["(4, 1, 8)", "(1, 8)"]
    kinds = [tf.TensorSpec([3, None, UNITS], tf.float64), UNKNOWN[1]]
    shapes = []

    @tf.function(input_signature=kinds)
    def outer(x, h):
        shapes.append(shapes_of_call(concrete, [x, h]))
        return h

    outer.get_concrete_function()
    assert [str(shape) for shape in shapes[0]] == ["(3, None, 8)", "(None, 8)"]
