"""Outputs, gradients, updated variables and side effects are the original's; the peak is no higher.

All that three steps of a program show is asked in one test, so that it is traced only once. The
sizes are such that a blob is large against what the allocator rounds it up to: the peaks that were
predicted are held against those that are measured.
"""

import functools

import pytest

from rnnmem.tf import private
from tests.conformance.expectations import (
    GAPS,
    LEFT_ALONE,
    OF_KERNELS,
    RACES,
    hold,
    predicted,
    record,
)
from tests.conformance.harness import (
    EVERYTHING,
    Subject,
    difference,
    is_improved,
    outside,
    reasons,
    rose,
    set_fusions,
)
from tests.conformance.programs import LARGE, PROGRAMS, build, sized


@pytest.mark.parametrize("name", PROGRAMS)
def test_three_steps_leave_the_same(name):
    with sized(**LARGE):
        subject = Subject(build(name))
    everything, plan = subject.optimised(EVERYTHING)
    verify_improvement(name, plan)
    default, plan_by_default = subject.optimised(1.1)
    original = subject.run(subject.function, measured=True)
    record(name, "reasons", sorted(set(reasons(plan))))
    record(name, "peak before", min(original.peaks))
    functions = [("peak with most time", everything, plan)]
    decided = [
        (one.loops, one.nested, one.of("straight_line"), one.losses)
        for one in (plan_by_default, plan)
    ]
    if decided[0] != decided[1]:
        functions.append(("peak by default", default, plan_by_default))
    for label, function, its_plan in functions:
        run = subject.run(function, measured=True)
        record(name, label, min(run.peaks))
        hold(name, "bits", difference(original, run))
        hold(name, "side effects", "" if run.effects == original.effects else str(run.effects))
        hold(name, "peak", rose(subject, function, original, run))
        if PROGRAMS[name].known:
            found = functools.partial(_off, subject, its_plan, run)
            predicted(name, "prediction", found)
    if PROGRAMS[name].known:
        predicted(
            name,
            "prediction as it was",
            lambda: outside(subject.prediction(), original),
        )
    if is_improved(plan):
        set_fusions(False)
        try:
            original, run = subject.run(subject.function), subject.run(everything)
        finally:
            set_fusions(True)
        hold(name, "bits without fusions", difference(original, run))


def _off(subject, plan, run):
    """In words where what a plan predicts is not what its run took."""
    return outside(subject.prediction(plan), run)


def verify_improvement(name, plan):
    if name in LEFT_ALONE:
        assert not is_improved(plan), f"{name} is improved now: take it off LEFT_ALONE"
        assert LEFT_ALONE[name] in reasons(plan)
    elif name not in OF_KERNELS or private.has_onednn():
        assert is_improved(plan), reasons(plan)


def test_every_listed_program_exists():
    listed = {program for program, _ in (*GAPS, *RACES)}
    assert {*LEFT_ALONE, *listed} <= set(PROGRAMS)
