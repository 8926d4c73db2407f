"""The size of most examples a second, on sizes whose times are told instead of taken."""

import re

import pytest
import tensorflow as tf

import rnnmem
from rnnmem import limit_search
from rnnmem.errors import BudgetError, OptionError
from rnnmem.throughput import FINAL, SizeTrial, most_examples
from tests.alone import run_alone
from tests.test_limit_search import WEIGHT, rows, train_step


class Machine:
    """Runs sizes whose rates a function tells, and remembers which."""

    def __init__(self, rate, largest=10**9):
        self.rate, self.largest, self.ran = rate, largest, []

    def attempt(self, size):
        self.ran.append(size)
        if size > self.largest:
            return None
        return SizeTrial(size, size / self.rate(size), 100 * size, None)


def test_where_larger_is_always_better_the_limit_decides():
    machine = Machine(lambda size: size / (size + 50), largest=100)
    found = most_examples(4, 10**6, machine.attempt)
    assert 90 <= found.size <= 100
    assert found.examples_per_second == pytest.approx(found.size / (found.size + 50))
    assert [one.size for one in found.tried] == sorted(one.size for one in found.tried)


def test_a_peak_between_is_found_and_the_rest_not_run():
    machine = Machine(lambda size: size / (1 + (size / 90) ** 2))
    found = most_examples(1, 10**6, machine.attempt)
    assert machine.rate(found.size) > 0.98 * machine.rate(90)
    assert max(machine.ran) <= 512


def test_the_ends_are_tried_and_nothing_beyond():
    machine = Machine(lambda size: size)
    assert most_examples(3, 50, machine.attempt).size == 50
    machine = Machine(lambda size: 1 / size)
    assert most_examples(3, 50, machine.attempt).size == 3
    assert most_examples(7, 7, Machine(lambda size: 1).attempt).size == 7
    assert min(machine.ran) == 3


def test_a_size_that_was_lucky_once_is_not_taken():
    class Lucky(Machine):
        def attempt(self, size):
            lucky = size == 4 and 4 not in self.ran
            one = super().attempt(size)
            return SizeTrial(size, one.seconds / 100, None, None) if lucky else one

    machine = Lucky(lambda size: 8 if size == 8 else 1)
    found = most_examples(1, 64, machine.attempt)
    assert found.size == 8
    assert len(machine.ran) == len(set(machine.ran)) + FINAL


def test_nothing_fits():
    assert most_examples(4, 8, Machine(lambda size: 1, largest=3).attempt) is None


def test_the_table_marks_the_best():
    text = str(most_examples(1, 4, Machine(lambda size: size).attempt))
    assert len(text.splitlines()) == 1 + 4
    assert re.search(r"^ *4 +4.0 +1.000 s +0.0 MiB +<- best$", text, re.MULTILINE)


def test_a_goal_that_is_none_is_named():
    with pytest.raises(OptionError, match=re.escape("goal='speed' must be one of 'size', ")):
        rnnmem.largest(train_step, rows, "1MiB", goal="speed")


def best_rows(optimised: bool):
    limit_search.TIMED_SECONDS = 0.01
    step = rnnmem.optimize(train_step) if optimised else tf.function(train_step)
    found = rnnmem.largest(step, rows, "320KiB", low=8, high=40, goal="throughput")
    peaks = [one.peak_bytes for one in found.tried]
    plans = [one.plan is not None for one in found.tried]
    return [one.size for one in found.tried], peaks, plans, found.size


@pytest.mark.slow
@pytest.mark.parametrize("optimised", [False, True])
def test_all_that_is_tried_fits_and_a_plan_lets_more_fit(optimised):
    before = WEIGHT.numpy()
    sizes, peaks, plans, best = run_alone(__name__, "best_rows", optimised)
    assert WEIGHT.numpy().tobytes() == before.tobytes()
    assert max(peaks) <= 320 * 1024
    assert all(plans) == optimised
    assert best in sizes
    assert (max(sizes) >= 32) == optimised


@pytest.mark.slow
def test_where_not_even_low_fits_it_is_said():
    with pytest.raises(BudgetError, match="low=50 does not fit"):
        rnnmem.largest(tf.function(train_step), rows, "64KiB", low=50, goal="throughput")
