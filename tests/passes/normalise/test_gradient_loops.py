"""What nobody reads of gradient loops goes, where TensorFlow prunes it too."""

import pytest

from rnnmem.ir.marks import IN_PLACE
from rnnmem.passes.normalise.decision import dead_code
from rnnmem.passes.normalise.gradient_loops import without_dead_gradients
from rnnmem.verify import check
from tests.handmade import edited, make_net, op, rnn
from tests.loop_drawings import nested


def variables(net, name):
    """The arguments of a loop's step net."""
    return set(net.op_by_name[name].nets["body"].inputs)


def types(net, name):
    return [op.type for op in net.op_by_name[name].nets["body"].ops]


def popped_for_nobody():
    """The gradient of the weight no longer reads the state."""
    return edited(rnn(), "e", inputs=("d", "d"))


def without_the_gradient_of_the_weight():
    net = rnn()
    return net.replace(outputs=("loop:1", "gradient:1"))


def test_a_list_that_is_popped_for_nobody_goes_from_both_loops():
    net = popped_for_nobody()
    found = without_dead_gradients(net)
    assert variables(net, "loop") - variables(found, "loop") == {"acc_h"}
    assert variables(net, "gradient") - variables(found, "gradient") == {"acc_h"}
    assert types(found, "loop").count("TensorListPushBack") == 2
    assert types(found, "gradient").count("TensorListPopBack") == 2
    check(net, found)


def test_a_plan_can_tell_what_went():
    net = popped_for_nobody()
    told = {one.path: one for one in dead_code(net, without_dead_gradients(net))}
    ops = {path: len(one.ops) for path, one in told.items()}
    assert ops == {(): 1, ("loop", "body"): 1, ("gradient", "body"): 1}
    assert told["gradient", "body"].sentence == "gradient/body: 1 op that nobody reads taken out"
    assert dead_code(net, net) == ()


def test_a_gradient_that_nobody_asks_for_goes_with_what_it_alone_reads():
    net = without_the_gradient_of_the_weight()
    found = without_dead_gradients(net)
    assert variables(net, "gradient") - variables(found, "gradient") == {"total", "acc_h"}
    assert variables(net, "loop") - variables(found, "loop") == {"acc_h"}
    assert "AddV2" in types(found, "gradient") and types(found, "gradient").count("MatMul") == 1
    check(net, found)


def test_an_effect_in_a_gradient_loop_stays_with_all_that_it_needs():
    net = edited(without_the_gradient_of_the_weight(), "sum", type="NobodyKnowsIt")
    assert without_dead_gradients(net) is net


def test_where_all_is_read_the_net_is_the_same():
    net = rnn()
    assert without_dead_gradients(net) is net


@pytest.mark.parametrize("awaited", ["loop", "gradient"])
def test_a_loop_that_is_waited_for_keeps_its_lists(awaited):
    net = popped_for_nobody().replace(control_outputs=(awaited,))
    assert without_dead_gradients(net) is net


def test_where_the_gradient_loop_is_waited_for_all_of_it_stays():
    net = without_the_gradient_of_the_weight().replace(control_outputs=("gradient",))
    assert without_dead_gradients(net) is net


def test_of_a_forward_loop_that_is_waited_for_the_gradient_still_loses_its_variable():
    net = without_the_gradient_of_the_weight().replace(control_outputs=("loop",))
    found = without_dead_gradients(net)
    assert variables(found, "loop") == variables(net, "loop")
    assert variables(net, "gradient") - variables(found, "gradient") == {"total"}
    check(net, found)


def test_a_list_that_somebody_else_reads_stays():
    net = popped_for_nobody()
    assert (
        without_dead_gradients(net.replace(outputs=(*net.outputs, "loop:3"))).outputs[-1]
        == "loop:3"
    )


def test_a_stateless_op_that_only_the_registry_knows_goes_too():
    net = edited(without_the_gradient_of_the_weight(), "sum", type="NobodyKnowsIt", stateless=True)
    found = without_dead_gradients(net)
    assert variables(net, "gradient") - variables(found, "gradient") == {"total", "acc_h"}
    assert "NobodyKnowsIt" not in types(found, "gradient")


def inside(net, *path):
    """A loop in the bodies of others."""
    for name in path[:-1]:
        net = net.op_by_name[name].nets["body"]
    return net, path[-1]


def without_the_product_inside():
    """The gradient of the inner loop no longer reads the sine."""
    net = nested()
    outer = net.op_by_name["gradient"]
    body = edited_in_loop(outer.nets["body"], "inner_gradient", "by_s", inputs=("d", "d"))
    return edited(net, "gradient", nets={**outer.nets, "body": body})


def edited_in_loop(net, loop, name, **fields):
    op = net.op_by_name[loop]
    ops = tuple(one.replace(**fields) if one.name == name else one for one in op.nets["body"].ops)
    return edited(net, loop, nets={**op.nets, "body": op.nets["body"].replace(ops=ops)})


def test_a_list_of_lists_goes_where_the_inner_gradient_does_not_read_it():
    net = without_the_product_inside()
    found = without_dead_gradients(net)
    gone = inside(net, "gradient", "inner_gradient"), inside(found, "gradient", "inner_gradient")
    assert variables(*gone[0]) - variables(*gone[1]) == {"acc_s"}
    for loop in ("forward", "gradient"):
        assert variables(net, loop) - variables(found, loop) == {"acc_s"}
    check(net, found)


def test_what_is_read_in_inner_loops_stays():
    net = nested()
    assert without_dead_gradients(net) is net


def test_in_a_branch_that_trains_it_goes_too():
    kinds = {name: "f[64,64]" for name in rnn().inputs}
    step = popped_for_nobody()
    other = make_net(kinds, [op("y", "Tanh", "x", "f[64,64]")], ["y", "y", "y"])
    drawn = op(
        "if",
        "If",
        "taken x w",
        "f[64,64] f[64,64] f[64,64]",
        nets={"then_branch": step, "else_branch": other},
    )
    net = make_net({"taken": "z[]", **kinds}, [drawn], ["if:0", "if:1", "if:2"])
    found = without_dead_gradients(net).op_by_name["if"]
    assert variables(step, "loop") - variables(found.nets["then_branch"], "loop") == {"acc_h"}
    assert found.nets["else_branch"] is other
    assert IN_PLACE not in found.attributes, "the verifier compares with it as it is now"
