"""What a function does not tell of sizes is taken from its first call."""

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.planning.intervals import SEEN

pytestmark = pytest.mark.slow

UNITS = 64
TIME = 20


def step_of_any_batch():
    weights = tf.Variable(0.1 * tf.ones([UNITS, UNITS]))

    @tf.function(input_signature=[tf.TensorSpec([TIME, None, UNITS])])
    def step(x):
        with tf.GradientTape() as tape:
            h = tf.zeros_like(x[0])
            for i in tf.range(TIME):
                h = tf.tanh(tf.matmul(h, weights) + x[i]) * tf.sigmoid(h)
            loss = tf.reduce_sum(h * h)
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
        return loss

    return step, weights


def test_the_plan_has_peaks_from_the_first_call_on():
    step, _ = step_of_any_batch()
    optimized = rnnmem.optimize(step, max_slowdown=1.5)
    x = tf.ones([TIME, 48, UNITS])
    before = optimized.plan(x)
    assert before.predicted_peak is None
    optimized(x)
    known = optimized.plan(x)
    low, high = known.predicted_interval
    assert low <= known.predicted_peak <= high < known.original_peak
    assert (known.loops, known.decisions) == (before.loops, before.decisions)
    assert known.notes.count(SEEN) == 1
    assert "? as it was" not in str(optimized.explain(x))
    assert rnnmem.Plan.from_json(known.to_json()) == known
    optimized(tf.ones([TIME, 8, UNITS]))
    assert optimized.plan(x) == known


def test_a_budget_is_held_against_the_sizes_of_the_first_call():
    step, weights = step_of_any_batch()
    start = weights.numpy()
    x = tf.ones([TIME, 48, UNITS])
    tight = rnnmem.optimize(step, budget="16KiB")
    for _ in range(2):
        with pytest.raises(rnnmem.BudgetError, match="at the sizes of this call"):
            tight(x)
    assert (weights.numpy() == start).all()
    wide = rnnmem.optimize(step, budget="64MiB")
    wide(x)
    assert wide.plan(x).predicted_interval[1] < 64 * 2**20
