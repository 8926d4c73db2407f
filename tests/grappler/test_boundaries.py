"""A loop that stood in a call begins with what a call hands on, so that its states' names stay."""

from rnnmem.grappler.boundaries import with_boundaries
from rnnmem.ir.editor import LoopEditor, NetEditor
from rnnmem.ir.inline import inline
from rnnmem.ir.marks import GIVEN
from tests.handmade import const, make_net, op, while_op

BODY = make_net(
    {"i": "i[]", "h": "f[4]", "x": "f[4]", "t": "r[]"},
    [
        const("one", 1),
        op("n", "AddV2", "i one", "i[]"),
        op("s", "AddV2", "h x", "f[4]"),
    ],
    ["n", "s", "x", "t"],
)
"""h ◄─ h + x; x and the table t stay."""

CALLED = make_net(
    {"x": "f[4]", "t": "r[]", "h": "f[4]"},
    [const("z", 0), op("u", "Tanh", "x", "f[4]"), while_op("loop", "z h u t", BODY)],
    ["loop:1"],
    name="called",
)
"""The loop begins with an argument of the call, with an op's result, and with a table."""


def call(name, body, inputs, kinds):
    return op(name, "StatefulPartitionedCall", inputs, kinds, nets={"f": body})


def whole(called=CALLED):
    return make_net({"a": "f[4]", "t": "r[]"}, [call("c", called, "a t a", "f[4]")], ["c"])


def loop_in(net, name):
    return net.op_by_name[name]


def test_a_loop_remembers_which_variables_a_call_gave_it():
    loop = loop_in(inline(whole()), "c/loop")
    assert loop.inputs == ("c/z", "a", "c/u", "t")
    assert loop.attributes[GIVEN] == (b"", b"c:2", b"", b"c:1")


def test_such_variables_begin_behind_a_call_of_the_same_name():
    # a ─► [c: hands on] ─► c/loop;  handles and what ops of the call wrote do not pass it
    net = with_boundaries(inline(whole()))
    boundary, loop = net.op_by_name["c"], loop_in(net, "c/loop")
    assert (boundary.type, boundary.inputs) == ("PartitionedCall", ("a",))
    assert boundary.nets["f"].inputs == boundary.nets["f"].outputs
    assert loop.inputs == ("c/z", *boundary.outputs, "c/u", "t")
    assert GIVEN not in loop.attributes
    assert net.ops.index(boundary) < net.ops.index(loop)


def test_arguments_are_handed_on_in_the_order_of_the_call():
    body = make_net({"i": "i[]", "h": "f[]", "c": "f[]"}, [], ["i", "h", "c"])
    called = make_net(
        {"p": "f[]", "q": "f[]"}, [const("z", 0), while_op("loop", "z q p", body)], ["loop:1"]
    )
    net = with_boundaries(
        inline(make_net({"a": "f[]", "b": "f[]"}, [call("c", called, "a b", "f[]")], ["c"]))
    )
    boundary = net.op_by_name["c"]
    assert boundary.inputs == ("a", "b")
    assert loop_in(net, "c/loop").inputs[1:] == boundary.outputs[::-1]


def test_the_innermost_of_nested_calls_counts():
    outer = make_net({"y": "f[4]", "t": "r[]"}, [call("in", CALLED, "y t y", "f[4]")], ["in"])
    net = with_boundaries(
        inline(make_net({"a": "f[4]", "t": "r[]"}, [call("c", outer, "a t", "f[4]")], ["c"]))
    )
    assert net.op_by_name["c/in"].inputs == ("a",)
    assert "c" not in net.op_by_name


def test_each_of_two_loops_has_a_call_of_its_own():
    ops = [const("z", 0), op("u", "Tanh", "x", "f[4]")]
    ops += [while_op("loop", "z h u t", BODY), while_op("again", "z h u t", BODY)]
    called = make_net({"x": "f[4]", "t": "r[]", "h": "f[4]"}, ops, ["loop:1"])
    net = with_boundaries(inline(whole(called)))
    assert loop_in(net, "c/loop").inputs[1] == "c:0"
    assert loop_in(net, "c/again").inputs[1] == "c_1:0"


def test_a_call_in_a_step_net_has_its_boundary_there():
    body = make_net(
        {"i": "i[]", "g": "f[4]", "t": "r[]"}, [call("c", CALLED, "g t g", "f[4]")], ["i", "c", "t"]
    )
    ops = [const("z", 0), while_op("outer", "z a t", body)]
    net = with_boundaries(inline(make_net({"a": "f[4]", "t": "r[]"}, ops, ["outer:1"])))
    inside = loop_in(net, "outer").nets["body"]
    assert inside.op_by_name["c"].inputs == ("g",)


def test_a_loop_in_no_call_stays_as_it_is():
    inputs = {"x": "f[4]", "t": "r[]", "h": "f[4]"}
    net = inline(make_net(inputs, [const("z", 0), while_op("loop", "z h x t", BODY)], ["loop:1"]))
    assert with_boundaries(net) is net


def test_variables_that_come_and_go_leave_the_others_their_names():
    net = inline(whole())
    editor = NetEditor(net)
    loop = LoopEditor(editor, editor.ops["c/loop"])
    loop.remove_variable("x")
    loop.body.rename("x", "h")
    loop.add_variable("a", "more")
    loop.finish()
    assert editor.ops["c/loop"].attributes[GIVEN] == (b"", b"c:2", b"c:1", b"")


def test_a_branch_remembers_it_like_a_loop():
    # a ─► [c: hands on] ─► c/cond, whose predicate is no argument
    passing = make_net({"x": "f[4]"}, [], ["x"])
    branch = op("cond", "If", "p x", "f[4]", nets={"then_branch": passing, "else_branch": passing})
    called = make_net({"x": "f[4]"}, [op("p", "IsFinite", "x", "z[4]"), branch], ["cond"])
    net = with_boundaries(inline(make_net({"a": "f[4]"}, [call("c", called, "a", "f[4]")], ["c"])))
    assert net.op_by_name["c"].inputs == ("a",)
    assert net.op_by_name["c/cond"].inputs == ("c/p", *net.op_by_name["c"].outputs)
