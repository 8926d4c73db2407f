"""Which reads of variables a plan takes out of the loop, on Nets drawn by hand."""

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.ir.graph import FunctionRef, Net
from rnnmem.passes.rematerialise.decision import HOISTED, LoopPlan
from rnnmem.planning.pareto import plan_net
from rnnmem.planning.plan import Plan
from tests.drawing import Drawing
from tests.read_drawings import assign, nested_reading, reading


def planned(net: Net) -> LoopPlan:
    (loop,) = plan_net(net, CPU, 100.0).loops
    return loop


def assign_in_a_branch(body: Drawing) -> None:
    branch = Drawing("branch", v="resource", x="float32")
    assign(branch, "v", "x", "deep")
    yes = body.op("Const", gives="bool", name="yes")
    nets = {"then_branch": branch.net(), "else_branch": branch.net()}
    body.op("If", yes, "v", "h", gives=(), name="if", nets=nets)


def hidden_function(body: Drawing) -> None:
    body.op("RemoteCall", gives=(), name="call", f=FunctionRef("f", b""))


def test_a_variable_that_stays_the_same_is_read_once():
    # r is no longer saved, and costs no byte
    loop = planned(reading())
    assert loop.hoisted == ("r:0",)
    assert "r:0" not in loop.saved
    (decision,) = (decision for decision in loop.residuals if decision.blob == "r:0")
    assert (decision.decision, decision.reason) == (
        HOISTED,
        "the variable does not change in the loop, read once beside it",
    )


@pytest.mark.parametrize(
    "inside",
    [
        lambda body: assign(body, "v", "h", "write"),
        assign_in_a_branch,
        lambda body: body.op("EagerPyFunc", "h", name="python"),
        hidden_function,
        lambda body: body.op("ResourceScatterAdd", "v", "i", "h", gives=(), name="scatter"),
    ],
    ids=["assign", "in a branch", "python", "function", "scatter"],
)
def test_what_may_be_written_in_the_loop_is_saved(inside):
    loop = planned(reading(inside=inside))
    assert loop.hoisted == ()
    assert "r:0" in loop.saved or loop.closed


@pytest.mark.parametrize(
    "inside",
    [
        lambda body: assign(body, "other", "h", "write"),
        lambda body: body.op("VariableShape", "v", gives="int32", name="shape"),
        lambda body: body.op("RandomUniform", body.const(0), name="random"),
    ],
    ids=["another variable", "shape", "random"],
)
def test_what_else_the_loop_does_is_no_matter(inside):
    assert planned(reading(inside=inside)).hoisted == ("r:0",)


def test_a_write_that_may_run_meanwhile():
    assert planned(reading(scheduling_edges=False)).hoisted == ()


def test_a_handle_that_is_made_here_may_be_any_variable():
    assert planned(reading(made_here=True)).hoisted == ()


def test_a_read_in_a_loop_in_a_loop():
    outer = planned(nested_reading())
    (inner,) = outer.inner
    assert inner.hoisted == ("r:0",)
    assert not inner.saved
    assert not outer.saved


def test_a_plan_with_a_hoisted_read_goes_to_json_and_back():
    plan = plan_net(reading(), CPU, 100.0)
    assert Plan.from_json(plan.to_json()) == plan
