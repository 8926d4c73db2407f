"""Other dtypes: float64, and mixed precision with a scaled loss."""

import keras
import pytest
import tensorflow as tf

from tests.conformance.expectations import hold
from tests.conformance.harness import Subject, chosen
from tests.conformance.programs import build, update

MIXED = ("keras.LSTM", "keras.GRU", "keras.StackedRNNCells", "keras.recurrent_dropout")
SCALE = 128.0


DOUBLE = (
    *("while.data_dependent", "autograph.range", "functional.scan", "nested.two_deep"),
    *("branch.cond_then_more", "several.encoder_decoder", "sparse.embedding_in_body"),
    *("tensorarray.write_read", "random.stateless", "keras.LSTM", "keras.Bidirectional"),
)


@pytest.mark.parametrize("name", chosen(DOUBLE, lambda program: "float64" in program.dtypes))
def test_float64(name):
    hold(name, "float64", Subject(build(name, "float64")).compare())


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", chosen(MIXED, lambda program: program.is_keras))
def test_mixed_precision_with_loss_scaling(name, policy):
    case = build(name, policy)

    def step(x):
        with tf.GradientTape() as tape:
            loss, outputs = case.forward(x)
            scaled = loss * SCALE
        gradients = [one / SCALE for one in tape.gradient(scaled, case.variables)]
        update(case.variables, gradients)
        return loss, outputs, gradients

    hold(name, policy, Subject(case, step).compare())


def test_keras_loss_scale_optimizer():
    case = build("keras.LSTM", "mixed_float16")
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(1e-2))
    optimizer.build(case.model.trainable_variables)
    case.state += [one.value for one in optimizer.variables]

    def step(x):
        with tf.GradientTape() as tape:
            loss, outputs = case.forward(x)
            scaled = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, case.variables)
        optimizer.apply(gradients, case.model.trainable_variables)
        return loss, outputs, gradients

    hold("keras.LSTM", "loss scale optimizer", Subject(case, step).compare())
