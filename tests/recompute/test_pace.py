"""How many iterations a plan has under way at once."""

from rnnmem.net.cost import CPU
from rnnmem.recompute.pace import ONE_BY_ONE, one_by_one, overlapped
from rnnmem.recompute.planner import plan_net
from tests.handmade import rnn
from tests.loop_drawings import nested


def paces(plan):
    return {loop.in_flight for outer in plan.loops for loop in outer.flat() if not loop.closed}


def test_inner_loops_keep_pace_with_the_outer_ones():
    plan = plan_net(nested(), CPU, float("inf"), segments=False)
    assert paces(overlapped(plan)) == {2}
    assert paces(one_by_one(overlapped(plan))) == {1}


def test_one_at_a_time_takes_time_and_two_take_none():
    plan = plan_net(rnn(), CPU, float("inf"))
    assert overlapped(plan).slowdown == plan.slowdown
    assert one_by_one(plan).slowdown == plan.slowdown + ONE_BY_ONE


def test_what_is_left_alone_keeps_its_pace():
    plan = plan_net(rnn(limit=1), CPU, float("inf"))
    assert plan.changes_nothing
    assert overlapped(plan) == one_by_one(plan) == plan
