"""A function and its gradient, joined into one Net and split again."""

import pytest

from rnnmem.ir.awaited import with_awaited_results
from rnnmem.ir.editor import NetEditor
from rnnmem.ir.joint import await_in_gradient, join, split
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


def joint_with_a_list(reading="loop:1"):
    """A loop that hands out a list, and a gradient with a loop that is given what is read."""
    ops = [const("one", 1), op("next", "AddV2", "i one", "i[]"), op("new", "Tanh", "h", "f[4]")]
    body = make_net({"i": "i[]", "h": "f[4]", "list": "v[]"}, ops, ["next", "new", "list"])
    start = [const("zero", 0), op("none", "EmptyTensorList", "", "v[]")]
    loop = while_op("loop", "zero x none", body)
    net = make_net({"x": "f[4]"}, [*start, loop, op("y", "Exp", "x", "f[4]")], ["loop:1", "y"])
    backward = make_net(
        {"given": "f[4]", "read": "f[4]"},
        [const("zero", 0), while_op("back", "zero read", COUNTING)],
        ["back:1"],
    )
    return join(net, backward, {"read": reading})


def test_a_loop_of_the_gradient_waits_for_a_list_of_the_one_that_it_reads():
    editor = NetEditor(joint_with_a_list())
    assert await_in_gradient(editor, ["loop:2"]) == []
    halves = split(editor.net(), inputs=1, outputs=2)
    assert set(halves.exchanged) == {"loop:1", "loop:2"}
    back = next(one for one in halves.backward.ops if one.type == "While")
    awaiting = halves.backward.producer[back.inputs[1]]
    (held,) = (halves.backward.op_by_name[name] for name in awaiting.controls)
    assert awaiting.inputs == ("loop:1",)
    assert held.inputs == ("loop:2",)


def test_a_list_whose_loop_the_gradient_does_not_read_is_left():
    editor = NetEditor(joint_with_a_list(reading="y"))
    assert await_in_gradient(editor, ["loop:2"]) == ["loop:2"]
    assert editor.net().ops == joint_with_a_list(reading="y").ops


@pytest.mark.parametrize("prunable", [True, False])
def test_what_results_wait_for_is_pruned_with_them_where_it_may_be(prunable):
    net = with_awaited_results(forward(ends_with_the_loop=True), prunable=prunable)
    assert net.producer[net.outputs[0]].controls == ("held",)
    assert net.control_outputs == (() if prunable else ("held",))
