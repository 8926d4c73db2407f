"""What tells a whole step, with its gradient, from a function that is differentiated later."""

import pytest

from rnnmem.analysis.tape import ends_with_gradient
from rnnmem.compiled import waits_for_gradient
from tests.handmade import const, make_net, op, while_op

F = "f[4]"
BODY = make_net(
    {"i": "i[]", "h": F},
    [const("one", 1), op("next", "AddV2", "i one", "i[]"), op("t", "Tanh", "h", F)],
    ["next", "t"],
)
LOOP = [const("zero", 0), while_op("loop", "zero x", BODY)]
FORWARD = [op("h", "Tanh", "x", F), op("loss", "Sum", "h axis", "f[]"), const("axis", 0)]
GRADIENT = [op("gradient_tape/dx", "TanhGrad", "h x", F)]
UPDATE = op("update", "AssignSubVariableOp", "v gradient_tape/dx")


@pytest.mark.parametrize(
    "ops, results, is_step",
    [
        ([], ["loss"], False),
        (GRADIENT, ["loss", "gradient_tape/dx"], True),
        ([*GRADIENT, op("same", "Identity", "gradient_tape/dx", F)], ["loss", "same"], True),
        # A penalty on a gradient is a loss like any other.
        ([*GRADIENT, op("penalty", "Square", "gradient_tape/dx", F)], ["penalty"], False),
        ([*GRADIENT, UPDATE], ["loss"], True),
    ],
    ids=["forward", "returned", "handed on", "penalty", "update"],
)
def test_a_step_returns_gradients_or_changes_variables_by_them(ops, results, is_step):
    net = make_net({"x": F, "v": "r[]"}, [*FORWARD, *LOOP, *ops], [*results, "loop:1"])
    assert ends_with_gradient(net) is is_step
    assert waits_for_gradient(net) is not is_step
