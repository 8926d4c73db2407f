"""Checkpoint schedules: the published counts, met by schedules that are really run."""

import functools
import tracemalloc

import hypothesis
import pytest
from hypothesis import strategies as st

from rnnmem.errors import OptionError
from rnnmem.passes.checkpoint.online import first_steps
from rnnmem.passes.checkpoint.schedule import OnlineSchedule, evaluations
from tests.passes.checkpoint.schedules import (
    ADVANCE,
    REVERSE,
    SAVE,
    Action,
    Replay,
    ScheduleError,
    offline_schedule,
    online_schedule,
    replay,
    reversal,
    run_online,
    run_schedule,
)

OFFLINE = {
    10: {1: 55, 2: 30, 3: 25, 4: 24, 8: 20, 10: 19},
    64: {1: 2080, 2: 484, 3: 322, 4: 264, 8: 201, 10: 180, 20: 170, 50: 140},
    1000: {
        1: 500500, 2: 29820, 3: 13155, 4: 8998, 8: 5285, 10: 4636, 20: 3747, 50: 2948,
    },
}  # fmt: skip

ONLINE = {
    (4, 4): 8, (4, 5): 11, (4, 6): 14, (4, 7): 17, (4, 8): 20, (4, 9): 23, (4, 10): 26,
    (4, 11): 29, (4, 12): 32, (4, 13): 35, (4, 14): 38, (2, 5): 13, (9, 5): 10,
    (1, 3): 9, (1, 5): 20, (2, 8): 27, (3, 11): 33,
}  # fmt: skip


@functools.cache
def by_recurrence(steps, slots):
    if slots == 1:
        return steps * (steps + 1) // 2
    if steps == 1:
        return 1
    return min(
        y + by_recurrence(steps - y, slots - 1) + by_recurrence(y, slots) for y in range(1, steps)
    )


class Counter:
    """A step that counts how often it runs; reversing writes down the order."""

    def __init__(self):
        self.count = 0
        self.reversed = []

    def advance(self, step, state):
        assert state == ("in front of", step)
        self.count += 1
        return ("in front of", step + 1)

    def reverse(self, step, state, gradient):
        assert state == ("in front of", step)
        self.count += 1
        self.reversed.append(step)
        return gradient


@pytest.mark.parametrize(
    "steps, slots, count", [(t, m, c) for t, row in OFFLINE.items() for m, c in row.items()]
)
def test_the_published_counts_are_met_by_running_the_step(steps, slots, count):
    counter = Counter()
    schedule = offline_schedule(steps, slots)
    run_schedule(schedule, ("in front of", 0), counter.advance, counter.reverse)
    assert counter.count == count == evaluations(steps, slots)
    assert counter.reversed == list(reversed(range(steps)))
    assert replay(schedule, steps, slots).evaluations == count


@pytest.mark.parametrize("slots, steps, count", [(m, t, c) for (m, t), c in ONLINE.items()])
def test_the_published_online_counts_are_met_by_running_the_step(slots, steps, count):
    counter = Counter()
    last, gradient = run_online(
        slots,
        ("in front of", 0),
        lambda step, state: step < steps,
        counter.advance,
        lambda state: ("from", state),
        counter.reverse,
    )
    assert counter.count == count
    assert counter.reversed == list(reversed(range(steps)))
    assert (last, gradient) == (("in front of", steps), ("from", ("in front of", steps)))
    assert replay(online_schedule(steps, slots), steps, slots).evaluations == count


def test_the_closed_form_is_the_recurrence():
    for steps in range(1, 90):
        for slots in range(1, 30):
            assert evaluations(steps, slots) == by_recurrence(steps, slots), (steps, slots)


@hypothesis.given(st.integers(0, 400), st.integers(1, 60))
def test_every_schedule_takes_what_is_promised_in_the_slots_it_has(steps, slots):
    run = replay(offline_schedule(steps, slots), steps, slots)
    assert run.evaluations == evaluations(steps, slots)
    assert run.slots <= slots


@hypothesis.given(st.integers(1, 400), st.integers(1, 40))
def test_online_is_at_most_one_worse_where_the_paper_promises_it(steps, slots):
    run = replay(online_schedule(steps, slots), steps, slots)
    best = evaluations(steps, slots) + 1  # the forward run goes on to the end
    assert best <= run.evaluations
    assert run.slots <= slots
    online = OnlineSchedule(slots)
    for _ in range(steps):
        online.offer()
    assert online.evaluations() == run.evaluations
    if steps < (slots + 1) * (slots + 2) // 2:
        assert run.evaluations <= best + 1


def test_with_as_many_slots_as_steps_nothing_runs_again():
    for steps in (1, 2, 7, 50):
        assert evaluations(steps, steps) == evaluations(steps, 10 * steps) == 2 * steps - 1
        for slots in (steps, steps + 1):
            actions = online_schedule(steps, slots)
            assert sum(a.stop - a.step for a in actions if a.kind == ADVANCE) == steps


def test_no_step_and_one_step():
    assert offline_schedule(0, 3) == online_schedule(0, 3) == ()
    assert evaluations(0, 3) == 0
    assert replay(offline_schedule(1, 3), 1, 3) == Replay(evaluations=1, slots=1, saves=1)
    assert replay(online_schedule(1, 1), 1, 1) == Replay(evaluations=2, slots=1, saves=1)
    assert run_schedule((), "state", None, None, "gradient") == "gradient"


def test_a_long_loop_takes_no_time_to_plan():
    assert evaluations(16000, 50) == replay(offline_schedule(16000, 50), 16000, 50).evaluations
    online = replay(online_schedule(16000, 200), 16000, 200)
    assert online.evaluations == evaluations(16000, 200) + 2


def test_an_online_schedule_takes_what_it_comes_to_not_what_it_could():
    """With a slot for each step a table of all rounds would have ``slots ** 2 / 2`` entries."""
    tracemalloc.start()
    online = OnlineSchedule(50000)
    for _ in range(50000):
        online.offer()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert online.evaluations() == 2 * 50000
    assert most < 32 * 2**20
    assert first_steps(50000) > 10**9


def test_a_schedule_may_stop_and_be_asked_again():
    online = OnlineSchedule(3)
    assert [online.offer() for _ in range(4)] == [0, 1, 2, None]
    assert online.held == {0: 0, 1: 1, 2: 2}
    list(reversal(online))
    assert online.held == {}


@pytest.mark.parametrize(
    "actions, reason",
    [
        ([Action(SAVE, 0, 1, 2)], "there are 2 slots"),
        ([Action("restore", 0, 1, 0)], "holds None"),
        ([Action(ADVANCE, 1, 2)], "in front of 0"),
        ([Action(REVERSE, 0, 1)], "step 1 comes first"),
        ([Action(ADVANCE, 0, 1), Action(REVERSE, 1, 2)], "1 steps are not reversed"),
        ([Action(ADVANCE, 0, 1), Action(REVERSE, 1, 2), Action(REVERSE, 0, 1)], "front of None"),
    ],
)
def test_a_schedule_that_is_wrong_is_found(actions, reason):
    with pytest.raises(ScheduleError, match=reason):
        replay(actions, 2, 2)


@pytest.mark.parametrize("make", [evaluations, offline_schedule, online_schedule])
@pytest.mark.parametrize(
    "steps, slots, named", [(-1, 2, "steps=-1"), (3, 0, "slots=0"), (1.5, 2, "steps=1.5")]
)
def test_numbers_that_make_no_sense_are_named(make, steps, slots, named):
    with pytest.raises(OptionError, match=named):
        make(steps, slots)


class RecurrentStep:
    """A recurrent step and its gradient as TensorFlow runs them; the graph counts its own runs."""

    def __init__(self):
        import tensorflow as tf

        self.runs = tf.Variable(0)
        weight = tf.constant([[0.6, -0.8], [0.8, 0.6]])  # a rotation: no gradient vanishes

        def run(h):
            with tf.control_dependencies([self.runs.assign_add(1)]):
                return tf.tanh(h) @ weight

        self._run = tf.function(run)

        @tf.function
        def pull(h, upstream):
            with tf.GradientTape() as tape:
                tape.watch(h)
                out = run(h)
            return tape.gradient(out, h, upstream)

        self._pull = pull
        self.start, self.upstream = tf.constant([[0.3, -0.2]]), tf.ones([1, 2])

    def advance(self, step, state):
        return self._run(state)

    def reverse(self, step, state, gradient):
        return self._pull(state, gradient)

    def plain(self, steps):
        """The last state, and the gradient with every state kept."""
        states = [self.start]
        for _ in range(steps):
            states.append(self._run(states[-1]))
        gradient = self.upstream
        for state in states[steps - 1 :: -1] if steps else ():
            gradient = self._pull(state, gradient)
        return states[-1].numpy().tobytes(), gradient.numpy().tobytes()


@pytest.fixture(scope="module")
def recurrent_step():
    return RecurrentStep()


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps, slots, count",
    [(t, m, OFFLINE[t][m]) for t, m in ((10, 1), (10, 3), (10, 8), (64, 3), (64, 10), (64, 50))],
)
def test_the_published_counts_are_those_of_tensorflow_s_runs(recurrent_step, steps, slots, count):
    step = recurrent_step
    _, expected = step.plain(steps)
    step.runs.assign(0)
    found = run_schedule(
        offline_schedule(steps, slots), step.start, step.advance, step.reverse, step.upstream
    )
    assert step.runs.numpy() == count
    assert found.numpy().tobytes() == expected


@pytest.mark.slow
@pytest.mark.parametrize("slots, steps, count", [(m, t, c) for (m, t), c in ONLINE.items()])
def test_the_online_counts_are_those_of_tensorflow_s_runs(recurrent_step, slots, steps, count):
    step = recurrent_step
    expected = step.plain(steps)
    step.runs.assign(0)
    last, gradient = run_online(
        slots,
        step.start,
        lambda number, state: number < steps,
        step.advance,
        lambda state: step.upstream,
        step.reverse,
    )
    assert step.runs.numpy() == count
    assert (last.numpy().tobytes(), gradient.numpy().tobytes()) == expected


@pytest.mark.slow
def test_real_gradients_of_a_recurrent_step_are_the_same_bits():
    import tensorflow as tf

    steps, slots = 23, 3
    random = tf.random.Generator.from_seed(7)
    inputs = random.normal([steps, 4, 8])
    weight = random.normal([16, 8])
    runs = {"advance": 0, "reverse": 0}

    @tf.function
    def step(x, h, w):
        return tf.tanh(tf.concat([x, h], 1) @ w)

    @tf.function
    def pull(x, h, w, upstream):
        with tf.GradientTape() as tape:
            tape.watch([h, w])
            out = step(x, h, w)
        return tape.gradient(out, [h, w], upstream)

    def advance(number, h):
        runs["advance"] += 1
        return step(inputs[number], h, weight)

    def reverse(number, h, gradient):
        runs["reverse"] += 1
        upstream, total = gradient
        back, partial = pull(inputs[number], h, weight, upstream)
        return back, total + partial

    start = tf.zeros([4, 8])
    zero = tf.zeros_like(weight)
    states = [start]
    for number in range(steps):
        states.append(advance(number, states[-1]))
    plain = (2.0 * states[-1], zero)
    for number in reversed(range(steps)):
        plain = reverse(number, states[number], plain)
    runs.update(advance=0, reverse=0)

    last, found = run_online(
        slots, start, lambda n, h: n < steps, advance, lambda h: (2.0 * h, zero), reverse
    )
    count = replay(online_schedule(steps, slots), steps, slots).evaluations
    assert runs == {"advance": count - steps, "reverse": steps}
    runs.update(advance=0, reverse=0)
    offline = run_schedule(
        offline_schedule(steps, slots), start, advance, reverse, (2.0 * last, zero)
    )
    assert runs == {"advance": evaluations(steps, slots) - steps, "reverse": steps}
    for one, other in ((plain, found), (plain, offline)):
        for left, right in zip(one, other, strict=True):
            assert left.numpy().tobytes() == right.numpy().tobytes()
