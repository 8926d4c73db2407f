"""Regions outside of loops are simulated only where they may lower the predicted peak."""

import dataclasses

import pytest

import rnnmem.planning.straight_line
from rnnmem.analysis.machine import CPU
from rnnmem.passes.straight_line.select import Candidate
from rnnmem.planning.plan import Plan
from rnnmem.planning.search import Search
from rnnmem.planning.setting import Setting
from rnnmem.planning.straight_line import LEAST_GAIN, MORE, _apart, regions_where_they_pay
from rnnmem.simulate.timeline import counted_peak
from tests.drawing import encoded
from tests.handmade import const, op
from tests.passes.straight_line.test_select import F, chain

HUGE = "f[4096,4096]"
BESIDE = "f[6144,6144]"
# Larger than all residuals together, and gone before the first of them is made.
AT_FIRST = [
    const("axes0", (0, 1)),
    op("huge", "MatMul", "y y", HUGE),
    op("small", "Sum", "huge axes0", "f[]"),
    op("start", "Mul", "x x", F, controls=("small",)),
]


def found(net, monkeypatch, original_peak=None):
    simulated = []

    def counted(one, **limits):
        simulated.append(one)
        return counted_peak(one, **limits)

    monkeypatch.setattr(rnnmem.planning.straight_line, "counted_peak", counted)
    plan = Plan(predicted_peak=counted_peak(net), original_peak=original_peak)
    return regions_where_they_pay(net, plan, Search(net, Setting(CPU, encoded)), 2.0), simulated


def test_the_regions_of_the_lowest_peak_are_chosen(monkeypatch):
    net = chain()
    (plan, rewritten), simulated = found(net, monkeypatch)
    assert plan.predicted_peak == counted_peak(rewritten) < 0.7 * counted_peak(net)
    assert plan.original_peak == counted_peak(net)
    assert net not in simulated


@pytest.mark.parametrize("measured", [True, False])
def test_a_plan_tells_whether_its_time_was_measured_here(measured):
    net, machine = chain(), dataclasses.replace(CPU, calibrated=measured)
    plan, _ = regions_where_they_pay(net, Plan(), Search(net, Setting(machine, encoded)), 3.0)
    assert plan.calibrated == measured


def test_nothing_is_simulated_where_no_residual_stands_at_the_peak(monkeypatch):
    net = chain(before=AT_FIRST, inputs={"y": HUGE})
    assert found(net, monkeypatch) == (None, [])


def test_beside_what_loops_gain_less_is_enough(monkeypatch):
    net = chain(
        before=[op("kept", "Square", "y", BESIDE), op("start", "Mul", "x x", F)],
        inputs={"y": BESIDE},
    )
    net = net.replace(outputs=(*net.outputs, "kept"))
    assert found(net, monkeypatch)[0] is None
    plan, _ = found(net, monkeypatch, original_peak=2 * counted_peak(net))[0]
    assert MORE < 1 - plan.predicted_peak / counted_peak(net) < LEAST_GAIN


def test_of_choices_that_are_alike_the_first_is_simulated():
    told = ((100, 1.0), (103, 0.98), (104, 0.5), (104, 1.3), (120, 1.0), (121, 0.51))
    choices = [Candidate((), peak, 0, seconds) for peak, seconds in told]
    assert [one.peak for one in _apart(choices)] == [100, 104, 104, 120, 121]
