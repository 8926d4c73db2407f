import itertools
import os
import subprocess
import sys
import textwrap
import weakref

import pytest
import tensorflow as tf

import rnnmem
from rnnmem.errors import MeasureError, OptionError
from rnnmem.sizes import MIB


def about(size: int) -> range:
    """What a buffer may count: the allocator hands out a chunk whole unless half of it is left."""
    return range(size, 2 * size + 64 * 1024)


@tf.function
def peak_of_eight_mib(x):
    """Two buffers of 4 MiB are in use at once, the result is a scalar."""
    wide = tf.random.uniform([MIB]) + x
    return tf.reduce_sum(tf.reverse(wide, [0]) * wide)


def test_the_peak_is_what_was_in_use_at_once():
    measured = rnnmem.measure(peak_of_eight_mib, tf.constant(1.0), repeats=2)
    assert measured.peak_bytes in about(8 * MIB)
    assert measured.seconds > 0
    assert measured.repeats == 2


def test_a_result_counts_and_is_dropped_before_the_next_run():
    def step():
        return tf.fill([MIB], 1.0)

    measured = rnnmem.measure(step, repeats=4)
    assert measured.peak_bytes in about(4 * MIB)


def test_results_in_a_cycle_are_dropped_too():
    def step():
        result = [tf.fill([MIB], 1.0)]
        result.append(result)
        return result

    measured = rnnmem.measure(step, repeats=4)
    assert measured.peak_bytes in about(4 * MIB)


def test_no_result_outlives_the_measurement():
    alive = []

    def step():
        result = tf.fill([16], 1.0)
        alive.append(weakref.ref(result))
        return result

    rnnmem.measure(step, repeats=2)
    assert [one() for one in alive] == [None, None, None]


def test_what_lives_anyway_is_resident_not_peak():
    weight = tf.Variable(tf.fill([4 * MIB], 1.0))
    measured = rnnmem.measure(lambda: tf.fill([MIB], 1.0) + weight[0], repeats=1)
    assert measured.resident_bytes >= 16 * MIB
    assert measured.peak_bytes < 16 * MIB


def test_the_first_call_is_not_measured():
    calls = []

    def step():
        calls.append(tf.fill([64 * MIB if not calls else MIB], 1.0)[0])
        return calls[-1]

    assert rnnmem.measure(step, repeats=3).peak_bytes < 64 * MIB
    assert len(calls) == 4


def test_the_peak_is_the_largest_of_the_runs():
    sizes = iter([1, MIB, 3 * MIB, 2 * MIB])
    measured = rnnmem.measure(lambda: tf.fill([next(sizes)], 1.0), repeats=3)
    assert measured.peak_bytes in about(12 * MIB)


def test_arguments_reach_the_function():
    seen = []

    def step(a, *, b):
        seen.append((a, b))
        return tf.fill([1024], 1.0)

    rnnmem.measure(step, 1, b=2, repeats=1)
    assert seen == [(1, 2), (1, 2)]


def test_a_measurement_prints_in_mib():
    measured = rnnmem.Measurement(3 * MIB, 2**30, 0.25, 5, "CPU:0")
    assert str(measured) == (
        "peak 3.00 MiB above 1024.00 MiB resident on CPU:0, 0.2500 s (median of 5)"
    )


@pytest.mark.parametrize("step", [lambda: None, lambda: 3, lambda: [1, 2]])
def test_a_peak_of_zero_is_an_error(step):
    with pytest.raises(MeasureError, match="a peak of 0 is no figure"):
        rnnmem.measure(step, repeats=1)


@pytest.mark.parametrize("repeats", [0, -1, 2.0, "3", None, True])
def test_repeats_must_be_a_count(repeats):
    with pytest.raises(OptionError, match=f"repeats={repeats!r}"):
        rnnmem.measure(peak_of_eight_mib, tf.constant(1.0), repeats=repeats)


def test_the_step_must_be_callable():
    with pytest.raises(OptionError, match="fn=3 is not callable"):
        rnnmem.measure(3)
    with pytest.raises(OptionError, match="second='no' is not callable"):
        rnnmem.measure_pair(peak_of_eight_mib, "no")


@pytest.mark.parametrize("device", ["GPU:97", "TPU", "", 0])
def test_an_absent_device_is_named_with_those_that_are_here(device):
    with pytest.raises(OptionError, match=f"device={device!r} is not here: .*CPU:0"):
        rnnmem.measure(peak_of_eight_mib, tf.constant(1.0), device=device)


@pytest.mark.parametrize("device", ["CPU:0", "cpu:0", "/CPU:0", "/device:CPU:0", "of a tensor"])
def test_a_device_has_many_spellings(device):
    with tf.device("CPU:0"):
        if device == "of a tensor":
            device = tf.fill([8], 1.0).device
        measured = rnnmem.measure(lambda: tf.fill([MIB], 1.0), repeats=1, device=device)
    assert measured.device == "CPU:0"


def test_measuring_inside_a_graph_is_refused():
    @tf.function
    def outer():
        rnnmem.measure(peak_of_eight_mib, tf.constant(1.0))

    # The type survives AutoGraph, which turns unknown errors into its own.
    with pytest.raises(MeasureError, match=r"outside of tf\.function"):
        outer()
    with tf.Graph().as_default(), pytest.raises(MeasureError, match=r"outside of tf\.function"):
        rnnmem.measure(peak_of_eight_mib, 1.0)


def test_an_error_of_the_step_comes_through():
    def step():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        rnnmem.measure(step)


def test_a_pair_is_measured_in_turn():
    order = []

    def step(name, size):
        order.append(name)
        return tf.fill([size], 1.0)

    compared = rnnmem.measure_pair(
        lambda n: step("A", 8 * n), lambda n: step("B", n), MIB, repeats=3
    )
    assert [name for name, _ in itertools.groupby(order)] == ["A", "B"] * 4
    assert compared.first.repeats == compared.second.repeats == 3
    assert compared.peak_ratio == compared.second.peak_bytes / compared.first.peak_bytes
    assert compared.peak_ratio < 1
    assert compared.time_ratio > 0
    assert f"second/first: {compared.peak_ratio:.3f}x peak" in str(compared)


def clocked(monkeypatch, *seconds):
    """A pair of steps that take these seconds in turn; each run takes two readings of the clock."""
    left, now, started = iter(seconds), [0.0], [False]

    def clock():
        if started[0]:
            now[0] += next(left)
        started[0] = not started[0]
        return now[0]

    monkeypatch.setattr("rnnmem.tf.measure.time.perf_counter", clock)
    return lambda: tf.fill([1024], 1.0), lambda: tf.fill([1024], 2.0)


def test_the_ratio_of_times_is_the_median_over_pairs(monkeypatch):
    # The machine slows down fourfold in the middle pair.
    steps = clocked(monkeypatch, 9.0, 9.0, 1.0, 3.0, 4.0, 8.0, 1.0, 1.0)
    compared = rnnmem.measure_pair(*steps, repeats=3)
    assert compared.time_ratio == 2.0
    assert compared.first.seconds == 1.0
    assert compared.second.seconds == 3.0


def test_a_short_step_of_a_pair_counts_as_it_follows_itself(monkeypatch):
    in_row = 0.010, 0.012, 0.011
    steps = clocked(monkeypatch, 9.0, 9.0, 0.03, *in_row, 0.4)
    compared = rnnmem.measure_pair(*steps, repeats=1)
    assert compared.first.seconds == pytest.approx(0.011)
    assert compared.second.seconds == pytest.approx(0.4)


def test_enabling_what_is_enabled_changes_nothing():
    tf.fill([1], 1.0)
    before = dict(os.environ)
    rnnmem.enable_cpu_memory_stats()
    assert dict(os.environ) == before


@pytest.mark.parametrize("limit", [1024, "512 KiB"])
def test_a_limit_below_what_tensorflow_can_count_is_refused(limit):
    with pytest.raises(OptionError, match=f"limit={limit!r} is less than 1 MiB"):
        rnnmem.enable_cpu_memory_stats(limit)


def run_in_fresh_process(script: str) -> None:
    """Runs the script where TensorFlow has not chosen an allocator yet."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TF_CPU_")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_enabled_in_time_memory_is_counted_and_limited():
    run_in_fresh_process(
        """
        import rnnmem
        import tensorflow as tf
        from rnnmem.errors import MeasureError

        rnnmem.enable_cpu_memory_stats()
        rnnmem.enable_cpu_memory_stats("64.9MiB")
        tf.config.set_visible_devices([], "GPU")
        measured = rnnmem.measure(lambda: tf.fill([8 << 20], 1.0), repeats=1)
        assert measured.device == "CPU:0"
        assert 32 << 20 <= measured.peak_bytes <= 64 << 20, measured

        rnnmem.enable_cpu_memory_stats()
        rnnmem.enable_cpu_memory_stats(64 << 20)
        try:
            rnnmem.enable_cpu_memory_stats("65MiB")
        except MeasureError as error:
            assert "limit='65MiB'" in str(error), error
        else:
            raise AssertionError("another limit was accepted")

        try:
            tf.fill([17 << 20], 1.0)
        except tf.errors.ResourceExhaustedError:
            pass
        else:
            raise AssertionError("68 MiB fit under a limit of 64 MiB")
        """
    )


@pytest.mark.slow
def test_enabled_too_late_says_so():
    run_in_fresh_process(
        """
        import os
        import rnnmem
        import tensorflow as tf
        from rnnmem.errors import MeasureError

        with tf.device("CPU:0"):
            tf.fill([8], 1.0)
        before = dict(os.environ)
        for call in (
            rnnmem.enable_cpu_memory_stats,
            lambda: rnnmem.enable_cpu_memory_stats("1GiB"),
            lambda: rnnmem.measure(lambda: tf.fill([8], 1.0), device="CPU:0"),
        ):
            try:
                call()
            except MeasureError as error:
                assert "before TensorFlow runs its first op" in str(error), error
            else:
                raise AssertionError("a peak of 0 would have been a figure")
        assert dict(os.environ) == before
        """
    )
