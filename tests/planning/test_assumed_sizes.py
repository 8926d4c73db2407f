"""Where only the run can tell sizes, a plan is no larger than the original whatever they are."""

import dataclasses
import math

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.planning import search as budget
from rnnmem.planning.assumed_sizes import CLOSE, SLACK, are_larger, assumed_peaks, higher_peaks
from rnnmem.planning.choice import is_cut
from rnnmem.planning.search import Search
from rnnmem.planning.setting import Setting
from rnnmem.simulate.timeline import counted_peak
from tests.handmade import encoded, rnn


def until_told(net):
    """The Net, its loops comparing their counter with itself: nobody knows how far they count."""
    ops = []
    for op in net.ops:
        if "cond" in op.nets:
            cond = op.nets["cond"]
            more = cond.op_by_name["more"]
            stops = more.replace(type="NotEqual", inputs=(more.inputs[0], cond.inputs[0]))
            blobs = {name: blob for name, blob in cond.blobs.items() if name != "limit"}
            op = op.replace(nets={**op.nets, "cond": cond.replace(ops=(stops,), blobs=blobs)})
        ops.append(op)
    return net.replace(ops=tuple(ops))


def decision(net):
    return Search(net, Setting(CPU, encoded))


def peaks_of(made, plan):
    _, rewritten = made.finished(plan)
    return assumed_peaks(made.net if rewritten is None else rewritten)


def test_the_assumed_sizes_tell_a_peak_that_grows_with_the_trips():
    net = until_told(rnn(512))
    assert counted_peak(net) is None
    few, *_, many = assumed_peaks(net)
    assert 5 * few < many


@pytest.mark.parametrize("slowdown", [1.0, 1.1, 1.5, 2.0, 4.0, math.inf])
@pytest.mark.parametrize("units", [64, 256, 512])
def test_whatever_time_is_allowed_no_peak_is_larger(units, slowdown):
    made = decision(until_told(rnn(units)))
    plan, _ = made.least_memory(slowdown)
    assert not are_larger(peaks_of(made, plan), assumed_peaks(made.net))


def test_the_plan_that_keeps_least_gives_way_where_it_is_larger_at_few_trips():
    made = decision(until_told(rnn(512)))
    least = min(
        map(made.simulated, made._plans_within(2.0)),
        key=lambda plan: sum(one.total()[0] for one in plan.loops),
    )
    before = assumed_peaks(made.net)
    assert are_larger(peaks_of(made, least), before)
    plan, _ = made.least_memory(2.0)
    after = peaks_of(made, plan)
    assert not are_larger(after, before)
    assert after[-1] < before[-1] / 2, "the saving at many trips is kept"


def test_what_is_larger_at_all_sizes_is_left_as_it_was():
    net = until_told(rnn(512))
    wide = rnn(600)  # stands for a rewrite that makes everything larger
    made = decision(net)
    made.apply = lambda plan: until_told(wide)
    plan, rewritten = made.least_memory(2.0)
    assert rewritten is None and plan.changes_nothing
    assert plan.notes == ("at sizes known only at run time, every plan may have a larger peak",)


def test_the_smallest_plan_for_a_budget_that_nobody_can_foretell_is_no_larger():
    made = decision(until_told(rnn(512)))
    plan, rewritten = made.least_time(1)
    assert rewritten is not None
    assert not are_larger(peaks_of(made, plan), assumed_peaks(made.net))


def test_where_not_even_assumed_sizes_tell_no_iteration_runs_again(monkeypatch):
    made = decision(until_told(rnn(512)))
    monkeypatch.setattr(budget, "assumed_peaks", lambda net: (None,))
    plan, rewritten = made.least_memory(math.inf)
    assert rewritten is not None
    assert all(loop.segments is None for loop in plan.loops)


def test_segments_that_take_longer_as_they_run_are_not_taken(monkeypatch):
    made = decision(until_told(rnn(512)))
    saving = (one for one in made._plans_within(2.0) if not is_cut(one))
    plan = next(one for one in saving if not one.changes_nothing)
    assert made._cut_like(plan, 2.0)
    as_run = made.simulated
    slower = {"slowdown": 2.1}
    monkeypatch.setattr(made, "simulated", lambda one: dataclasses.replace(as_run(one), **slower))
    assert not made._cut_like(plan, 2.0)


def test_a_little_is_no_larger():
    assert not are_larger((1000 + SLACK, 2**20), (1000, 2**20))
    assert are_larger((1000, 2**30 * (1 + 2 * CLOSE)), (1000, 2**30))


def test_so_is_a_hundredth_of_what_a_call_takes():
    more = 1000 + SLACK + 2**20
    assert are_larger((more,), (1000,), in_call=50 * 2**20)
    assert not are_larger((more,), (1000,), in_call=101 * 2**20)


def test_higher_peaks_are_told_where_both_are():
    assert higher_peaks((1, None, 3, 4), (2, 2, 1, None)) == (2, None, 3, None)
