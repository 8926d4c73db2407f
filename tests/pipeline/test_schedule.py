import dataclasses
from pathlib import Path

import pytest

import rnnmem.pipeline
from rnnmem.errors import OptionError, ScheduleError
from rnnmem.pipeline.charts import chart, picture
from rnnmem.pipeline.schedule import (
    BACKWARD,
    FORWARD,
    FREE,
    GRADIENT_OUT,
    HOST,
    RECEIVE,
    SCOPE,
    SEND,
    UPDATE,
    VALUE_IN,
    VALUE_OUT,
    Action,
    Buffer,
    Schedule,
    Topology,
    make_schedule,
)
from rnnmem.pipeline.simulator import Costs, simulate

NAMES = ("1f1b", "forward-then-backward", "forward-only")


def computations(schedule: Schedule, stage: int) -> str:
    letters = {FORWARD: "F", BACKWARD: "B", UPDATE: "U"}
    found = [action for action in schedule.orders[stage] if action.kind in letters]
    return " ".join(
        letters[action.kind] + ("" if action.kind == UPDATE else str(action.micro_batch))
        for action in found
    )


def with_order(schedule: Schedule, stage: int, order) -> Schedule:
    orders = list(schedule.orders)
    orders[stage] = tuple(order)
    return dataclasses.replace(schedule, orders=tuple(orders))


def place_of(schedule: Schedule, stage: int, kind: str, buffer_kind: str, number: int) -> int:
    return next(
        i
        for i, action in enumerate(schedule.orders[stage])
        if action.kind == kind
        and action.buffer.kind == buffer_kind
        and action.buffer.micro_batch == number
    )


def test_one_forward_one_backward_is_what_it_says():
    schedule = make_schedule("1f1b", 4, 6)
    assert computations(schedule, 0) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5 U"
    assert computations(schedule, 1) == "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5 U"
    assert computations(schedule, 3) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 U"
    assert computations(make_schedule("1f1b", 2, 2), 0) == "F0 F1 B0 B1 U"
    assert computations(make_schedule("1f1b", 1, 2), 0) == "F0 B0 F1 B1 U"
    contrast = make_schedule("forward-then-backward", 2, 3)
    assert computations(contrast, 0) == computations(contrast, 1) == "F0 F1 F2 B0 B1 B2 U"


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_schedule_passes_the_simulator(name, prefetch):
    for stages in range(1, 5):
        for count in (stages, 2 * stages + 1):
            for again in (frozenset(), frozenset({0}), frozenset(range(stages))):
                chain = Topology.chain(stages, again)
                skips = [(a, b) for a in range(stages) for b in range(a + 2, stages)]
                topology = dataclasses.replace(
                    chain,
                    values=(*chain.values, *skips),
                    gradients=chain.gradients | frozenset(skips[::2]),
                )
                schedule = make_schedule(name, topology, count, prefetch=prefetch)
                timeline = simulate(schedule, Costs(transfer=0.3))
                if name == "1f1b":
                    scopes = [timeline.most(s, SCOPE) for s in range(stages)]
                    assert scopes == [min(stages - s, count) for s in range(stages)]


@pytest.mark.parametrize("count", [8, 16, 64, 256, 768])
def test_bytes_are_the_same_for_any_number_of_micro_batches(count):
    costs = Costs(scope=(40, 30, 20, 10), value=7)
    peaks = simulate(make_schedule("1f1b", 4, count), costs).peak_bytes
    assert peaks == simulate(make_schedule("1f1b", 4, 8), costs).peak_bytes
    grown = simulate(make_schedule("forward-then-backward", 4, count), costs).peak_bytes
    assert all(peak >= 40 // (s + 1) * count // 4 for s, peak in enumerate(grown))
    assert grown[0] >= 40 * count


def test_two_gradients_at_most_wait_to_be_fetched():
    timeline = simulate(make_schedule("1f1b", 4, 32))
    assert [timeline.most(s, GRADIENT_OUT) for s in range(4)] == [0, 2, 2, 2]
    assert [timeline.most(s, VALUE_OUT) for s in range(4)] == [2, 2, 2, 0]


def test_the_gradient_sent_two_micro_batches_ago_is_free_before_a_backward():
    schedule = make_schedule("1f1b", 4, 16)
    for stage in (1, 2, 3):
        order = schedule.orders[stage]
        for number in range(2, 16):
            backward = order.index(Action(BACKWARD, stage, number))
            freed = place_of(schedule, stage, FREE, GRADIENT_OUT, number - 2)
            assert freed < backward
            forward = Action(FORWARD, stage, number + 4 - stage - 1)
            if forward in order:
                assert freed < backward and order.index(forward) < backward


def test_time_is_that_of_a_pipeline():
    timeline = simulate(make_schedule("1f1b", 4, 12), Costs(forward=1, backward=2, update=0))
    assert timeline.seconds == (12 + 3) * 3
    assert timeline.bubble == pytest.approx(3 / 15)
    slow = simulate(make_schedule("1f1b", 2, 8), Costs(forward=(1, 5), backward=(1, 5), update=0))
    assert slow.seconds == 1 + 8 * 10 + 1


def test_fetches_stand_beside_the_computations_of_the_sender():
    schedule = make_schedule("1f1b", 2, 8, prefetch=True)
    events = simulate(schedule, Costs(transfer=0.5)).events
    fetched = next(
        e
        for e in events
        if e.action.kind == RECEIVE and e.action.buffer == Buffer(VALUE_IN, 1, 0, 0)
    )
    beside = next(e for e in events if e.action == Action(FORWARD, 0, 1))
    assert beside.start < fetched.end and fetched.start < beside.end


def test_too_few_micro_batches_are_refused():
    with pytest.raises(OptionError, match="micro_batches=3 are too few for 4 stages"):
        make_schedule("1f1b", 4, 3)
    make_schedule("1f1b", 4, 4)
    make_schedule("forward-then-backward", 4, 1)
    for count in (0, -1, 2.0, True, None):
        with pytest.raises(OptionError, match="micro_batches="):
            make_schedule("1f1b", 1, count)
    with pytest.raises(OptionError, match="schedule='gpipe'"):
        make_schedule("gpipe", 2, 4)
    for topology in (0, True, "4"):
        with pytest.raises(OptionError, match=f"topology={topology!r} is neither"):
            make_schedule("1f1b", topology, 4)


def broken(change):
    schedule = make_schedule("1f1b", 3, 6)
    order = list(schedule.orders[1])
    change(schedule, order)
    return with_order(schedule, 1, order)


def free_scope_early(schedule, order):
    free = order.pop(place_of(schedule, 1, FREE, SCOPE, 2))
    order.insert(order.index(Action(BACKWARD, 1, 2)), free)


def free_twice(schedule, order):
    place = place_of(schedule, 1, FREE, SCOPE, 0)
    order.insert(place, order[place])


def never_free(schedule, order):
    del order[place_of(schedule, 1, FREE, SCOPE, 5)]


def free_late(schedule, order):
    free = order.pop(place_of(schedule, 1, FREE, GRADIENT_OUT, 0))
    order.insert(order.index(Action(UPDATE, 1)), free)


def keep_scopes(schedule, order):
    frees = [a for a in order if a.kind == FREE and a.buffer.kind == SCOPE]
    for free in frees[:2]:
        order.remove(free)
        order.insert(order.index(Action(BACKWARD, 1, 3)), free)


def forget_to_send(schedule, order):
    del order[place_of(schedule, 1, SEND, VALUE_OUT, 1)]


def read_unreceived(schedule, order):
    del order[place_of(schedule, 1, RECEIVE, VALUE_IN, 0)]


def swap_backwards(schedule, order):
    a, b = order.index(Action(BACKWARD, 1, 4)), order.index(Action(BACKWARD, 1, 5))
    order[a], order[b] = order[b], order[a]


def update_early(schedule, order):
    order.insert(3, order.pop())


@pytest.mark.parametrize(
    "change, text",
    [
        (free_scope_early, "stage 1: backward 2: reads scope 2 of stage 1 after its release"),
        (free_twice, "scope 0 of stage 1: freed twice"),
        (never_free, "never freed: scope 5 of stage 1"),
        (free_late, "gradient-out"),
        (keep_scopes, "holds . buffers of kind scope at once, the bound of 1f1b is 2"),
        (forget_to_send, "these wait for ever"),
        (read_unreceived, "stage 1: forward 0: reads value-in 0 of stage 1 from stage 0 before"),
        (swap_backwards, "in rising order"),
        (update_early, "its update must be its last action"),
    ],
)
def test_the_simulator_refuses(change, text):
    simulate(make_schedule("1f1b", 3, 6))
    with pytest.raises(ScheduleError, match=text):
        simulate(broken(change))


def test_a_recomputation_keeps_its_inputs_alive():
    topology = Topology.chain(3, frozenset({1}))
    schedule = make_schedule("1f1b", topology, 6)
    simulate(schedule)
    order = list(schedule.orders[1])
    free = order.pop(place_of(schedule, 1, FREE, VALUE_IN, 2))
    order.insert(order.index(Action(FORWARD, 1, 2)) + 1, free)
    with pytest.raises(ScheduleError, match="reads value-in 2 of stage 1 from stage 0 after its"):
        simulate(with_order(schedule, 1, order))


def test_a_chart_shows_computations_sends_and_frees():
    text = str(make_schedule("1f1b", 2, 3))
    lines = text.splitlines()
    assert lines[0].split()[:6] == ["stage", "0", "F0", "F1", "B0", "=="]
    assert "stage 1" in text and "<0" in text and ">2" in text and "-1" in text
    assert "U" in lines[0]
    cut = chart(make_schedule("1f1b", 2, 30), width=5)
    assert max(map(len, cut.splitlines()[:-1])) < 40 and "columns more" in cut
    with pytest.raises(OptionError, match="width=0"):
        chart(make_schedule("1f1b", 2, 3), width=0)


def test_a_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    figure = picture(make_schedule("1f1b", 3, 4), tmp_path / "schedule.png")
    assert (tmp_path / "schedule.png").stat().st_size > 1000
    bars = [patch for patch in figure.axes[0].patches]
    assert len([bar for bar in bars if bar.get_width() > 0]) >= 3 * (2 * 4 + 1)


def test_no_module_has_the_name_of_a_public_function():
    modules = {path.stem for path in Path(rnnmem.pipeline.__file__).parent.glob("*.py")}
    assert not modules & set(rnnmem.pipeline.__all__)


def test_buffers_and_actions_have_names():
    assert str(Buffer(VALUE_IN, 1, 3, HOST)) == "value-in 3 of stage 1 from the host"
    assert str(Action(UPDATE, 2)) == "stage 2: update"
    assert Buffer(VALUE_OUT, 0, 3, 1).other_end == Buffer(VALUE_IN, 1, 3, 0)
    assert Buffer(VALUE_OUT, 0, 3, 1).other_end.other_end == Buffer(VALUE_OUT, 0, 3, 1)
