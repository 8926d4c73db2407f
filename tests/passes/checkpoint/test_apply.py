"""Loops in segments give the same bits and keep a root of what they kept."""

import pytest
import tensorflow as tf

import rnnmem
from tests.cases import Case, assert_same_bits, numbers, train, values, weights
from tests.forced_segments import forced_segments
from tests.passes.test_same_bits import CASES, lstm_cell, lstm_that_reads_variables

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")]


@pytest.fixture(autouse=True)
def wherever_possible():
    with forced_segments():
        yield


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_every_bit_is_the_same(make, grappler):
    assert_same_bits(make, max_slowdown=float("inf"))


def test_branches_that_read_variables_run_again():
    # the states are enough: no gate's result is kept, only what the variables hold is
    # given
    case = CASES["branch_that_reads_variables"]()
    args, kwargs = case.calls[0]
    (loop,) = rnnmem.optimize(case.fn, max_slowdown=float("inf")).plan(*args, **kwargs).loops
    assert len(loop.segments.states) == 2 and len(loop.segments.reads) == 3


def lstm_of_unknown_length(batch=3, units=5):
    made = weights((units, 4 * units), (units, 4 * units), (1, 4 * units))

    def loss(x, most):
        def body(i, h, c):
            return i + 1, *lstm_cell(x[i], h, c, *made)

        start = tf.zeros([batch, units])
        goes_on = lambda i, h, c: i < most and tf.reduce_sum(h) < 100.0  # noqa: E731
        _, h, _ = tf.while_loop(goes_on, body, (0, start, start))
        return tf.reduce_sum(h * h)

    calls = [
        ((numbers(most + 1, batch, units), tf.constant(most)), {}) for most in (0, 1, 9, 40, 7)
    ]
    return Case(train(loss, made), calls, values(*made))


def test_how_long_the_loop_runs_need_not_be_known():
    assert_same_bits(lstm_of_unknown_length, max_slowdown=float("inf"))
    step = rnnmem.optimize(lstm_of_unknown_length().fn, max_slowdown=float("inf"))
    (loop,) = step.plan(tf.zeros([2, 3, 5]), tf.constant(1)).loops
    assert loop.trips is None
    assert loop.segments.growth


def test_a_builder_that_is_differentiated_later():
    made = weights((4, 4), (4, 4))

    def forward(x):
        h = tf.zeros([2, 4])
        for i in tf.range(tf.shape(x)[0]):
            h = tf.tanh(h @ made[0] + x[i] @ made[1])
        return tf.reduce_sum(h * h)

    x = numbers(11, 2, 4)
    found = []
    for function in (tf.function(forward), rnnmem.optimize(forward, max_slowdown=float("inf"))):

        @tf.function
        def step(x, function=function):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = function(x)
            return loss, *tape.gradient(loss, [x, *made])

        found.append([one.numpy().tobytes() for one in step(x)])
    assert found[0] == found[1]


def test_memory_grows_with_the_root_of_the_length():
    peaks = {}
    for steps in (64, 256, 1024):
        made = lstm_that_reads_variables(steps=steps, batch=16, units=64)
        args, kwargs = made.calls[0]
        step = rnnmem.optimize(made.fn, max_slowdown=float("inf"))
        peaks[steps] = rnnmem.measure(step, *args, repeats=1, **kwargs).peak_bytes
        if steps == 1024:
            as_it_was = rnnmem.measure(tf.function(made.fn), *args, repeats=1, **kwargs).peak_bytes
            assert peaks[steps] < 0.1 * as_it_was
    state = 2 * 16 * 64 * 4
    assert peaks[1024] - peaks[256] < 4 * (1024**0.5 - 256**0.5) * state + 2**18


def test_explain_tells_of_segments():
    made = lstm_that_reads_variables()
    step = rnnmem.optimize(made.fn, max_slowdown=float("inf"))
    args, kwargs = made.calls[0]
    text = str(step.explain(*args, **kwargs))
    assert "in segments: loop" in text


def test_segments_can_be_ruled_out():
    made = lstm_that_reads_variables()
    step = rnnmem.optimize(made.fn, max_slowdown=float("inf"), allow=("recompute",))
    args, kwargs = made.calls[0]
    assert all(loop.segments is None for loop in step.plan(*args, **kwargs).loops)


def test_segments_of_a_loop_of_unknown_length_run_as_long_as_they_are():
    (weight,) = weights((256, 256))

    @tf.function
    def step(x, trips):
        with tf.GradientTape() as tape:
            body = lambda t, h: (t + 1, tf.tanh(h @ weight) * tf.sigmoid(x))  # noqa: E731
            loss = tf.reduce_sum(tf.while_loop(lambda t, _: t < trips, body, (0, x))[1])
        return loss, tape.gradient(loss, weight)

    plan = rnnmem.optimize(step, max_slowdown=1.6).plan(numbers(64, 256), tf.constant(200))
    assert plan.loops[0].trips is None and plan.loops[0].segments
    assert 1.0 < plan.slowdown <= 1.6
