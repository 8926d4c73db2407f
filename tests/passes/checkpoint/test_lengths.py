"""How long segments should be."""

import math

import hypothesis
import pytest
from hypothesis import strategies as st

from rnnmem.errors import OptionError
from rnnmem.passes.checkpoint.lengths import segmentations

SIZES = st.integers(1, 10_000)


@hypothesis.given(st.integers(0, 600), SIZES, SIZES)
def test_more_time_always_buys_bytes(steps, state, saved):
    found = segmentations(steps, state, saved, 0.5)
    assert found[0].levels == (steps,)
    assert found[0].extra_steps == 0
    for faster, smaller in zip(found, found[1:], strict=False):
        assert faster.extra_steps < smaller.extra_steps
        assert faster.peak_bytes > smaller.peak_bytes
        assert smaller.extra_seconds == 0.5 * smaller.extra_steps
    for one in found:
        assert math.prod(one.levels) >= steps


def test_levels_nest_and_each_runs_all_once_more():
    found = segmentations(1000, 1, 1, 1.0, schedules=False)
    assert [len(one.levels) for one in found] == [1, 2, 3, 4, 5]
    assert [one.extra_steps for one in found] == [0, 1000, 2000, 3000, 4000]
    assert found[1].peak_bytes == 64  # 32 states, segments of 32
    assert found[2].peak_bytes == 30  # 10 + 10 states, segments of 10


def test_the_peak_grows_with_the_root_of_the_length():
    peaks = [segmentations(t, 4, 9, 1.0)[1].peak_bytes for t in (1000, 4000, 16000)]
    assert peaks[1] <= 2.1 * peaks[0]
    assert peaks[2] <= 2.1 * peaks[1]


@pytest.mark.parametrize(
    "arguments, named",
    [
        ((-1, 1, 1, 1.0), "steps=-1"),
        ((2.5, 1, 1, 1.0), "steps=2.5"),
        ((5, -1, 1, 1.0), "state_bytes=-1"),
        ((5, 1, -1, 1.0), "saved_bytes=-1"),
        ((5, 1, 1, math.nan), "step_seconds=nan"),
    ],
)
def test_numbers_that_make_no_sense_are_named(arguments, named):
    with pytest.raises(OptionError, match=named):
        segmentations(*arguments)
