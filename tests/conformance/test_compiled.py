"""``jit_compile=True``: XLA fuses by itself, so bits are asked for where they can be had.

XLA wants to know how often a loop runs at most, so every loop is told.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.conformance.expectations import GAPS, hold
from tests.conformance.harness import Subject, difference
from tests.conformance.programs import T, build

SOME = (
    *("while.known_trips", "while.rotation", "while.captured_tensor"),
    *("functional.scan", "tensorarray.write_read", "several.encoder_decoder"),
    *("random.stateless", "gradients.custom_gradient", "nested.two_deep"),
    *("keras.LSTM", "keras.GRU", "keras.Bidirectional", "keras.attention_decoder"),
)


@pytest.mark.parametrize("name", SOME)
def test_compiled(name, monkeypatch):
    monkeypatch.setattr(tf, "while_loop", functools.partial(tf.while_loop, maximum_iterations=T))
    subject = Subject(build(name), jit_compile=True)
    optimised, _ = subject.optimised()
    original, run = subject.run(subject.function), subject.run(optimised)
    hold(name, "compiled bits", difference(original, run))
    if (name, "compiled bits") in GAPS:
        for before, after in zip(original.results, run.results, strict=True):
            for one, other in zip(before, after, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
