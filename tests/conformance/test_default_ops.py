"""Without op determinism: what TensorFlow itself computes alike twice stays as it was."""

import pytest
from tensorflow.python.framework import config

from tests.conformance.expectations import hold
from tests.conformance.harness import Subject, difference
from tests.conformance.programs import build

SOME = (
    *("while.known_trips", "while.einsum_layernorm_softmax", "several.encoder_decoder"),
    *("sparse.embedding_in_body", "random.stateless", "keras.LSTM_sequences", "keras.Masking"),
)


@pytest.fixture(autouse=True)
def default_ops(determinism):
    """Op determinism off, as TensorFlow starts."""
    config.disable_op_determinism()
    yield
    config.enable_op_determinism()


@pytest.mark.parametrize("name", SOME)
def test_default_ops(name):
    subject = Subject(build(name))
    optimised, _ = subject.optimised()
    before, again = (subject.run(subject.function) for _ in range(2))
    assert not difference(before, again), "the original itself varies: take another program"
    hold(name, "default ops", difference(before, subject.run(optimised)))
