"""Refusals of a budget name one that is met, whatever becomes of a plan once it is applied."""

import pytest

from rnnmem.errors import BudgetError
from rnnmem.planning.choice import budget_for, cannot_be_met, met_when_asked
from rnnmem.planning.plan import Plan

ASKED = 1000


def plan_of(peak):
    return Plan(predicted_peak=peak, original_peak=10 * peak, slowdown=1.2)


def refusal(peak, budget=ASKED):
    return cannot_be_met(budget, plan_of(peak), "for a reason")


def applied(peak):
    """Runs what takes such a peak once it is applied; and the budgets that were tried."""
    tried = []

    def try_within(budget):
        tried.append(budget)
        if budget_for(plan_of(peak)) > budget:
            raise refusal(peak, budget)

    return tried, try_within


def test_a_budget_that_is_met_is_named_as_it_was():
    first = refusal(5000)
    tried, try_within = applied(5000)
    assert met_when_asked(first, try_within) is first
    assert tried == [first.smallest]


def test_where_that_plan_gives_way_the_next_one_that_runs_is_named():
    tried, try_within = applied(7000)
    named = met_when_asked(refusal(5000), try_within)
    assert named.smallest == budget_for(plan_of(7000)) == tried[-1]
    assert f"budget={ASKED} " in str(named) and str(named.smallest) in str(named)
    assert "for a reason" in str(named)


@pytest.mark.parametrize("further", [None, 1])
def test_a_refusal_that_names_no_more_ends_the_search(further):
    first = refusal(5000)

    def never(budget):
        error = BudgetError("of unknown sizes")
        error.smallest = further
        raise error

    assert met_when_asked(first, never) is first
