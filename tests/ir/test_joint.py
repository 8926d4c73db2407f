"""A function and its gradient, joined into one Net and split again."""

import pytest

from rnnmem.ir.awaited import with_awaited_results
from rnnmem.ir.joint import join, split
from rnnmem.ir.marks import GIVEN
from tests.handmade import const, make_net, op, while_op

COUNTING = make_net(
    {"i": "i[]", "h": "f[4]"},
    [const("one", 1), op("next", "AddV2", "i one", "i[]"), op("new", "Tanh", "h", "f[4]")],
    ["next", "new"],
)


def forward(*, ends_with_the_loop: bool):
    """h = loop(x); something is held that nobody reads, and must run all the same."""
    ops = [
        const("zero", 0),
        while_op("loop", "zero x", COUNTING),
        op("held", "Identity", "loop:0", "i[]"),
        op("last", "Exp", "loop:1", "f[4]"),
    ]
    result = "loop:1" if ends_with_the_loop else "last"
    return make_net({"x": "f[4]"}, ops, [result]).replace(control_outputs=("held",))


BACKWARD = make_net({"given": "f[4]", "y": "f[4]"}, [op("d", "Mul", "given y", "f[4]")], ["d"])


def test_what_was_joined_is_split_again():
    net = forward(ends_with_the_loop=False)
    halves = split(join(net, BACKWARD, {"y": "last"}), inputs=1, outputs=1)
    handing_on = {"loop/awaited_0001"}
    assert {one.name for one in halves.forward.ops} - handing_on == {one.name for one in net.ops}
    assert halves.forward.outputs == ("last", "last")
    assert halves.exchanged == ("last",)
    assert [one.type for one in halves.backward.ops] == ["Mul"]


def test_the_gradient_has_its_own_names_again():
    # nobody calls it by our name: what its loop begins with is no argument of a call
    ops = [const("gradients/zero", 0), while_op("gradients/loop", "gradients/zero given", COUNTING)]
    backward = make_net({"given": "f[4]", "y": "f[4]"}, ops, ["gradients/loop:1"])
    joint = join(forward(ends_with_the_loop=False), backward, {"y": "last"})
    assert joint.op_by_name["rnnmem_backward/gradients/loop"].attributes[GIVEN][1]
    half = split(joint, inputs=1, outputs=1).backward
    assert [one.name for one in half.ops] == ["gradients/zero", "gradients/loop"]
    assert half.outputs == ("gradients/loop:1",)
    assert half.op_by_name["gradients/loop"].inputs[0] == "gradients/zero"
    assert GIVEN not in half.op_by_name["gradients/loop"].attributes


def test_names_of_what_the_function_hands_over_are_taken():
    # a step that takes a gradient itself, and whose gradient is taken again
    net = make_net({"x": "f[4]"}, [op("gradients/sum", "Exp", "x", "f[4]")], ["gradients/sum"])
    ops = [
        op("gradients/sum", "Mul", "given y", "f[4]"),
        op("gradients/end", "Neg", "gradients/sum", "f[4]"),
    ]
    backward = make_net({"given": "f[4]", "y": "f[4]"}, ops, ["gradients/end"])
    half = split(join(net, backward, {"y": "gradients/sum"}), inputs=1, outputs=1).backward
    assert half.inputs[1] == "gradients/sum"
    product, end = half.ops
    assert end.name == "gradients/end"
    assert end.inputs == product.outputs != ("gradients/sum",)


@pytest.mark.parametrize("ends_with_the_loop", [True, False])
def test_who_reads_a_loop_waits_for_what_is_only_to_run(ends_with_the_loop):
    # a call of this half is inlined, and what only its control outputs need is pruned
    net = with_awaited_results(forward(ends_with_the_loop=ends_with_the_loop))
    read = net.outputs[0] if ends_with_the_loop else net.op_by_name["last"].inputs[0]
    result = net.producer[read]
    assert (result.type, result.inputs, result.controls) == ("Identity", ("loop:1",), ("held",))
    assert net.blobs[read].shape == (4,)
    assert net.op_by_name["held"].inputs == ("loop:0",)
