"""What results wait for, where control outputs are added."""

from rnnmem.ir.awaited import with_gates
from tests.handmade import make_net, op


def gated(control_outputs):
    """A result that waits for a gate, which waits for the control outputs."""
    ops = [
        op("loop", "Exp", "x", "f[4]"),
        op("held", "Neg", "loop", "f[4]"),
        op("gate", "NoOp", controls=("loop",)),
        op("result", "Identity", "x", "f[4]", controls=("gate",)),
    ]
    net = make_net({"x": "f[4]"}, ops, ["result"])
    return net.replace(control_outputs=control_outputs)


def test_what_results_wait_for_is_a_control_output_where_others_are_added():
    original, more = gated(("loop",)), gated(("loop", "held"))
    assert with_gates(more, original).control_outputs == ("gate", "loop", "held")


def test_nothing_is_added_where_no_other_control_output_is():
    original = gated(("loop",))
    assert with_gates(original, original) is original
