"""A loop inside an iteration that runs again, given what its variable holds: proven or refused."""

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.errors import CheckError
from rnnmem.ir.graph import Net
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import plan_net
from rnnmem.verify import check
from tests.drawing import Drawing, LoopDrawing, below, edited, encoded, with_input, with_op
from tests.loop_drawings import count, counted
from tests.read_drawings import READ, assign, with_shapes

TRIPS = 4
AGAIN = ("gradient", "body")


def ponder(*, writes: bool = False) -> Net:
    """outer { inner, 4 times { g' = tanh(g · read v) } }: each g is pushed, lists in outer.

    Args:
      writes: whether the outer loop writes the variable.
    """
    top = Drawing("top", x="float32", v="resource", other="resource")
    outer = LoopDrawing(top, "forward")
    outer.carry("i", top.const(0)), outer.carry("n", top.const(6)), outer.carry("h", "x")
    outer.carry("v", "v"), outer.carry("other", "other")
    outer.carry("lists", top.empty_list(element="variant"))
    count(outer, "i")
    inner = LoopDrawing(outer.body, "inner")
    inner.carry("k", outer.body.const(0)), inner.carry("n", outer.body.const(TRIPS))
    inner.carry("g", "h"), inner.carry("v", "v"), inner.carry("acc", outer.body.empty_list())
    count(inner, "k")
    r = inner.body.op("ReadVariableOp", "v", name="r", **READ)
    inner.next["g"] = inner.body.op("Tanh", inner.body.op("Mul", "g", r, name="m"), name="t")
    inner.next["acc"] = inner.body.push("acc", "g", name="push_g")
    done = inner.close(counted("k", "n"), parallel_iterations=10)
    outer.next["h"] = done["g"]
    outer.next["lists"] = outer.body.push("lists", done["acc"], name="push_list")
    if writes:
        assign(outer.body, "v", "h", "write")
    done = outer.close(counted("i", "n"), parallel_iterations=10)
    back = LoopDrawing(top, "gradient")
    back.carry("j", top.const(0)), back.carry("n", done["i"])
    back.carry("d", top.const(1.0, "float32")), back.carry("lists", done["lists"])
    count(back, "j")
    back.next["lists"], held = back.body.pop("lists", name="pop_list", element="variant")
    inner = LoopDrawing(back.body, "inner_gradient")
    inner.carry("k", back.body.const(0)), inner.carry("n", back.body.const(TRIPS))
    inner.carry("d", "d"), inner.carry("acc", held)
    count(inner, "k")
    inner.next["acc"], again = inner.body.pop("acc", name="pop_g")
    inner.next["d"] = inner.body.op("Mul", "d", again, name="next_d")
    back.next["d"] = inner.close(counted("k", "n"), parallel_iterations=10)["d"]
    results = done["h"], back.close(counted("j", "n"), parallel_iterations=10)["d"]
    return with_shapes(top.net(*results, control_outputs=("forward",)))


ORIGINAL = ponder()
PLAN = plan_net(ORIGINAL, CPU, 100.0, segments=False)


def rewritten() -> Net:
    return apply_plan(ORIGINAL, PLAN, encoded)


def clone_of(net: Net) -> str:
    (name,) = (op.name for op in below(net, *AGAIN).ops if op.name.endswith("again/inner"))
    return name


def refusal(net: Net) -> str:
    with pytest.raises(CheckError) as caught:
        check(ORIGINAL, net)
    return caught.value.reason


def test_the_loop_runs_again_from_the_state_alone():
    (outer,) = PLAN.loops
    assert "inner" in outer.recomputed and outer.saved == ("h",)
    net = rewritten()
    clone = below(net, *AGAIN).op_by_name[clone_of(net)]
    assert clone.type == "StatelessWhile"
    assert [op.name for op in net.ops if op.type == "ReadVariableOp"] == ["forward/rnnmem/read"]
    check(ORIGINAL, net)


def test_its_list_is_weighed_with_all_its_elements():
    (outer,) = plan_net(ORIGINAL, CPU, 1.0, segments=False).loops
    assert outer.bytes in (0, TRIPS * 4 * 64 * 64)
    (outer,) = PLAN.loops
    assert outer.bytes == 4 * 64 * 64


def test_another_trip_count_is_refused():
    net = rewritten()
    body = below(net, *AGAIN)
    place = ORIGINAL.op_by_name["forward"].nets["body"].op_by_name["inner"].inputs.index("h")
    inputs = body.op_by_name[clone_of(net)].inputs
    assert body.producer[inputs[1]].type == "Const" and place == 2
    other = edited(net, AGAIN, lambda one: with_input(one, clone_of(net), 1, inputs[0]))
    assert refusal(other)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: with_op(body, "t", type="Sin"),
        lambda body: with_input(body, "m", 1, "g"),
        lambda body: with_input(body, "push_g", 1, "t:0"),
    ],
    ids=["another op", "not the variable", "another blob pushed"],
)
def test_another_step_is_refused(change):
    net = rewritten()
    path = (*AGAIN, clone_of(net), "body")
    assert refusal(edited(net, path, change)) == "value-changed"


def test_the_value_of_another_variable_is_refused():
    assert refusal(with_input(rewritten(), "forward/rnnmem/read", 0, "other"))


def test_a_loop_that_reads_what_may_have_changed_since_runs_once():
    net = ponder(writes=True)
    (outer,) = plan_net(net, CPU, 100.0, segments=False).loops
    assert "inner" not in outer.recomputed
