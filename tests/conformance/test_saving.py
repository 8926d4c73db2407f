"""A checkpoint in the middle of training, and the optimised function in a SavedModel."""

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from tests.conformance.expectations import hold
from tests.conformance.harness import EVERYTHING, Subject, first_gap
from tests.conformance.programs import build, train_step

SOME = ("while.known_trips", "several.encoder_decoder", "keras.LSTM_stacked")


def leaves(results) -> list[np.ndarray]:
    return [one.numpy() for one in tf.nest.flatten(results, expand_composites=True)]


@pytest.mark.parametrize("name", SOME)
def test_training_goes_on_from_a_checkpoint(name, tmp_path):
    case = build(name)
    step = rnnmem.optimize(tf.function(train_step(case)), max_slowdown=EVERYTHING)
    step(*case.inputs)
    checkpoint = tf.train.Checkpoint(variables=case.variables)
    saved = checkpoint.write(str(tmp_path / "after_one"))
    expected = leaves(step(*case.inputs))
    again = build(name)
    tf.train.Checkpoint(variables=again.variables).read(saved).assert_consumed()
    other = tf.function(train_step(again))
    hold(name, "checkpoint", first_gap(expected, leaves(other(*again.inputs))))


@pytest.mark.parametrize("name", SOME)
def test_saved_model_of_the_optimised_step(name, tmp_path):
    subject = Subject(build(name))
    optimised, plan = subject.optimised()
    assert not plan.changes_nothing
    found = []
    for number, function in enumerate((subject.function, optimised)):
        subject.reset()
        module = tf.Module()
        module.variables_of_it = subject.variables
        module.call = called(function, subject.case.inputs)
        tf.saved_model.save(module, str(tmp_path / str(number)))
        loaded = tf.saved_model.load(str(tmp_path / str(number)))
        results = leaves(loaded.call(*subject.case.inputs))
        found.append([*results, *(one.numpy() for one in loaded.variables_of_it)])
    hold(name, "SavedModel", first_gap(*found))


def called(function, inputs):
    """The function as a SavedModel holds it: under a signature."""

    @tf.function(input_signature=[tf.TensorSpec.from_tensor(one) for one in inputs])
    def call(*inputs):
        return function(*inputs)

    return call
