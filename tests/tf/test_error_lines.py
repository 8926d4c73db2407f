"""Errors of ops in a rewritten function name the user's lines, as without rnnmem."""

import inspect

import keras
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.tf import functions

TRIPS = 40
kernel = tf.Variable(tf.ones([8, 8]) * 0.1)
NAN = tf.fill([4, 8], float("nan"))


def cell(h):
    return tf.debugging.check_numerics(tf.tanh(h @ kernel), "the state") * tf.sigmoid(h)


@tf.function
def called(h):
    return cell(h)


def loss_of(x, cell=cell):
    h = x
    for _ in tf.range(TRIPS):
        h = cell(h)
    return tf.reduce_sum(h * h)


def step(x, cell=cell):
    with tf.GradientTape() as tape:
        loss = loss_of(x, cell)
    return loss, tape.gradient(loss, kernel)


def error_of(call, *args):
    with pytest.raises(tf.errors.InvalidArgumentError, match="the state") as raised:
        call(*args)
    return str(raised.value)


def lines(text):
    """The lines of this file that a message names, outermost first, and what else it names."""
    own, others = [], []
    for line in text.splitlines():
        if line.strip().startswith("File "):
            place, _, number = line.strip().removeprefix('File "').partition('", line ')
            (own if place == __file__ else others).append((place, int(number.split(",")[0])))
    return [number for _, number in own], [place for place, _ in others]


LINE = inspect.getsourcelines(cell)[1] + 1


def test_an_op_of_a_step_net_has_its_line_and_those_that_led_to_it():
    optimised = rnnmem.optimize(step, max_slowdown=3.0)
    assert not optimised.plan(NAN).changes_nothing
    text = error_of(optimised, NAN)
    own, others = lines(text)
    assert own[-1] == LINE
    assert inspect.getsourcelines(loss_of)[1] + 3 in own
    assert not [place for place in others if "/rnnmem/" in place or "/tensorflow/" in place]
    assert "unavailable" not in text


def test_an_op_of_a_function_that_was_inlined_has_its_line():
    def calling(x):  # TensorFlow does not look into functions without a name
        return step(x, called)

    optimised = rnnmem.optimize(calling, max_slowdown=3.0)
    assert not optimised.plan(NAN).changes_nothing
    assert lines(error_of(optimised, NAN))[0][-1] == LINE


def test_inside_another_function_it_is_found_too():
    optimised = rnnmem.optimize(step, max_slowdown=3.0)

    @tf.function
    def around(x):
        return optimised(x)

    assert lines(error_of(around, NAN))[0][-1] == LINE


def test_of_a_function_that_is_differentiated_later_as_well():
    optimised = rnnmem.optimize(loss_of, max_slowdown=3.0)

    def taped(x):
        with tf.GradientTape() as tape:
            loss = optimised(x)
        return tape.gradient(loss, kernel)

    assert lines(error_of(taped, NAN))[0][-1] == LINE


def test_keras_trains_with_lines_too():
    class Checked(keras.layers.Layer):
        def call(self, x):
            return tf.function(loss_of)(x)[None, None] + 0.0 * tf.reduce_sum(x, 1, keepdims=True)

    model = keras.Sequential([keras.Input((8,), batch_size=4), keras.layers.Dense(8), Checked()])
    model.compile("sgd", "mse")
    rnnmem.keras.optimize(model, max_slowdown=3.0)
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        model.train_on_batch(NAN, tf.zeros([4, 1]))
    assert LINE in lines(str(raised.value))[0]


def test_what_goes_wrong_in_telling_lines_hides_no_error(monkeypatch):
    optimised = rnnmem.optimize(step, max_slowdown=3.0)
    optimised.plan(NAN)
    monkeypatch.setattr("rnnmem.tf.private.lines._debug_info", lambda graph: 1 / 0)
    assert "the state" in error_of(optimised, NAN)


@pytest.mark.parametrize("package", [tf, keras, rnnmem])
def test_a_line_of_a_package_is_no_line_of_the_users_wherever_it_is_installed(package):
    assert package.__file__.startswith(functions._LIBRARIES)
