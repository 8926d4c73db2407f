"""``jit_compile=True``: how close results are, which bits are the same, what the program holds.

XLA fuses by itself, so what is promised is closeness; bits are asked for where they can be had.
XLA wants to know how often a loop runs at most, so every loop is told.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.conformance.expectations import hold
from tests.conformance.harness import Subject, difference
from tests.conformance.programs import T, build

SOME = (
    *("while.known_trips", "while.rotation", "while.captured_tensor"),
    *("functional.scan", "tensorarray.write_read", "several.encoder_decoder"),
    *("random.stateless", "gradients.custom_gradient", "nested.two_deep"),
    *("keras.LSTM", "keras.GRU", "keras.Bidirectional", "keras.attention_decoder"),
)
CLOSE = 1e-4
"""How far an element may be off, as a part of the largest of its tensor (docs/limits.md)."""


def furthest(one, other) -> float:
    """The most that an element is off after some steps, by the largest of its tensor."""
    pairs = ((a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))
    return max(_off(np.asarray(a), np.asarray(b)) for a, b in pairs)


def _off(before, after) -> float:
    if before.dtype.kind not in "fc" or not before.size:
        return 0.0 if np.array_equal(before, after) else np.inf
    largest = float(np.abs(before).max())
    return float(np.abs(before - after).max()) / (largest or 1.0)


@pytest.mark.parametrize("name", SOME)
def test_compiled(name, monkeypatch):
    monkeypatch.setattr(tf, "while_loop", functools.partial(tf.while_loop, maximum_iterations=T))
    subject = Subject(build(name), jit_compile=True)
    optimised, plan = subject.optimised()
    assert not plan.changes_nothing
    original = subject.run(subject.function, measured=True)
    run = subject.run(optimised, measured=True)
    off, before, after = (
        furthest(original.results, run.results),
        max(original.asked),
        max(run.asked),
    )
    print(f"{name}: off {off:.1e}, {before} bytes before, {after} after")
    hold(name, "compiled close", "" if off <= CLOSE else f"an element is off by {off:.1e}")
    hold(name, "compiled peak", "" if after < before else f"{before} bytes before, {after} after")
    hold(name, "compiled bits", difference(original, run))
