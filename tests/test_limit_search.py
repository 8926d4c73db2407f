"""The largest size whose step fits."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import rnnmem
from rnnmem.errors import BudgetError, OptionError
from rnnmem.sizes import KIB, MIB
from tests.alone import run_alone

WEIGHT = tf.Variable(np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32) / 8)


def train_step(x):
    """A loop whose memory grows with the rows of x."""

    def body(i, h):
        return i + 1, tf.tanh(tf.sin(h @ WEIGHT) * tf.sigmoid(x[i]))

    with tf.GradientTape() as tape:
        steps = x.shape[0]
        last = tf.while_loop(lambda i, h: i < steps, body, (0, x[0]))[1]
        loss = tf.reduce_sum(last**2)
    gradient = tape.gradient(loss, WEIGHT)
    WEIGHT.assign_sub(0.1 * gradient)
    return loss


def rows(count):
    return tf.ones([count, 16, 64])


def peaks(*counts):
    step = tf.function(train_step)
    return [rnnmem.measure(step, rows(count), repeats=3).peak_bytes for count in counts]


@pytest.mark.slow
def test_it_is_the_largest_that_runs_within_the_budget_and_optimised_it_goes_further():
    before = WEIGHT.numpy()
    found = rnnmem.largest(tf.function(train_step), rows, "1MiB", low=4, high=160)
    assert WEIGHT.numpy().tobytes() == before.tobytes()
    fits, more = run_alone(__name__, "peaks", found, found + found // 8)
    assert fits <= 1.1 * MIB
    assert more > 0.95 * MIB
    optimised = rnnmem.optimize(train_step, max_slowdown=9.0)
    assert rnnmem.largest(optimised, rows, "1MiB", low=found, high=found + 8) > found


@pytest.mark.slow
def test_high_is_the_end_and_one_argument_needs_no_tuple():
    assert rnnmem.largest(train_step, lambda count: (rows(count),), "64MiB", high=3) == 3


@pytest.mark.slow
def test_where_not_even_low_fits_the_error_says_what_it_needs():
    with pytest.raises(BudgetError, match=r"low=50 does not fit: .* KiB above .* of 64.0 KiB"):
        rnnmem.largest(train_step, rows, 64 * KIB, low=50, high=60)


@pytest.mark.parametrize(
    "arguments, named",
    [
        ({"budget": 0}, "budget=0"),
        ({"budget": "much"}, "budget='much'"),
        ({"low": 0}, "low=0"),
        ({"low": 2.5}, "low=2.5"),
        ({"low": 5, "high": 4}, "high=4 is below low=5"),
        ({"make_args": 3}, "make_args=3 is not callable"),
        ({"fn": None}, "fn=None is not callable"),
    ],
)
def test_what_makes_no_sense_is_named(arguments, named):
    with pytest.raises(OptionError, match=re.escape(named)):
        rnnmem.largest(**{"fn": train_step, "make_args": rows, **arguments})


def test_without_any_limit_there_is_nothing_to_look_for(monkeypatch):
    monkeypatch.delenv("TF_CPU_BFC_MEM_LIMIT_IN_MB", raising=False)
    with pytest.raises(OptionError, match="nothing limits what TensorFlow takes"):
        rnnmem.largest(train_step, rows)


@pytest.mark.slow
def test_running_out_of_memory_is_survived():
    script = """
        import tensorflow as tf
        import rnnmem

        tried = []

        def step(x):
            kept = tf.boolean_mask(x, x > -1.0)  # so many as only a run can tell
            return tf.reduce_sum(tf.cos(kept) * kept)

        def make_args(n):
            tried.append(n)
            return tf.zeros([n * 262144])

        found = rnnmem.largest(tf.function(step), make_args, high=512)
        assert max(tried) > found
        print("found", found)
    """
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={
            **os.environ,
            "TF_CPU_ALLOCATOR_USE_BFC": "true",
            "TF_CPU_BFC_MEM_LIMIT_IN_MB": "32",
            "PYTHONPATH": str(root),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = int(re.search(r"found (\d+)", done.stdout).group(1))
    # 32 MiB hold the argument, its mask, what is kept of it, and the cosine.
    assert 2 <= found <= 16
