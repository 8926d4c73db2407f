"""Figures of TensorFlow's default CPU allocator look right and are not: they are never told."""

import itertools
import os
import subprocess
import sys
import textwrap

import pytest
import tensorflow as tf

from rnnmem.tf.counting import counts_memory, shows_small_tensors, uncounted
from rnnmem.tf.measure import run_measured


def fake(*changes):
    """What an allocator's readings are: before and after each probe of 32 KiB."""
    readings = itertools.accumulate(itertools.cycle(changes), initial=10**9)
    return lambda: next(readings)


def test_here_memory_is_counted():
    assert counts_memory() and counts_memory("CPU:0")


@pytest.mark.parametrize(
    "changes, counted",
    [
        ((2**15, 0), True),
        ((56 * 1024, 0), True),  # a chunk that was not worth splitting
        ((0, 0), False),
        ((0, 2**18), False),  # another thread, whose large tensors alone show
        ((2**18, 0), False),
        ((-(2**20), 2**20), False),
        ((-(2**17), 2**17, 2**15, 0), True),  # another thread gives back in between
        ((2**15 - 768, 768), True),  # what a worker's last reading took is given back late
    ],
)
def test_a_small_tensor_must_show(changes, counted):
    assert shows_small_tensors("CPU:0", fake(*changes)) is counted


def test_a_step_that_runs_elsewhere_has_no_figure():
    assert run_measured(lambda: 3) == (3, None)
    assert uncounted() == "it used no memory of CPU:0; does it run there?"
    assert run_measured(lambda: tf.fill([1024], 1.0))[1] >= 4096


SCRIPT = """
    import os
    import warnings
    import tensorflow as tf
    import rnnmem
    import rnnmem.keras
    from rnnmem.errors import MeasureError
    from rnnmem.pipeline.memory import Meter
    from rnnmem.tf.device import allocator_limit, resident_bytes

    with tf.device("CPU:0"):
        large = tf.fill([1 << 20], 1.0)
        w = tf.Variable(tf.eye(64))
    try:
        # oneDNN's allocator has a figure above zero, and too small.
        assert tf.config.experimental.get_memory_info("CPU:0")["current"] < (4 << 20) + 64 * 64 * 4
    except ValueError as error:
        # Where oneDNN is off, there is none at all.
        assert "Allocator stats not available" in str(error), error
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"
    os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = "64"

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            body = lambda i, h: (i + 1, tf.tanh(tf.sin(h @ w)))
            loss = tf.reduce_sum(tf.while_loop(lambda i, h: i < 9, body, (0, x))[1])
        return loss, tape.gradient(loss, w)

    x = tf.ones([64, 64])
    too_late = (
        rnnmem.enable_cpu_memory_stats,
        lambda: rnnmem.enable_cpu_memory_stats("64MiB"),
    )
    refused = (
        *too_late,
        lambda: rnnmem.measure(step, x, device="CPU:0"),
        lambda: rnnmem.measure_pair(step, step, x, device="CPU:0"),
        lambda: rnnmem.report(step, x, measure=True),
        lambda: rnnmem.MemoryLog(device="CPU:0"),
        lambda: rnnmem.keras.MemoryCallback(device="CPU:0").on_train_begin(),
        lambda: Meter(large.device),
    )
    for number, call in enumerate(refused):
        try:
            call()
        except MeasureError as error:
            assert "rnnmem.enable_cpu_memory_stats() before" in str(error), (number, error)
            assert call not in too_late or str(error).startswith("too late"), error
        else:
            raise AssertionError(f"a figure that is none: {number}")
    assert (allocator_limit(), resident_bytes()) == (None, None)

    report = rnnmem.report(step, x)
    assert report.before.measured_bytes is report.after.measured_bytes is None
    assert any("enable_cpu_memory_stats()" in note for note in report.notes), report.notes

    def warned(call):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = call()
        return result, [str(one.message) for one in caught if one.category is rnnmem.RnnmemWarning]

    _, told = warned(lambda: rnnmem.optimize(step, verify=True, budget="1MiB")(x))
    assert len(told) == 1 and told[0].startswith("the budget is not held against"), told
    assert "enable_cpu_memory_stats()" in told[0]

    rows = lambda n: tf.zeros([n, 1024])
    sort = tf.function(lambda n: tf.reduce_sum(tf.sort(n)))
    found, told = warned(lambda: rnnmem.largest(sort, rows, "1MiB", high=99))
    assert 16 <= found <= 99 and len(told) == 1, (found, told)
    assert told[0].startswith("sizes are chosen by predicted peaks alone"), told

    some = tf.function(lambda n: tf.reduce_sum(tf.sort(tf.boolean_mask(n, n > -1.0))))
    try:
        rnnmem.largest(some, rows, "1MiB", high=99)
    except MeasureError as error:
        assert "neither be measured nor predicted" in str(error), error
    else:
        raise AssertionError("the largest of sizes that nobody verified")
"""


@pytest.mark.slow
def test_without_statistics_there_are_no_figures():
    env = {name: value for name, value in os.environ.items() if not name.startswith("TF_CPU_")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        env={**env, "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
