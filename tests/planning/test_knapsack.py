"""All good trades of one loop, and the choice of one trade for each of several loops."""

import itertools

import hypothesis
import pytest
from hypothesis import strategies as st

from rnnmem.passes.rematerialise.decision import LoopPlan
from rnnmem.planning.knapsack import choose_within, frontier


def candidate(kept: int, seconds: float, name: str = "loop") -> LoopPlan:
    return LoopPlan((name,), ("gradient",), trips=1, bytes=kept, seconds=seconds)


def best_of(candidates, asked=None):
    """The plan that is best at a price, of a fixed list; notes the prices it is asked for."""

    def plan_at(price):
        if asked is not None:
            asked.append(price)
        return min(candidates, key=lambda one: (one.bytes + price * one.seconds, one.seconds))

    return plan_at


# bytes
#  10 ┤ a
#   6 ┤   ·          above the line from a to c: never best at any price
#   4 ┤     b
#   2 ┤         c
#     └─0─1─2───4─ seconds
A, INSIDE, B, C = (
    candidate(1000, 0.0),
    candidate(900, 1.0),
    candidate(400, 2.0),
    candidate(200, 4.0),
)


def test_the_corners_come_fewest_bytes_first_without_what_lies_inside():
    assert frontier(best_of([A, INSIDE, B, C])) == (C, B, A)


def test_one_plan_alone_is_found_once():
    asked = []
    assert frontier(best_of([A], asked)) == (A,)
    assert len(asked) == 2


def test_no_price_is_asked_for_twice():
    asked = []
    frontier(best_of([A, INSIDE, B, C], asked))
    assert len(asked) == len(set(asked))


@hypothesis.given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 100)), min_size=1, max_size=8)
)
def test_it_is_the_lower_convex_hull(pairs):
    candidates = [candidate(kept, float(seconds)) for kept, seconds in pairs]
    found = frontier(best_of(candidates))
    sizes = [one.bytes for one in found]
    times = [one.seconds for one in found]
    assert sizes == sorted(sizes)
    assert times == sorted(times, reverse=True)
    # At every price some plan of the frontier is as good as any.
    for price in (0.0, 0.1, 1.0, 3.0, 10.0, 100.0, 1e6):
        best = min(one.bytes + price * one.seconds for one in candidates)
        mine = min(one.bytes + price * one.seconds for one in found)
        assert mine <= best * (1 + 2e-3) + 1e-9


def total(plans):
    return sum(one.total()[0] for one in plans), sum(one.total()[1] for one in plans)


@pytest.mark.fuzz
@hypothesis.given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 20)), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 60),
)
def test_no_other_choice_within_the_time_keeps_less(costs, seconds):
    choices = [
        [candidate(kept, float(time), f"loop{i}") for kept, time in one]
        for i, one in enumerate(costs)
    ]
    found = choose_within(choices, float(seconds))
    assert [one.path for one in found] == [(f"loop{i}",) for i in range(len(costs))]
    every = [total(one) for one in itertools.product(*choices)]
    within = [kept for kept, time in every if time <= seconds]
    if within:
        assert total(found)[1] <= seconds
        assert total(found)[0] == min(within)
    else:
        assert total(found)[1] == min(time for _, time in every)


def test_where_the_bound_cannot_be_kept_the_fastest_is_taken():
    assert choose_within([[C, B], [C, A]], 1.0) == (B, A)


def test_all_the_time_in_the_world_buys_the_least_bytes():
    assert choose_within([[A, B, C], [B, A]], float("inf")) == (C, B)


def test_the_time_goes_where_it_frees_most():
    small, large = candidate(100, 1.0), candidate(1000, 1.0)
    choices = [[candidate(50, 2.0), small], [candidate(100, 2.0), large]]
    # Two seconds are spent already; the one that is left frees 900 bytes there, 50 here.
    assert choose_within(choices, 3.0) == (small, choices[1][0])


@pytest.mark.parametrize("seconds", [0.0, 1.0, float("inf"), float("nan")])
def test_no_loop_no_choice(seconds):
    assert choose_within([], seconds) == ()


def test_what_a_loop_keeps_is_counted_over_its_trips_with_what_is_inside():
    inner = LoopPlan(("a", "b"), ("d",), trips=3, bytes=10, seconds=1.0)
    outer = LoopPlan(("a",), ("c", "e"), trips=2, bytes=100, seconds=2.0, inner=(inner,))
    # 2 x (100 + 3 x 10) bytes; each of two gradients recomputes: 2 x (2 x 2 + 3 x 1) seconds
    assert outer.total() == (260, 14.0)
    assert LoopPlan(("a",), ("b",), bytes=1).total(unknown_trips=7)[0] == 7
