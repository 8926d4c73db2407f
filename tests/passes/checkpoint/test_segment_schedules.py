"""Schedules over the segments of a loop: how often the step runs, and every bit as before."""

import dataclasses
import glob

import pytest
import tensorflow as tf

import rnnmem
from tests.cases import Case, assert_same_bits, numbers, outcome, train, values, weights
from tests.forced_segments import forced_segments
from tests.passes.checkpoint.schedules import online_schedule, replay
from tests.passes.checkpoint.test_apply import lstm_of_unknown_length
from tests.passes.checkpoint.test_schedule import OFFLINE, ONLINE
from tests.passes.test_same_bits import CASES, lstm_that_reads_variables

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("error::rnnmem.RnnmemWarning")]


def rotation(*lengths, known=True):
    """A step whose gradients cannot vanish, with one product that only it makes.

    Args:
      lengths: iterations of each call.
      known: whether the number of iterations stands in the graph.
    """
    made = weights((4, 4))

    def loss(x):
        steps = lengths[0] if known else tf.shape(x)[0]

        def body(i, h):
            return i + 1, tf.tanh(x[i] + h @ made[0])

        start = (0, tf.zeros([3, 4]))
        _, h = tf.while_loop(lambda i, _: i < steps, body, start)
        return tf.reduce_sum(h * h)

    calls = [((numbers(steps, 3, 4),), {}) for steps in lengths]
    fn = train(loss, made)
    if not known:
        fn = tf.function(fn, input_signature=[tf.TensorSpec([None, 3, 4])])
    return Case(fn, calls, values(*made))


def scheduled(case, **schedule):
    """The step under a plan with segments of one iteration and a schedule over them."""
    args, _ = case.calls[0]
    with forced_segments():
        plan = rnnmem.optimize(case.fn, max_slowdown=float("inf")).plan(*args)
    (loop,) = plan.loops
    segments = dataclasses.replace(loop.segments, **{"length": 1, "growth": 0, **schedule})
    loop = dataclasses.replace(loop, segments=segments, parallel_iterations=1)
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
    step = scheduled(case, slots=slots, count=steps)
    assert outcome(step(*args)) == outcome(tf.function(rotation(steps).fn)(*args))
    # The recurrence reverses the last step at once; the forward loop runs it for its result too.
    assert runs_of_the_step(step, args, tmp_path) == OFFLINE[steps][slots] + 1


FEW = {slots: [steps for other, steps in ONLINE if other == slots] for slots, _ in ONLINE}


@pytest.mark.parametrize("slots, lengths", [*FEW.items(), (3, [12, 40]), (2, [9, 14])])
def test_with_the_length_unknown_the_step_runs_as_often_as_the_online_schedule(
    slots, lengths, tmp_path
):
    lengths = sorted({*lengths, 0, 1, slots - 1})
    case, plain = (rotation(*lengths, known=False) for _ in range(2))
    step = scheduled(case, slots=slots, count=64, online=True)
    for steps, (args, _) in zip(lengths, case.calls, strict=True):
        online = replay(online_schedule(steps, slots), steps, slots).evaluations
        assert online == ONLINE.get((slots, steps), online)
        assert online == 2 * steps or steps > slots
        folder = tmp_path / str(steps)
        assert runs_of_the_step(step, args, folder) == online
        plain.fn(*args)
    assert outcome(case.state()) == outcome(plain.state())


@pytest.mark.parametrize("count", [2, 5, 16])
def test_ways_longer_than_the_table_are_found_too(count):
    slots, lengths = 3, [0, 1, 2, 4, 41, 100]
    case, plain = (rotation(*lengths, known=False) for _ in range(2))
    step = scheduled(case, length=2, slots=slots, count=count, online=True)
    for args, _ in case.calls:
        assert outcome(step(*args)) == outcome(plain.fn(*args))


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
SOME_ONLINE = (
    "attention",
    "branch_that_reads_variables",
    "lstm_that_returns_sequences",
    "sums_of_what_was_pushed",
    "weights_cast_to_bfloat16",
    # of unknown length:
    "as_many_trips_as_the_data_wants",
    "no_trip_at_all",
    "unknown_dimensions",
)


@pytest.mark.parametrize("name", SOME)
def test_every_bit_is_the_same(name, grappler):
    with forced_segments(scheduled=True):
        assert_same_bits(CASES[name], max_slowdown=float("inf"))


@pytest.mark.parametrize("name", SOME_ONLINE)
def test_every_bit_is_the_same_online(name, grappler):
    with forced_segments(scheduled=True, online=True):
        assert_same_bits(CASES[name], max_slowdown=float("inf"))
        args, kwargs = CASES[name]().calls[0]
        step = rnnmem.optimize(CASES[name]().fn, max_slowdown=float("inf"))
        assert all(loop.segments.online for loop in step.plan(*args, **kwargs).loops)


def test_with_the_length_unknown_what_is_kept_does_not_grow_with_it():
    case = lstm_of_unknown_length(32, 32)
    step = rnnmem.optimize(case.fn, max_slowdown=float("inf"))
    peaks = {}
    for steps in (200, 1000):
        given = numbers(steps, 32, 32), tf.constant(steps)
        peaks[steps] = rnnmem.measure(step, *given, repeats=1).peak_bytes
    (loop,) = step.plan(*given).loops
    assert loop.trips is None and loop.segments.online
    assert peaks[1000] < 1.2 * peaks[200]
    assert peaks[1000] < 0.2 * rnnmem.measure(tf.function(case.fn), *given, repeats=1).peak_bytes


def test_an_online_plan_is_applied_from_json():
    case, plain = (rotation(9, 2, 0, known=False) for _ in range(2))
    step = scheduled(case, length=2, slots=2, count=64, online=True)
    plan = rnnmem.Plan.from_json(step.plan(*case.calls[0][0]).to_json())
    assert plan.loops[0].segments.online
    again = rnnmem.optimize(case.fn, plan=plan)
    for args, _ in case.calls:
        assert outcome(again(*args)) == outcome(plain.fn(*args))


def test_a_builder_that_is_differentiated_later_keeps_slots_too():
    made = weights((4, 4), (4, 4))

    def forward(x):
        h = tf.zeros([2, 4])
        for i in tf.range(tf.shape(x)[0]):
            h = tf.tanh(h @ made[0] + x[i] @ made[1])
        return tf.reduce_sum(h * h)

    x = numbers(11, 2, 4)
    found = []
    with forced_segments(scheduled=True, online=True):
        for function in (tf.function(forward), rnnmem.optimize(forward, max_slowdown=1e9)):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = function(x)
            gradients = tape.gradient(loss, [x, *made])
            found.append([one.numpy().tobytes() for one in (loss, *gradients)])
        assert function.plan(x).loops[0].segments.online
    assert found[0] == found[1]
