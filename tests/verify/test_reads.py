"""When the checker takes a read beside a loop for the read in it, and when it refuses."""

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.errors import CheckError
from rnnmem.ir import parse
from rnnmem.ir.graph import DType, Net
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import plan_net
from rnnmem.verify import check
from tests.drawing import Drawing, edited, encoded, with_input, with_more, with_op, without_op
from tests.read_drawings import READ, assign, nested_reading, reading

R = "forward/rnnmem/read"
ORIGINAL = reading()
# Only the read is verified here; edges that name ops of one Net would not fit its variations.
PLAN = plan_net(ORIGINAL, CPU, 100.0, segments=False).having(gradient_start=())


def rewritten(net: Net = ORIGINAL) -> Net:
    """The Net under the plan for a variable that stays the same, whether it does or not."""
    return apply_plan(net, PLAN, encoded)


def refusal(net: Net, original: Net = ORIGINAL) -> str:
    with pytest.raises(CheckError) as caught:
        check(original, net)
    return caught.value.reason


def waiting(net: Net, name: str, *, no_longer_for: str) -> Net:
    controls = net.op_by_name[name].controls
    assert no_longer_for in controls
    return with_op(net, name, controls=tuple(one for one in controls if one != no_longer_for))


def test_one_read_in_its_turn():
    # before ──► R ──► after, as before ──► forward ──► after
    net = rewritten()
    assert net.op_by_name[R].controls == ("before",)
    assert R in net.op_by_name["after"].controls
    assert R in net.control_outputs
    assert "acc_r" not in net.op_by_name["forward"].nets["body"].inputs
    check(ORIGINAL, net)


def test_what_the_data_implies_needs_no_edge():
    # R ──► gradient ──► after
    original = reading(updated=True)
    net = apply_plan(original, plan_net(original, CPU, 100.0, segments=False), encoded)
    assert net.op_by_name["after"].controls == ("forward",)
    check(original, net)


def test_two_gradient_loops_share_one_read():
    original = reading(gradients=2)
    net = apply_plan(original, plan_net(original, CPU, 100.0, segments=False), encoded)
    assert sum(op.type == "ReadVariableOp" for op in net.ops) == 1
    check(original, net)


def test_a_read_of_a_loop_in_a_loop_stands_outside_both():
    original = nested_reading()
    net = apply_plan(original, plan_net(original, CPU, 100.0, segments=False), encoded)
    assert [op.name for op in net.ops if op.type == "ReadVariableOp"] == [R]
    check(original, net)


def test_a_read_that_does_not_wait_for_the_write_before():
    assert refusal(waiting(rewritten(), R, no_longer_for="before")) == "stateful-op-doubled"


def test_a_read_that_the_write_after_does_not_wait_for():
    assert refusal(waiting(rewritten(), "after", no_longer_for=R)) == "stateful-op-doubled"


def test_a_read_after_the_write_after():
    net = waiting(rewritten(), "after", no_longer_for=R)
    assert refusal(with_op(net, R, controls=("before", "after"))) == "stateful-op-doubled"


def branch(body: Drawing) -> None:
    inner = Drawing("branch", v="resource", x="float32")
    assign(inner, "v", "x", "deep")
    nets = {"then_branch": inner.net(), "else_branch": inner.net()}
    body.op("If", body.op("Const", gives="bool"), "v", "h", gives=(), name="if", nets=nets)


@pytest.mark.parametrize(
    "inside",
    [
        lambda body: assign(body, "v", "h", "write"),
        branch,
        lambda body: body.op("EagerPyFunc", "h", name="python"),
    ],
    ids=["assign", "in a branch", "python"],
)
def test_a_read_of_what_the_loop_writes(inside):
    original = reading(inside=inside)
    assert refusal(rewritten(original), original) == "stateful-op-doubled"


def test_a_read_where_a_write_may_run_meanwhile():
    original = reading(scheduling_edges=False)
    net = rewritten(original)
    assert refusal(net, original) == "stateful-op-doubled"
    ordered = with_op(with_op(net, "before", controls=()), R, controls=("before",))
    ordered = with_op(ordered, "forward", controls=("before",))
    ordered = with_op(ordered, "after", controls=("forward", R))
    assert refusal(ordered, original) == "stateful-op-doubled"


def test_a_read_of_a_handle_that_may_be_any_variables():
    original = reading(made_here=True)
    assert refusal(rewritten(original), original) == "stateful-op-doubled"


def test_a_read_of_another_variable():
    assert refusal(with_input(rewritten(), R, 0, "other")) == "stateful-op-doubled"


@pytest.mark.parametrize(
    "changes",
    [{"device": "/device:GPU:0"}, {"attributes": {"dtype": DType("float32"), "more": 1}}],
    ids=["device", "attribute"],
)
def test_a_read_of_another_sign(changes):
    assert refusal(with_op(rewritten(), R, **changes)) == "stateful-op-doubled"


def test_a_read_more_in_a_step_net():
    def more(body: Net) -> Net:
        return with_more(body, lambda draw: draw.op("ReadVariableOp", "v", name="r2", **READ))

    assert refusal(edited(ORIGINAL, ("forward", "body"), more)) == "stateful-op-doubled"


def test_a_clone_of_another_op_than_a_read():
    net = with_more(rewritten(), lambda draw: assign(draw, "other", "x", "more"))
    assert refusal(net) == "stateful-op-doubled"


def test_what_the_gradient_reads_is_verified_by_value():
    # the gradient has x where it should have what R gives
    net = rewritten()
    inputs = tuple("x" if blob == f"{R}:0" else blob for blob in net.op_by_name["gradient"].inputs)
    assert refusal(with_op(net, "gradient", inputs=inputs)) == "value-changed"


LOOKED_UP = """
net top(x float32, rows int32, others int32, v resource, other resource) -> (total)
    wants(write, late) {
  AssignVariableOp(v, x) as write
  g float32 = ResourceGather(v, rows) with {Tindices=type int32} after(write)
  once float32 = Tanh(g)
  again float32 = ResourceGather(v, rows) with {Tindices=type int32} after(write)
  total float32 = AddV2(once, again)
  AssignVariableOp(v, total) as late
}
"""
AGAIN = parse(LOOKED_UP)
ROWS = without_op(with_input(AGAIN, "total", 1, "g"), "again")


def test_rows_looked_up_again_before_anybody_writes():
    check(ROWS, AGAIN)


def test_rows_that_may_be_others():
    early = with_op(AGAIN, "again", controls=())
    assert refusal(early, ROWS) == "stateful-op-doubled"
    of_another = with_input(AGAIN, "again", 0, "other")
    assert refusal(of_another, ROWS) == "stateful-op-doubled"


def test_rows_where_no_turn_is_known():
    apart = with_op(ROWS, "g", controls=())
    assert refusal(with_op(AGAIN, "g", controls=()), apart) == "stateful-op-doubled"


def test_other_rows():
    assert refusal(with_input(AGAIN, "again", 1, "others"), ROWS) == "value-changed"


TAKEN = parse(
    LOOKED_UP.replace(
        "again float32 = ResourceGather(v, rows) with {Tindices=type int32} after(write)",
        """whole float32 = ReadVariableOp(v) after(write)
  again float32 = Gather(whole, rows)""",
    )
)


def test_rows_taken_of_the_whole():
    check(ROWS, TAKEN)
    assert refusal(with_input(TAKEN, "again", 1, "others"), ROWS) == "value-changed"
    assert refusal(with_op(TAKEN, "whole", controls=()), ROWS) == "stateful-op-doubled"
    assert refusal(with_input(TAKEN, "whole", 0, "other"), ROWS) == "stateful-op-doubled"
