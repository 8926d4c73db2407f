"""The core lemmas of docs/correctness.md, proven by an SMT solver; false variants are refuted."""

import pytest

pytest.importorskip("z3", reason="z3-solver is not installed: pip install 'rnnmem[prove]'")

from tests.proofs import lemmas  # noqa: E402

OBLIGATIONS = {f"{one.lemma}: {one.part}": one for one in lemmas.obligations()}
CONTROLS = [(name, needed) for name, one in OBLIGATIONS.items() for needed in one.given]


@pytest.mark.parametrize("name", OBLIGATIONS)
def test_the_claim_follows(name):
    assert OBLIGATIONS[name].counterexample() is None


@pytest.mark.parametrize("name", OBLIGATIONS)
def test_what_is_given_can_be_so(name):
    assert OBLIGATIONS[name].example() is not None


@pytest.mark.parametrize("name, condition", CONTROLS)
def test_without_a_condition_there_is_a_counterexample(name, condition):
    assert OBLIGATIONS[name].counterexample(without=condition) is not None


@pytest.mark.parametrize("claim", lemmas.FALSE_CLAIMS)
def test_a_false_claim_is_refuted(claim):
    assert lemmas.FALSE_CLAIMS[claim]().counterexample() is not None
