"""A plan tells between which bytes its peaks lie, and chooses by none of it."""

import json

from rnnmem.analysis.machine import CPU
from rnnmem.planning.intervals import with_intervals
from rnnmem.planning.plan import Plan, without_peaks
from rnnmem.planning.search import Search
from rnnmem.planning.setting import Setting
from tests.handmade import encoded, rnn


def decided():
    net = rnn(256, 20)
    plan, rewritten = Search(net, Setting(CPU, encoded)).least_memory(1.5)
    assert rewritten is not None
    return net, plan, rewritten


def test_both_peaks_lie_in_their_intervals():
    net, plan, rewritten = decided()
    told = with_intervals(plan, net, rewritten, CPU.threads)
    for (low, high), peak in [
        (told.original_interval, plan.original_peak),
        (told.predicted_interval, plan.predicted_peak),
    ]:
        assert 0 < low <= peak <= high
    assert (told.loops, told.decisions) == (plan.loops, plan.decisions)


def test_where_nothing_changes_both_are_the_same():
    net = rnn(256)
    plan = Plan(original_peak=1, predicted_peak=10**12)
    told = with_intervals(plan, net, None, CPU.threads)
    assert told.original_interval[0] == 1  # what plans were compared by lies within
    assert told.predicted_interval[1] == 10**12


def test_a_plan_without_peaks_gets_none():
    net, plan, rewritten = decided()
    bare = without_peaks(with_intervals(plan, net, rewritten, CPU.threads))
    assert (bare.original_interval, bare.predicted_interval) == (None, None)
    assert with_intervals(bare, net, rewritten, CPU.threads) == bare


def test_intervals_go_to_json_and_back_and_older_plans_are_read():
    net, plan, rewritten = decided()
    plan = with_intervals(plan, net, rewritten, CPU.threads)
    assert Plan.from_json(plan.to_json()) == plan
    older = json.loads(plan.to_json())
    del older["original_interval"], older["predicted_interval"]
    read = Plan.from_json(json.dumps(older))
    assert (read.original_interval, read.predicted_interval) == (None, None)
    assert read.predicted_peak == plan.predicted_peak
    assert read.told_peaks[1].count("to") == 0
