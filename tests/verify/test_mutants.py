"""No mutant of what the rewriter writes gets past the verifier with another result.

A sample; `python -m tests.verify.mutants` makes and judges any number of them.
"""

import collections
from unittest import mock

import pytest
import tensorflow as tf
from tensorflow.python.framework import config

from tests.verify.mutant_sources import a_few, by_hand, program
from tests.verify.mutants import (
    ESCAPED,
    HARMLESS,
    MUTATIONS,
    REFUSED,
    judged,
    mutant,
    mutants,
)


@pytest.fixture
def _deterministic():
    tf.config.experimental.enable_op_determinism()
    yield
    config.disable_op_determinism()


def verdicts(sources, count, seed):
    """How often each verdict came up; fails at the first escape."""
    counts = collections.Counter()
    for one in mutants(sources, count, seed):
        verdict = judged(one)
        assert verdict != ESCAPED, str(one)
        counts[verdict] += 1
    return counts


@pytest.mark.slow
def test_no_mutant_of_a_net_drawn_by_hand_escapes():
    counts = verdicts(by_hand(), count=400, seed=1)
    assert counts[REFUSED] > 120 and counts[HARMLESS] > 60, counts


@pytest.mark.slow
@pytest.mark.usefixtures("_deterministic")
def test_no_mutant_of_a_traced_step_escapes():
    counts = verdicts([program("while.known_trips")], count=60, seed=2)
    assert counts[REFUSED] > 10 and counts[HARMLESS] > 5, counts


@pytest.mark.slow
@pytest.mark.usefixtures("_deterministic")
def test_no_mutant_of_any_kind_of_rewrite_escapes():
    counts = verdicts(a_few(), count=200, seed=3)
    assert counts[REFUSED] > 60 and counts[HARMLESS] > 20, counts


def test_a_mutant_is_the_same_again():
    (source, *_) = sources = by_hand()
    one, again = (mutant(sources, number=5, seed=0) for _ in range(2))
    assert one.net == again.net != source.rewritten
    assert str(one) == str(again)


def test_a_verifier_that_lets_all_pass_would_be_found_out():
    with mock.patch("tests.verify.mutants.check"):
        found = [judged(one) for one in mutants(by_hand(), count=len(MUTATIONS), seed=4)]
    assert found.count(ESCAPED) > 10, collections.Counter(found)
