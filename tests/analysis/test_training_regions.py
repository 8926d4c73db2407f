"""Step nets that are steps by themselves, and the variables that one run of them sees alone."""

import pytest

from rnnmem.analysis.training_regions import nested_steps, step_net, with_step_net
from rnnmem.ir.marks import IN_PLACE
from tests.handmade import make_net, op, rnn
from tests.nested_step_drawings import TRAIN, training


def test_a_training_loop_is_a_nested_step():
    (place,) = nested_steps(training())
    assert place.path == TRAIN
    assert place.net.name == "step" and place.has_loops
    assert place.variables == {"v", "other"}


def test_a_branch_is_a_nested_step():
    kinds = {name: "f[64,64]" for name in rnn().inputs}
    other = make_net(kinds, [op("y", "Tanh", "x", "f[64,64]")], ["y", "y", "y"])
    net = make_net(
        {"taken": "z[]", **kinds},
        [
            op(
                "if",
                "If",
                "taken x w",
                "f[64,64] f[64,64] f[64,64]",
                nets={"then_branch": rnn(), "else_branch": other},
            )
        ],
        ["if:0"],
    )
    assert [place.path for place in nested_steps(net)] == [("if", "then_branch")]


def test_pairs_of_the_outermost_net_are_no_nested_step():
    assert nested_steps(rnn()) == ()


@pytest.mark.parametrize(
    ("drawn", "known"),
    [
        ({"beside": "late"}, {"v", "other"}),
        ({"beside": "unordered"}, {"other"}),
        ({"paced": False}, {"other"}),
        ({"same": True}, set()),
    ],
)
def test_a_variable_that_others_may_write_meanwhile_is_not_known(drawn, known):
    (place,) = nested_steps(training(**drawn))
    assert place.variables == known


def test_a_step_net_is_replaced_and_its_op_marked():
    net = training()
    new = step_net(net, TRAIN).replace(name="new")
    changed = with_step_net(net, TRAIN, new)
    assert step_net(changed, TRAIN) is new
    assert IN_PLACE in changed.op_by_name["train"].attributes
    assert step_net(net, TRAIN).name == "step"
