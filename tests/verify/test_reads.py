"""When the checker takes a read beside a loop for the read in it, and when it refuses."""

import pytest

from rnnmem.analysis.cost import CPU
from rnnmem.errors import CheckError
from rnnmem.ir.graph import DType, Net
from rnnmem.planning.apply import apply_plan
from rnnmem.planning.pareto import plan_net
from rnnmem.verify import check
from tests.drawing import Drawing, edited, encoded, with_input, with_more, with_op
from tests.read_drawings import READ, assign, nested_reading, reading

R = "forward/rnnmem/read"
ORIGINAL = reading()
# Only the read is judged here; edges that name ops of one Net would not fit its variations.
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
    original = reading(turns=False)
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


def test_what_the_gradient_reads_is_judged_by_value():
    # the gradient has x where it should have what R gives
    net = rewritten()
    inputs = tuple("x" if blob == f"{R}:0" else blob for blob in net.op_by_name["gradient"].inputs)
    assert refusal(with_op(net, "gradient", inputs=inputs)) == "value-changed"


LOOKUP = {"Tindices": DType("int32"), **READ}


def looked_up(again: str | None = None, wait: tuple[str, ...] = (), turns: bool = True) -> Net:
    """write ─► Gather ─► Tanh, then a sum with rows that are looked up again ─► late write.

    ``again``: the handle that the second lookup has; None: there is none, the rows are kept.
    """
    top = Drawing("top", x="float32", rows="int32", others="int32", v="resource", other="resource")
    assign(top, "v", "x", "write")
    first = top.op("ResourceGather", "v", "rows", name="g", controls=("write",) * turns, **LOOKUP)
    once = top.op("Tanh", first, name="once")
    second = first
    if again is not None:
        second = top.op("ResourceGather", again, "rows", name="g2", controls=wait, **LOOKUP)
    total = top.op("AddV2", once, second, name="total")
    assign(top, "v", total, "late")
    return top.net(total).replace(control_outputs=("write", "late"))


def test_rows_looked_up_again_before_anybody_writes():
    check(looked_up(), looked_up("v", ("write",)))


@pytest.mark.parametrize(
    ("original", "net"),
    [
        (looked_up(), looked_up("v")),
        (looked_up(), looked_up("other", ("write",))),
        (looked_up(turns=False), looked_up("v", ("write",), turns=False)),
    ],
    ids=["before the write", "of another variable", "where no turn is known"],
)
def test_rows_that_may_be_others(original, net):
    assert refusal(net, original) == "stateful-op-doubled"


def test_other_rows():
    net = with_input(looked_up("v", ("write",)), "g2", 1, "others")
    assert refusal(net, looked_up()) == "value-changed"
