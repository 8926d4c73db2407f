"""The benchmark of all conformance programs: what it tells of them."""

import pytest

from benchmarks.programs import BOUNDS, Outcome, run, summary


@pytest.mark.slow
def test_a_program_is_held_against_itself():
    (found,) = run(["while.trips_tensor"], 1)
    assert [one.max_slowdown for one in found] == list(BOUNDS)
    assert all(one.rewritten and not one.difference and not one.reason for one in found)
    assert found[0].after_bytes < found[0].before_bytes and found[0].time_ratio > 0


@pytest.mark.slow
def test_one_that_fails_says_why():
    (found,) = run(["no.such"], 1)
    assert [one.reason for one in found] == ["KeyError: 'no.such'"]


def outcome(**fields):
    return Outcome("a", 1.1, True, before_bytes=200, after_bytes=100, **fields)


def test_a_peak_is_foretold_where_it_lies_in_its_interval():
    assert outcome(predicted_bytes=(90, 100)).is_foretold is True
    assert outcome(predicted_bytes=(90, 99)).is_foretold is False
    assert outcome().is_foretold is None


def test_the_summary_names_what_is_not_as_it_should_be():
    found = [
        outcome(predicted_bytes=(90, 110)),
        outcome(predicted_bytes=(10, 20), difference="step 0: off"),
        Outcome("b", reason="ValueError: no"),
    ]
    shown = summary(found)
    assert shown[:2] == ["b: ValueError: no", "a at 1.1: step 0: off"]
    assert shown[2] == (
        "max_slowdown=1.1: 2 rewritten, 1 with equal bits; peak in the predicted interval 1, "
        "outside 1; median saving 2.00x"
    )
    assert shown[3].startswith("max_slowdown=1.35: 0 rewritten")
