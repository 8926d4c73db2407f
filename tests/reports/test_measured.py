"""Memory over time as it was measured: TensorFlow's own events, laid on the predicted axis."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.errors import MeasureError
from rnnmem.reports.data import Curve
from rnnmem.reports.measured import Measured, gaps, with_measured
from rnnmem.reports.moments import MOMENTS
from rnnmem.tf import private
from rnnmem.tf.memory_trace import Change, trace_memory
from tests.reports.handmade_report import report

TRIPS, UNITS, BATCH = 60, 32, 64


def numbers(*shape, seed=1):
    return tf.constant(np.random.default_rng(seed).normal(size=shape) * 0.2, tf.float32)


@pytest.fixture(scope="module")
def told():
    weight = tf.Variable(numbers(UNITS, UNITS), name="kernel")

    def roll(x):
        def body(i, h):
            return i + 1, tf.tanh(tf.sigmoid(h @ weight) * 2.0 - h)

        return tf.while_loop(lambda i, _: i < TRIPS, body, (0, x))[1]

    def train_step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(roll(x) ** 2)
        return loss, tape.gradient(loss, weight)

    return rnnmem.report(rnnmem.optimize(train_step), numbers(BATCH, UNITS))


def test_a_trace_counts_every_buffer_that_is_taken_and_given_back():
    size = 1 << 20
    changes = trace_memory(lambda: tf.zeros([size // 4]) + 1.0)
    sizes = [one.bytes for one in changes]
    assert max(sizes) >= size
    assert size <= sizes[-1] < 2 * size  # the result is alive at the end
    assert any(one.op for one in changes)


def test_a_second_profile_is_refused_in_words():
    trace = private.AllocationTrace()
    try:
        with pytest.raises(MeasureError, match="another profile is being taken"):
            trace_memory(lambda: tf.zeros([4]))
    finally:
        trace.stop()


def test_the_measured_line_has_the_measured_peak_and_follows_the_prediction(told):
    for side in (told.before, told.after):
        curve = side.measured
        assert list(curve.x) == sorted(curve.x)
        assert (curve.x[0], curve.x[-1]) == (side.x[0], side.x[-1])
        assert len(curve.x) == len(curve.bytes) <= 2 * MOMENTS + 2
        assert 0.7 * side.measured_bytes <= max(curve.bytes) <= side.measured_bytes
    # Where the forward loop has ended all that it saves is there, in truth and in prediction.
    before = told.before
    forward = next(span for span in before.spans if not span.is_gradient)
    at_end = np.interp(forward.end, before.measured.x, before.measured.bytes)
    assert at_end == pytest.approx(np.interp(forward.end, before.x, before.totals), rel=0.3)
    assert at_end > 0.5 * before.measured_bytes


def test_the_json_holds_the_measured_line(told):
    held = told.to_dict()["before"]["measured"]
    assert tuple(held["x"]) == told.before.measured.x
    assert tuple(held["bytes"]) == told.before.measured.bytes


def test_loops_have_the_names_of_the_users_functions_and_the_report_says_whence_it_is(told):
    assert told.functions["while"] == "roll"
    assert told.made["arguments"] == f"x float32[{BATCH},{UNITS}]"
    assert told.made["device"].startswith("CPU:0")
    assert f"TensorFlow {tf.__version__}" in told.made["versions"]
    assert told.made["options"] == "max_slowdown=1.1"
    assert told.before.gradient_x and told.before.spans[0].end <= told.before.gradient_x + 20


def test_what_cannot_be_traced_is_said(monkeypatch):
    monkeypatch.setattr("rnnmem.reporting.TRACED_SECONDS", 0.0)
    told = rnnmem.report(lambda x: tf.tanh(x @ x), numbers(64, 64))
    assert told.before.measured_bytes > 0 and told.before.measured is None
    assert any("memory over time was not measured" in note for note in told.notes)


def test_the_end_of_a_loop_is_laid_upon_the_predicted_one():
    side = report().before
    first, second = side.spans
    changes = [Change("loop/body/_1/x", 256 * i) for i in range(10)]
    changes += [Change("gradient/body/_5/y", 5000 - i) for i in range(40)]
    changes += [Change("", 0)] * 10
    found = with_measured(side, Measured(1, tuple(changes)))
    assert found.measured_bytes == 5000
    where = dict(zip(found.measured.bytes, found.measured.x, strict=True))
    assert where[256 * 9] == pytest.approx(first.end, abs=0.1)
    assert where[5000 - 39] == pytest.approx(second.end, abs=0.1)
    assert dataclasses.replace(found, measured=None, measured_bytes=None) == side


def test_it_is_told_where_truth_and_prediction_part():
    side = report().before
    sizes = list(side.totals)
    high, low = len(sizes) // 3, 2 * len(sizes) // 3
    sizes[high] += 5000
    sizes[low] -= 700
    measured = dataclasses.replace(side, measured=Curve(side.x, tuple(sizes)))
    assert gaps(measured) == ((5000, side.x[high]), (700, side.x[low]))
    assert gaps(side) is None
