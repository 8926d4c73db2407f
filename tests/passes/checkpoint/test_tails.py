"""Loops whose last iterations save what the gradient reads, and do not run again."""

import json

import pytest
import tensorflow as tf

import rnnmem
from tests.alone import run_alone
from tests.cases import assert_same_bits
from tests.forced_segments import forced_segments
from tests.passes.test_same_bits import CASES

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")]

LENGTH = 120
OF_A_STEP = (
    2**16
)  # Bytes of two or three iterations' blobs: the executor's order differs from run to run.
WEIGHT = tf.Variable(tf.reshape(tf.sin(tf.range(48.0 * 192)), [48, 192]) / 8)


def lstm(weight, batch):
    """A train step of an LSTM that adds the same input to its four gates in every iteration."""

    def step(x):
        def body(i, h, c):
            gates = tf.split(h @ weight + x, 4, axis=1)
            c = c * tf.sigmoid(gates[0]) + tf.sigmoid(gates[1]) * tf.tanh(gates[2])
            return i + 1, tf.sigmoid(gates[3]) * tf.tanh(c), c

        with tf.GradientTape() as tape:
            start = tf.zeros([batch, weight.shape[0]])
            last = tf.while_loop(lambda i, h, c: i < LENGTH, body, (0, start, start))[1]
            loss = tf.reduce_sum(last**2)
        return loss, tape.gradient(loss, weight)

    return step


train_step = lstm(WEIGHT, 32)


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_every_bit_is_the_same(make):
    with forced_segments(tails=True):
        assert_same_bits(make, max_slowdown=float("inf"))


def planned(end):
    """A plan whose iterations from ``end`` on do not run again; 0: all do."""
    x = tf.zeros([32, 192])
    with forced_segments():
        plan = rnnmem.optimize(train_step, max_slowdown=float("inf")).plan(x)
    (loop,) = plan.to_data()["loops"]
    loop["segments"] |= {"end": end, "length": 8}
    data = plan.to_data() | {"loops": [loop], "original_peak": None, "predicted_peak": None}
    return rnnmem.Plan.from_json(json.dumps(data))


def peaks(ends):
    return [peak(end) for end in ends]


def peak(end):
    x = tf.zeros([32, 192])
    step = rnnmem.optimize(train_step, plan=planned(end))
    same = [
        one.numpy().tobytes() == other.numpy().tobytes()
        for one, other in zip(step(x), tf.function(train_step)(x), strict=True)
    ]
    report = rnnmem.report(step, x)
    saved = step.plan(x).loops[0].segments.saved_bytes
    return rnnmem.measure(step, x).peak_bytes, report.after.peak_bytes, saved, same


def test_wherever_the_last_segment_ends_bits_are_the_same_and_memory_is_what_is_saved():
    ends = [0, 1, 17, 96, 119]
    (least, *_), *others = run_alone(__name__, "peaks", ends)
    for end, (measured, predicted, saved, same) in zip(ends[1:], others, strict=True):
        assert all(same)
        assert (LENGTH - end) * saved < measured < least + (LENGTH - end) * saved + OF_A_STEP
        assert 0.9 * measured <= predicted <= 1.3 * measured + OF_A_STEP


@pytest.mark.usefixtures("kernels_alone")
def test_a_bound_between_all_and_none_has_a_plan_between():
    # Products are most of the time: to run again is all or nothing.
    step = lstm(tf.Variable(tf.zeros([256, 1024])), 16)
    x = tf.zeros([16, 1024])
    plans = [rnnmem.optimize(step, max_slowdown=bound).plan(x) for bound in (1.1, 1.2, 1.35)]
    peaks = [plan.predicted_peak for plan in plans]
    assert peaks[0] > 1.3 * peaks[1] > 1.3**2 * peaks[2]
    (loop,) = plans[1].loops
    assert 0 < loop.segments.end < LENGTH
    assert f"those from iteration {loop.segments.end} on do not" in loop.segments.sentence
