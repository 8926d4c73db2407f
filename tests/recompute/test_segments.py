"""Plans with segments: both axes are weighed together, and the plan survives JSON."""

import math

import pytest

from rnnmem.net.cost import CPU
from rnnmem.plan import Plan, Segments
from rnnmem.recompute.planner import plan_net, trades_of
from rnnmem.recompute.schedule import evaluations
from rnnmem.recompute.segments import REPEATS, with_slots
from tests.handmade import rnn


def test_a_long_loop_keeps_states_once_the_time_is_there():
    (loop,) = trades_of(rnn(limit=1000), CPU).without_schedules().within(math.inf).loops
    segments = loop.segments
    assert segments.states == ("h",)
    assert segments.wanted == ("h",)
    assert 20 <= segments.length <= 50
    assert not segments.growth
    kept, _ = loop.total()
    assert kept == segments.peak_bytes(1000) < 0.1 * 1000 * loop.bytes


def test_with_more_time_the_states_of_some_segments_are_kept():
    (once,) = trades_of(rnn(limit=1000), CPU).without_schedules().within(math.inf).loops
    (loop,) = plan_net(rnn(limit=1000), CPU, math.inf).loops
    segments = loop.segments
    assert segments.count * segments.length >= 1000
    assert len(segments.starts) == segments.slots + 1 < segments.count
    again = evaluations(segments.count, segments.slots) + 1 - segments.count
    assert segments.again == again / segments.count <= REPEATS[-1]
    assert loop.total()[0] == segments.peak_bytes(1000) < 0.4 * once.segments.peak_bytes(1000)
    assert loop.total()[1] == pytest.approx(
        1000 * (max(0.0, loop.seconds) + segments.again * segments.seconds)
    )


def test_a_schedule_is_not_looked_for_where_the_length_is_unknown():
    segments = Segments(length=8, growth=1, bytes=2**14, saved_bytes=2**14)
    assert list(with_slots(segments, None)) == []
    found = list(with_slots(segments, 1000))
    assert [one.slots for one in found] == sorted((one.slots for one in found), reverse=True)
    assert 1 < len(found) <= len(REPEATS)


def test_more_time_never_keeps_more():
    bounds = (1.0, 1.1, 1.2, 1.3, 1.5, 2.0)
    plans = [plan_net(rnn(limit=1000), CPU, bound) for bound in bounds]
    kept = [plan.loops[0].total()[0] for plan in plans if not plan.loops[0].closed]
    assert kept == sorted(kept, reverse=True)
    for bound, plan in zip(bounds, plans, strict=True):
        assert plan.slowdown <= bound + 1e-9


def test_a_short_loop_is_not_worth_it():
    (loop,) = plan_net(rnn(units=4, limit=5), CPU, math.inf).loops
    assert loop.segments is None


def test_segments_may_be_ruled_out():
    (loop,) = plan_net(rnn(limit=1000), CPU, math.inf, segments=False).loops
    assert loop.segments is None


@pytest.mark.parametrize("limit", [5, 1000])
def test_the_plan_goes_to_json_and_back(limit):
    plan = plan_net(rnn(limit=limit), CPU, math.inf)
    assert Plan.from_json(plan.to_json()) == plan
