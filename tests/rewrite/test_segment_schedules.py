"""Schedules over the segments of a loop: how often the step runs, and every bit as before."""

import dataclasses
import glob

import pytest
import tensorflow as tf

import rnnmem
from tests.cases import Case, assert_same_bits, numbers, outcome, train, values, weights
from tests.forced_segments import forced_segments
from tests.recompute.test_schedule import OFFLINE
from tests.rewrite.test_same_bits import CASES, lstm_that_reads_variables

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")]


def rotation(steps):
    """A step whose gradients cannot vanish, with one product that only it makes."""
    made = weights((4, 4))

    def loss(x):
        def body(i, h):
            return i + 1, tf.tanh(x[i] + h @ made[0])

        start = (0, tf.zeros([3, 4]))
        _, h = tf.while_loop(lambda i, _: i < steps, body, start)
        return tf.reduce_sum(h * h)

    return Case(train(loss, made), [((numbers(steps, 3, 4),), {})] * 2, values(*made))


def scheduled(case, steps, slots):
    """The step under a plan with segments of one iteration and so many slots."""
    args, _ = case.calls[0]
    with forced_segments():
        plan = rnnmem.optimize(case.fn, max_slowdown=float("inf")).plan(*args)
    (loop,) = plan.loops
    segments = dataclasses.replace(loop.segments, length=1, slots=slots, count=steps)
    loop = dataclasses.replace(loop, segments=segments, in_flight=1)
    return rnnmem.optimize(case.fn, plan=dataclasses.replace(plan, loops=(loop,)))


def runs_of_the_step(fn, args, folder):
    """How often TensorFlow ran the product of the step, forward and again, by its own events."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=2, python_tracer_level=0, device_tracer_level=0
    )
    with tf.profiler.experimental.Profile(str(folder), options):
        result = fn(*args)
    del result
    (found,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
    space = xplane_pb2.XSpace()
    with open(found, "rb") as file:
        space.ParseFromString(file.read())
    return sum(
        plane.event_metadata[event.metadata_id].name.rpartition(":")[0].endswith("while/matmul")
        for plane in space.planes
        for line in plane.lines
        for event in line.events
    )


@pytest.mark.parametrize("steps, slots", [(10, 1), (10, 3), (64, 10)])
def test_the_step_runs_as_often_as_the_recurrence_says(steps, slots, tmp_path):
    case = rotation(steps)
    args, _ = case.calls[0]
    step = scheduled(case, steps, slots)
    assert outcome(step(*args)) == outcome(tf.function(rotation(steps).fn)(*args))
    # The recurrence reverses the last step at once; the forward loop runs it for its result too.
    assert runs_of_the_step(step, args, tmp_path) == OFFLINE[steps][slots] + 1


def test_the_least_time_and_the_least_memory_are_both_among_the_plans():
    case = lstm_that_reads_variables(steps=300, batch=4, units=16)
    args, _ = case.calls[0]
    peaks = {}
    for bound in (1.4, 2.0, 100.0):
        (loop,) = rnnmem.optimize(case.fn, max_slowdown=bound).plan(*args).loops
        peaks[bound] = loop.total()[0]
    assert loop.segments.slots
    assert len(loop.segments.starts) <= loop.segments.slots + 1
    assert peaks[100.0] < 0.6 * peaks[1.4]


SOME = (
    "branch_in_the_body",
    "lstm_that_returns_sequences",
    "one_value_computed_twice_and_summed",
    "sums_of_what_was_pushed",
    "weights_cast_to_bfloat16",
)


@pytest.mark.parametrize("name", SOME)
def test_every_bit_is_the_same(name, grappler):
    with forced_segments(scheduled=True):
        assert_same_bits(CASES[name], max_slowdown=float("inf"))
