import numpy as np
import pytest
import tensorflow as tf

from models.nmt.adam import Adam, learning_rate


def test_the_updates_are_those_of_keras():
    start = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)
    ours, theirs = tf.Variable(start), tf.Variable(start)
    adam = Adam([ours], beta2=0.98)
    keras = tf.keras.optimizers.Adam(0.1, beta_2=0.98, epsilon=1e-8)
    for number in range(1, 6):
        gradient = tf.random.stateless_normal([2, 2], [number, 0])
        adam.apply([gradient], tf.constant(0.1), tf.constant(float(number)))
        keras.apply_gradients([(gradient, theirs)])
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    assert np.all(ours.numpy() != start)


def test_its_slots_are_variables_and_the_model_is_not_among_them():
    variables = [tf.Variable([1.0, 2.0])]
    assert [v.shape for v in Adam(variables).variables] == [[2], [2]]


def test_the_rate_rises_along_a_line():
    rates = [learning_rate(step, 0.8, 4, 100, "cosine") for step in range(1, 6)]
    np.testing.assert_allclose(rates, [0.2, 0.4, 0.6, 0.8, 0.8])


@pytest.mark.parametrize(
    ("decay", "middle", "last"),
    [("cosine", 0.4, 0.0), ("inverse_sqrt", 0.2, 0.16), ("none", 0.8, 0.8)],
)
def test_the_rate_falls_as_asked(decay, middle, last):
    assert learning_rate(65, 0.8, 4, 124, decay) == pytest.approx(middle, abs=0.005)
    assert learning_rate(124, 0.8, 4, 124, decay) == pytest.approx(last, abs=0.02)
    assert learning_rate(1, 0.8, 0, 124, "cosine") == pytest.approx(0.8)
