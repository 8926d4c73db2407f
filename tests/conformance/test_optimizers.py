"""Whole steps as people write them: clipping by global norm, Adam's slots, tf.gradients."""

import keras
import pytest
import tensorflow as tf

from tests.conformance.expectations import hold
from tests.conformance.harness import Subject
from tests.conformance.programs import build, floats, update

SOME = ("while.known_trips", "several.encoder_decoder", "sparse.embedding_in_body", "keras.LSTM")


@pytest.mark.parametrize("name", SOME)
def test_clipping_by_global_norm_and_adam(name):
    case = build(name)
    moments = [[tf.Variable(tf.zeros_like(one)) for one in case.variables] for _ in range(2)]
    case.state += [one for some in moments for one in some]

    def step(*inputs):
        with tf.GradientTape() as tape:
            loss, outputs = case.forward(*inputs)
        gradients = tape.gradient(loss, case.variables)
        gradients, norm = tf.clip_by_global_norm(gradients, 1e-3)
        dense = [tf.convert_to_tensor(one) for one in gradients]
        for variable, first, second, gradient in zip(case.variables, *moments, dense, strict=True):
            first.assign(0.9 * first + 0.1 * gradient)
            second.assign(0.999 * second + 0.001 * tf.square(gradient))
            variable.assign_sub(0.01 * first / (tf.sqrt(second) + 1e-8))
        return loss, outputs, norm, dense

    hold(name, "clipping and Adam", Subject(case, step).compare())


@pytest.mark.parametrize("name", ["keras.LSTM", "keras.recurrent_dropout"])
def test_keras_optimizer_makes_its_slots_in_the_first_step(name):
    case = build(name)
    optimizer = keras.optimizers.Adam(1e-2, clipnorm=0.1)
    optimizer.build(case.model.trainable_variables)
    case.state += [one.value for one in optimizer.variables]

    def step(x):
        with tf.GradientTape() as tape:
            loss, outputs = case.forward(x)
        gradients = tape.gradient(loss, case.variables)
        optimizer.apply(gradients, case.model.trainable_variables)
        return loss, outputs, gradients

    hold(name, "Keras Adam", Subject(case, step).compare())


@pytest.mark.parametrize("name", SOME)
def test_gradients_without_a_tape(name):
    case = build(name)

    def step(*inputs):
        loss, outputs = case.forward(*inputs)
        gradients = tf.gradients(loss, [*case.variables, *floats(inputs)])
        update(case.variables, gradients)
        return loss, outputs, [one for one in gradients if one is not None]

    hold(name, "tf.gradients", Subject(case, step).compare())


def test_gradients_of_captured_tensors_and_of_what_is_between():
    case = build("while.captured_tensor")

    def step(x, h):
        with tf.GradientTape() as tape:
            doubled = 2.0 * x
            tape.watch([doubled, h])
            loss, outputs = case.forward(tf.sin(doubled), tf.tanh(h))
        gradients = tape.gradient(loss, [doubled, h, *case.variables])
        return loss, outputs, gradients

    hold("while.captured_tensor", "captured gradients", Subject(case, step).compare())
