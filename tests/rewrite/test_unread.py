"""What nobody reads of gradient loops goes, where TensorFlow prunes it too."""

import pytest

from rnnmem.check import check
from rnnmem.rewrite.unread import without_unread
from tests.handmade import edited, rnn


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
    found = without_unread(net)
    assert variables(net, "loop") - variables(found, "loop") == {"acc_h"}
    assert variables(net, "gradient") - variables(found, "gradient") == {"acc_h"}
    assert types(found, "loop").count("TensorListPushBack") == 2
    assert types(found, "gradient").count("TensorListPopBack") == 2
    check(net, found)


def test_a_gradient_that_nobody_asks_for_goes_with_what_it_alone_reads():
    net = without_the_gradient_of_the_weight()
    found = without_unread(net)
    assert variables(net, "gradient") - variables(found, "gradient") == {"total", "acc_h"}
    assert variables(net, "loop") - variables(found, "loop") == {"acc_h"}
    assert "AddV2" in types(found, "gradient") and types(found, "gradient").count("MatMul") == 1
    check(net, found)


def test_an_effect_in_a_gradient_loop_stays_with_all_that_it_needs():
    net = edited(without_the_gradient_of_the_weight(), "sum", type="NobodyKnowsIt")
    assert without_unread(net) is net


def test_where_all_is_read_the_net_is_the_same():
    net = rnn()
    assert without_unread(net) is net


@pytest.mark.parametrize("awaited", ["loop", "gradient"])
def test_a_loop_that_is_waited_for_keeps_its_lists(awaited):
    net = popped_for_nobody().replace(control_outputs=(awaited,))
    assert without_unread(net) is net


def test_where_the_gradient_loop_is_waited_for_all_of_it_stays():
    net = without_the_gradient_of_the_weight().replace(control_outputs=("gradient",))
    assert without_unread(net) is net


def test_of_a_forward_loop_that_is_waited_for_the_gradient_still_loses_its_variable():
    net = without_the_gradient_of_the_weight().replace(control_outputs=("loop",))
    found = without_unread(net)
    assert variables(found, "loop") == variables(net, "loop")
    assert variables(net, "gradient") - variables(found, "gradient") == {"total"}
    check(net, found)


def test_a_list_that_somebody_else_reads_stays():
    net = popped_for_nobody()
    assert without_unread(net.replace(outputs=(*net.outputs, "loop:3"))).outputs[-1] == "loop:3"
