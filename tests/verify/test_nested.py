"""The verifier on a training loop's step net, with the reads that were added in it."""

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.analysis.training_regions import nested_steps
from rnnmem.errors import CheckError
from rnnmem.ir.graph import Net
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import candidates_of
from rnnmem.planning.plan import NestedPlan, Plan
from rnnmem.verify import check
from tests.drawing import edited, encoded, with_op
from tests.nested_step_drawings import TRAIN, training

READ = "forward/rnnmem/read"


def rewritten(original: Net, known: Net | None = None) -> Net:
    """The Net with its step net rewritten by the plan for ``known``, whose reads are steady."""
    (place,) = nested_steps(known or original)
    candidates = candidates_of(place.net, CPU, segments=False, variables=place.variables)
    plan = Plan(nested=(NestedPlan(TRAIN, ("train",), candidates.within(100.0)),))
    return apply_plan(original, plan, encoded)


def refusal(original: Net, net: Net) -> str:
    with pytest.raises(CheckError) as caught:
        check(original, net)
    return caught.value.reason


def test_the_step_net_is_rewritten_and_holds():
    original = training()
    net = rewritten(original)
    body = net.op_by_name["train"].nets["body"]
    assert READ in body.op_by_name
    assert "acc_r" not in body.op_by_name["forward"].nets["body"].inputs
    check(original, net)


def test_the_plan_goes_to_json_and_back():
    original = training()
    (place,) = nested_steps(original)
    candidates = candidates_of(place.net, CPU, segments=False, variables=place.variables)
    plan = Plan(nested=(NestedPlan(TRAIN, ("train",), candidates.within(100.0)),))
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert [loop.path for loop in again.every_loop()] == [("train", "forward")]
    assert not again.changes_nothing


def test_a_read_that_may_run_before_the_write_that_the_loop_waits_for_is_refused():
    original = training()
    early = edited(rewritten(original), TRAIN, lambda body: with_op(body, READ, controls=()))
    assert refusal(original, early) == "stateful-op-doubled"


def test_a_value_that_is_not_the_same_is_refused():
    original = training()
    other = edited(rewritten(original), TRAIN, lambda body: with_op(body, "less", type="AddV2"))
    assert refusal(original, other) == "value-changed"


def test_a_mark_proves_nothing():
    original = training()
    net = rewritten(original)
    wrong = edited(net, TRAIN, lambda body: with_op(body, "state", type="Neg"))
    assert refusal(original, wrong) == "value-changed"


@pytest.mark.parametrize("drawn", [{"paced": False}, {"same": True}, {"beside": "unordered"}])
def test_a_read_of_what_may_change_meanwhile_is_refused(drawn):
    original = training(**drawn)
    net = rewritten(training())
    forced = with_op(
        original,
        "train",
        nets=net.op_by_name["train"].nets | {"cond": original.op_by_name["train"].nets["cond"]},
        attributes=net.op_by_name["train"].attributes,
    )
    if drawn == {"paced": False}:
        forced = edited(forced, TRAIN, lambda body: with_op(body, "less", controls=()))
    assert refusal(original, forced) == "stateful-op-doubled"
