"""Plans of a machine whose costs are known: what is counted, and that the bound holds for it."""

import dataclasses

import pytest

from rnnmem.analysis.known_costs import KNOWN
from rnnmem.analysis.machine import CPU, PRIMITIVE_SECONDS
from rnnmem.analysis.shapes import known_net
from rnnmem.analysis.times import step_seconds
from rnnmem.ir.marks import PRIMITIVE
from rnnmem.planning.decide import decide
from rnnmem.planning.options import Options
from rnnmem.planning.search import Search
from rnnmem.planning.setting import Setting
from rnnmem.planning.step_time import run_seconds, slowdown_of
from tests.handmade import const, encoded, make_net, op, rnn

HERE = dataclasses.replace(CPU, costs=KNOWN)
SLOW_LOOPS = dataclasses.replace(CPU, costs=dataclasses.replace(KNOWN, iteration=1e-3))


def taken(net, machine=HERE):
    return run_seconds(known_net(net), machine)


def plan_within(bound, machine=HERE, limit=1000, **options):
    search = Search(rnn(limit=limit), Setting(machine, encoded))
    plan, rewritten = decide(search, Options(max_slowdown=bound, **options))
    return search, plan, rewritten


def test_without_costs_it_is_the_time_of_the_kernels():
    net = known_net(rnn(limit=50)).net
    assert taken(net, CPU) == step_seconds(net, CPU)
    assert slowdown_of(net, 1.0, CPU) is None


@pytest.mark.parametrize("order, moves", [((1, 0), True), ((0, 1), False)])
def test_a_transposition_that_moves_nothing_takes_what_any_op_does(order, moves):
    turned = op("y", "Transpose", "a order", "f[512,512]", attributes={PRIMITIVE: True})
    ops = [op("a", "Tanh", "x", "f[512,512]"), const("order", order), turned]
    inputs = {"x": "f[512,512]"}
    alone = taken(make_net(inputs, ops, ["y"])) - taken(make_net(inputs, ops[:2], ["a"]))
    assert (alone > PRIMITIVE_SECONDS) == moves


def test_iterations_and_loop_variables_cost_as_often_as_they_run():
    once, twice = taken(rnn(limit=50)), taken(rnn(limit=100))
    assert twice == pytest.approx(2 * once, rel=0.1)
    slower = dataclasses.replace(CPU, costs=dataclasses.replace(KNOWN, iteration=1e-3))
    more = taken(rnn(limit=50), slower) - once
    assert more == pytest.approx(2 * 50 * (1e-3 - KNOWN.iteration), rel=0.05)  # two loops


@pytest.mark.parametrize("bound", [1.05, 1.2, 1.35, 2.0, 4.0])
def test_the_bound_holds_for_what_the_net_of_a_plan_takes(bound):
    search, plan, rewritten = plan_within(bound)
    assert plan.slowdown <= bound
    if rewritten is not None:
        assert plan.slowdown == pytest.approx(taken(rewritten) / search.original.seconds)


def test_more_time_never_leaves_a_larger_peak():
    peaks = [plan_within(bound)[1].predicted_peak for bound in (1.05, 1.2, 1.5, 2.0, 4.0)]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < peaks[0] / 4


def test_where_branches_are_dear_no_segment_is_run_again_in_little_time():
    dear = dataclasses.replace(CPU, costs=dataclasses.replace(KNOWN, value=1e-5, dead=1e-6))
    _, plan, rewritten = plan_within(1.35, dear)
    assert rewritten is None or not any(loop.segments for loop in plan.loops)


def test_segments_and_schedules_are_counted_as_often_as_they_run():
    """Whatever a plan runs again costs its share: no plan of segments is as fast as none."""
    search = Search(rnn(limit=1000), Setting(HERE, encoded))
    timed = search._timed
    plain, found = None, []
    for own in search.candidates.choices[0]:
        if own.closed:
            continue
        plan = search.candidates.plan((own,))
        slowdown = timed.plan(plan)[0].slowdown
        if own.segments is None:
            plain = slowdown if plain is None else min(plain, slowdown)
        else:
            found.append((own.segments.replays, slowdown))
    assert found and min(slowdown for _, slowdown in found) > plain
    once = [slowdown for replays, slowdown in found if replays == 1.0]
    often = [slowdown for replays, slowdown in found if replays > 2.0]
    assert min(often) > min(once)


def test_the_same_costs_give_the_same_plan():
    first, again = plan_within(1.35)[1], plan_within(1.35)[1]
    assert first == again


def test_a_budget_is_met_by_a_machine_with_costs():
    _, small, _ = plan_within(4.0)
    budget = small.original_peak // 2
    _, plan, rewritten = plan_within(1.1, budget=budget)
    assert rewritten is not None and plan.predicted_peak < budget
    assert plan.slowdown > 1.0
