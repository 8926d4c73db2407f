"""How long segments are, and what running iterations of a loop again takes."""

import math

import pytest

from rnnmem.analysis.loops import loops_of
from rnnmem.analysis.replay import replay_of
from rnnmem.analysis.segment_lengths import best_growth, best_length, longest_segment, segment_count
from tests.drawing import edited, with_input, with_op
from tests.loop_drawings import RECURRENT, training


@pytest.mark.parametrize("trips", [0, 1, 2, 7, 64, 1000])
@pytest.mark.parametrize(("length", "growth"), [(1, 0), (7, 0), (1, 1), (3, 2), (50, 4)])
def test_segments_cover_every_iteration_and_no_more_are_needed(trips, length, growth):
    count = segment_count(trips, length, growth)
    lengths = [length + number * growth for number in range(count)]
    assert sum(lengths) >= trips > sum(lengths[:-1]) - (not trips)
    assert longest_segment(trips, length, growth) == min(trips, max(lengths, default=trips))


@pytest.mark.parametrize("trips", [1, 10, 100, 5000])
@pytest.mark.parametrize(("state", "saved"), [(64, 64), (64, 4096), (4096, 64)])
def test_the_best_length_keeps_least(trips, state, saved):
    def kept(length):
        return segment_count(trips, length, 0) * state + min(length, trips) * saved

    best = min(kept(length) for length in range(1, trips + 1))
    assert kept(best_length(trips, state, saved)) <= 1.1 * best + state + saved


@pytest.mark.parametrize(("state", "saved"), [(64, 64), (1 << 16, 1 << 14)])
def test_growing_segments_keep_a_root_of_the_trip_count(state, saved):
    growth = best_growth(state, saved)
    for trips in (100, 1000, 16000):
        kept = segment_count(trips, 8, growth) * state + longest_segment(trips, 8, growth) * saved
        assert kept <= 2 * math.sqrt(2 * trips * state * saved) + 8 * (state + saved)


def test_iterations_run_again_from_the_states_that_the_wanted_blobs_take():
    (loop, _) = loops_of(RECURRENT)
    replay = replay_of(loop, ("h", "a"), frozenset())
    assert replay.wanted == ("h", "a")
    assert replay.ops == {"m", "a", "next_h", "next_c"}
    assert replay.states == ("h", "c")
    assert replay.invariants == ("w",)
    assert not replay.reads


def test_a_state_that_nobody_asks_for_is_not_kept():
    def edit(body):
        return with_input(body, "next_h", 1, "a")

    (loop, _) = loops_of(edited(RECURRENT, ("forward", "body"), edit))
    replay = replay_of(loop, ("h",), frozenset())
    assert replay.states == ("h",)
    assert replay.ops == {"m", "a", "next_h"}


def test_what_depends_on_a_random_draw_cannot_be_had_again():
    (loop, _) = loops_of(training())
    assert replay_of(loop, ("h", "a:0", "r:0"), frozenset()).wanted == ()


def test_a_read_that_stays_the_same_is_no_obstacle_and_another_one_is():
    def edit(body):
        return with_op(body, "m", type="ReadVariableOp", inputs=("w",))

    (loop, _) = loops_of(edited(RECURRENT, ("forward", "body"), edit))
    assert replay_of(loop, ("a",), frozenset()).wanted == ()
    replay = replay_of(loop, ("a",), frozenset({"m"}))
    assert replay.wanted == ("a",)
    assert replay.reads == ("m",)
    assert replay.states == ()
