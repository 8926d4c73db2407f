"""Keras layers that read their rows from the sequence itself have the bits of those with lists."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import rnnmem
from rnnmem.passes.registry import DEFAULTS
from tests.cases import Case, assert_same_bits, numbers, thrice, train, values

pytestmark = pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")
B, T, F, U = 16, 64, 64, 64
SEQUENCES = {"return_sequences": True}


def of(*stack, batch=B, features=(F,), call=None, feeds=None):
    """A step whose loss is of what the layers make of a sequence."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((T, *features), batch), *(make() for make in stack)])
    call = call or functools.partial(model, training=True)

    def loss(x):
        return tf.reduce_sum(tf.square(call(x)))

    made = [one.value for one in model.trainable_variables]
    return Case(train(loss, made), feeds or thrice(numbers(B, T, *features)), values(*made))


def masked():
    """Layers behind a mask; the last rows of the sequence are masked."""
    x = numbers(B, T, F).numpy()
    x[:, T // 2 :] = 0.0
    lstm = functools.partial(layers.LSTM, U, **SEQUENCES)
    stack = (functools.partial(layers.Masking), lstm, functools.partial(layers.GRU, U))
    return of(*stack, feeds=thrice(tf.constant(x)))


LSTM, GRU = (functools.partial(one, U) for one in (layers.LSTM, layers.GRU))
MORE = functools.partial(LSTM, **SEQUENCES)
PROGRAMS = {
    "last": (functools.partial(of, LSTM), 1),
    "sequences": (functools.partial(of, MORE), 1),
    "no batch": (functools.partial(of, GRU, batch=None), 1),
    "backwards": (functools.partial(of, functools.partial(GRU, go_backwards=True)), 1),
    "stacked": (functools.partial(of, MORE, MORE, GRU), 5),
    "stacked, no batch": (functools.partial(of, MORE, GRU, batch=None), 3),
    "both ways": (functools.partial(of, lambda: layers.Bidirectional(LSTM())), 2),
    "masked": (masked, 2),
    "dropout": (functools.partial(of, functools.partial(LSTM, recurrent_dropout=0.1)), 1),
    "images": (
        functools.partial(of, lambda: layers.ConvLSTM2D(4, 3, padding="same"), features=(8, 8, 1)),
        1,
    ),
}
"""Name -> program, and how many lists are not made."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "bound"), [("stacked", 1.1), ("masked", 1.33), *((name, 2.0) for name in PROGRAMS)]
)
def test_keras_layers_keep_their_bits(name, bound, deterministic):
    make, count = PROGRAMS[name]
    case = make()
    plan = rnnmem.optimize(case.fn, max_slowdown=bound).plan(*case.calls[0][0])
    assert len(plan.of("unstacked_lists")) == count
    assert_same_bits(make, max_slowdown=bound)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["masked", "dropout"])
@pytest.mark.parametrize("grappler", ["no_grappler"], indirect=True)
def test_they_do_without_what_changes_bits_in_the_graph_optimizer(name, grappler, deterministic):
    assert_same_bits(PROGRAMS[name][0], max_slowdown=2.0)


@pytest.mark.slow
def test_the_predicted_peak_falls_by_the_sequence():
    case = of(LSTM, features=(4 * F,))
    peaks = []
    for allow in (("default",), [name for name in DEFAULTS if name != "unstacked_lists"]):
        found = rnnmem.optimize(case.fn, max_slowdown=2.0, allow=allow)
        peaks.append(found.plan(*case.calls[0][0]).predicted_peak)
    assert peaks[0] <= peaks[1] - B * T * F * 4


@pytest.mark.parametrize("backwards", [False, True])
def test_a_row_along_an_axis_is_the_item_of_the_turned_list(backwards):
    x = np.random.default_rng(0).standard_normal((3, 5, 2)).astype("float32")
    turned = tf.transpose(x, [1, 0, 2])
    turned = tf.reverse(turned, [0]) if backwards else turned
    held = tf.raw_ops.TensorListFromTensor(tensor=turned, element_shape=[3, 2])
    for at in range(5):
        item = tf.raw_ops.TensorListGetItem(
            input_handle=held, index=at, element_shape=[3, 2], element_dtype=tf.float32
        )
        row = tf.gather(x, 4 - at if backwards else at, axis=1)
        assert item.numpy().tobytes() == row.numpy().tobytes()
