"""How many iterations a plan has under way at once."""

import dataclasses

import pytest

from rnnmem.analysis.loops import loop_pairs
from rnnmem.analysis.machine import CPU
from rnnmem.planning.parallel_iterations import (
    ONE_BY_ONE,
    lost_one_by_one,
    one_by_one,
    one_by_one_where_cheap,
    overlapped,
)
from rnnmem.planning.pareto import plan_net
from tests.handmade import rnn
from tests.loop_drawings import nested


def parallel_iterations(plan):
    return {
        loop.parallel_iterations for outer in plan.loops for loop in outer.flat() if not loop.closed
    }


def test_inner_loops_keep_up_with_the_outer_ones():
    plan = plan_net(nested(), CPU, float("inf"), segments=False)
    assert parallel_iterations(overlapped(plan)) == {2}
    assert parallel_iterations(one_by_one(overlapped(plan))) == {1}


def test_one_at_a_time_takes_time_and_two_take_none():
    plan = plan_net(rnn(), CPU, float("inf"))
    assert overlapped(plan).slowdown == plan.slowdown
    assert one_by_one(plan).slowdown == plan.slowdown + ONE_BY_ONE


def test_what_is_left_alone_keeps_its_parallel_iterations():
    plan = plan_net(rnn(limit=1), CPU, float("inf"))
    assert plan.changes_nothing
    assert overlapped(plan) == one_by_one(plan) == plan


def lost(units, seconds=CPU.seconds):
    net = rnn(units=units)
    (pair,) = loop_pairs(net, net, {})
    return lost_one_by_one(pair, seconds, 5, 1.0)


def test_products_and_small_ops_leave_cores_idle():
    assert lost(64) is None
    assert lost(1024) is None  # its products take longest


def test_half_as_much_is_lost_beside_large_elementwise_ops():
    def seconds(op, _):
        return 0.01 if op.type == "TanhGrad" else 1e-6

    assert lost(64, seconds) == pytest.approx(ONE_BY_ONE * 5 * 0.01 / 2, rel=0.01)
    assert lost(64, lambda op, net: 1e-5) is None


def test_only_loops_that_lose_little_have_one_iteration_at_a_time():
    plan = overlapped(plan_net(rnn(), CPU, float("inf")))
    assert one_by_one_where_cheap(plan, [None]) == plan
    slow = one_by_one_where_cheap(plan, [0.02])
    assert parallel_iterations(slow) == {1} and slow.slowdown == pytest.approx(plan.slowdown + 0.02)
    closed = dataclasses.replace(plan.loops[0], closed="left")
    plan = dataclasses.replace(plan, loops=(closed,))
    assert one_by_one_where_cheap(plan, [0.02]) == plan
