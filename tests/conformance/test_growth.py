"""Where only the run tells how long loops are, the peak is no higher at few trips and at many.

No prediction holds a plan against the original there. What is left to chance by TensorFlow, which
of several ready ops runs first, moves a peak by a few blobs; what grows with the trips does not
hide behind that.
"""

import pytest

from tests.conformance.expectations import hold
from tests.conformance.harness import Subject, difference, grows_faster, is_improved, rose
from tests.conformance.programs import LARGE, PROGRAMS, build, sized

LONGER = [name for name, program in PROGRAMS.items() if program.longer]


@pytest.mark.parametrize("slowdown", [1.1, 2.0])
@pytest.mark.parametrize("name", LONGER)
def test_the_peak_grows_no_faster_with_the_trips(name, slowdown):
    with sized(**LARGE):
        subject = Subject(build(name))
    function, plan = subject.optimised(slowdown)
    assert is_improved(plan)
    lengths = subject.case.inputs, subject.case.longer
    original = [subject.run(subject.function, measured=True, inputs=one) for one in lengths]
    runs = [subject.run(function, measured=True, inputs=one) for one in lengths]
    for inputs, before, after in zip(lengths, original, runs, strict=True):
        hold(name, "bits", difference(before, after))
        hold(name, "peak", rose(subject, function, before, after, inputs))
    hold(name, "growth", grows_faster(original, runs))


def test_there_are_such_programs():
    assert len(LONGER) >= 3
