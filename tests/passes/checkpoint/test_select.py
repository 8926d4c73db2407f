"""Plans with segments: both axes are weighed together, and the plan survives JSON."""

import dataclasses
import math

import pytest

from rnnmem.analysis.loops import Loop
from rnnmem.analysis.machine import CPU
from rnnmem.analysis.trip_count import LONG_TRIPS, UNKNOWN_TRIPS
from rnnmem.passes.checkpoint.decision import Segments
from rnnmem.passes.checkpoint.schedule import evaluations
from rnnmem.passes.checkpoint.select import (
    LONGER,
    REPEATS,
    TAILS,
    longer_segments,
    with_slots,
    with_tails,
)
from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.planning.pareto import candidates_of, plan_net
from rnnmem.planning.plan import Plan
from tests.handmade import const, make_net, op, rnn, while_op
from tests.passes.checkpoint.schedules import online_schedule, replay


def test_a_long_loop_keeps_states_once_the_time_is_there():
    (loop,) = candidates_of(rnn(limit=1000), CPU).without_schedules().within(math.inf).loops
    segments = loop.segments
    assert segments.states == ("h",)
    assert segments.wanted == ("h",)
    assert 20 <= segments.length <= 50
    assert not segments.growth
    kept, _ = loop.total()
    assert kept == segments.peak_bytes(1000) < 0.1 * 1000 * loop.bytes


def test_with_more_time_the_states_of_some_segments_are_kept():
    (once,) = candidates_of(rnn(limit=1000), CPU).without_schedules().within(math.inf).loops
    (loop,) = plan_net(rnn(limit=1000), CPU, math.inf).loops
    segments = loop.segments
    assert segments.count * segments.length >= 1000
    assert len(segments.starts) == segments.slots + 1 < segments.count
    again = evaluations(segments.count, segments.slots) + 1 - segments.count
    assert segments.replays == again / segments.count <= REPEATS[-1]
    assert loop.total()[0] == segments.peak_bytes(1000) < 0.4 * once.segments.peak_bytes(1000)
    assert loop.total()[1] == pytest.approx(
        1000 * (max(0.0, loop.seconds) + segments.replays * segments.seconds)
    )


def test_longer_segments_are_those_of_loops_with_a_state_a_segment():
    (cut,) = candidates_of(rnn(limit=1000), CPU).without_schedules().within(math.inf).loops
    length = cut.segments.length

    def cut_into(**fields):
        return dataclasses.replace(cut, segments=dataclasses.replace(cut.segments, **fields))

    def lengths(*loops):
        return [[one.segments.length for one in found] for found in longer_segments(loops)]

    assert lengths(cut) == [[round(factor * length)] for factor in LONGER]
    assert lengths(cut_into(length=600)) == [[900], [1000], [1000]]
    others = [
        cut_into(slots=3, count=40),
        cut_into(growth=1),
        dataclasses.replace(cut, trips=None),
        dataclasses.replace(cut, closed="it is closed"),
    ]
    assert not any(map(lengths, others))
    others = [dataclasses.replace(one, path=(f"loop_{k}",)) for k, one in enumerate(others)]
    assert [found[1:] for found in lengths(cut, *others)] == 3 * [4 * [length]]
    assert not list(longer_segments([dataclasses.replace(cut, segments=None)]))


SEGMENTS = Segments(length=8, growth=1, bytes=2**14, saved_bytes=2**14)


def test_more_repeats_take_fewer_slots():
    found = list(with_slots(SEGMENTS, 1000))
    assert [one.slots for one in found] == sorted((one.slots for one in found), reverse=True)
    assert 1 < len(found) <= len(REPEATS)
    assert not any(one.online for one in found)


def test_where_the_length_is_unknown_the_schedule_is_online():
    found = list(with_slots(SEGMENTS, None))
    assert 1 < len(found) <= len(REPEATS)
    assert [one.slots for one in found] == sorted((one.slots for one in found), reverse=True)
    for one in found:
        assert one.online and not one.growth
        assert one.most_kept == one.slots and not one.starts
        count = math.ceil(LONG_TRIPS / one.length)
        run = replay(online_schedule(count, one.slots), count, one.slots)
        assert one.replays == (run.evaluations - count) / count
        assert one.peak_bytes(UNKNOWN_TRIPS) < SEGMENTS.peak_bytes(UNKNOWN_TRIPS)
        assert one.peak_bytes(10**7) == one.peak_bytes(10**4)


def test_a_short_loop_keeps_no_more_than_it_has():
    (*_, one) = with_slots(SEGMENTS, None)
    assert one.peak_bytes(0) == 0
    assert one.peak_bytes(1) == SEGMENTS.peak_bytes(1)


def test_an_online_plan_goes_to_json_and_back():
    (loop,) = candidates_of(rnn(limit=1000), CPU).without_schedules().within(math.inf).loops
    (*_, segments) = with_slots(loop.segments, None)
    plan = Plan(loops=(dataclasses.replace(loop, segments=segments),))
    assert Plan.from_json(plan.to_json()) == plan


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


@pytest.mark.parametrize(("inside", "offered"), [("f[4,8]", len(TAILS)), ("f[?,8]", 0)])
def test_no_tail_where_a_state_grows(inside, offered):
    body = make_net(
        {"i": "i[]", "seen": inside},
        [
            const("one", 1),
            const("axis", 0),
            op("next", "AddV2", "i one", "i[]"),
            op("more", "ConcatV2", "seen seen axis", inside),
        ],
        ["next", "more"],
    )
    net = make_net(
        {"x": "f[4,8]"}, [const("zero", 0), while_op("loop", "zero x", body)], ["loop:1"]
    )
    loop = Loop(net, net.op_by_name["loop"])
    cut = dataclasses.replace(SEGMENTS, growth=0, wanted=("more",), states=("i", "seen"))
    plan = LoopPlan(("loop",), ("back",), trips=64, segments=cut)
    assert len(list(with_tails(plan, loop))) == offered
