"""A called function's ops take the place of the call, and run when they would have run."""

import pytest

from rnnmem.ir.inline import inline, is_open_call
from rnnmem.ir.order import topological
from tests.handmade import const, make_net, op, while_op

DOUBLE = make_net({"a": "f[]"}, [op("sum", "AddV2", "a a", "f[]")], ["sum"], name="double")


def call(name, body, inputs="", kinds="", **fields):
    return op(name, "StatefulPartitionedCall", inputs, kinds, nets={"f": body}, **fields)


def names(net):
    return [op.name for op in net.ops]


def waits(net):
    """Op name -> what it waits for, where it waits for something."""
    return {op.name: set(op.controls) for op in net.ops if op.controls}


def reads(net, name):
    return net.op_by_name[name].inputs


def test_the_body_stands_where_the_call_stood():
    # x ─► [double: sum = a + a] ─► y ─► Neg
    net = inline(
        make_net({"x": "f[]"}, [call("y", DOUBLE, "x", "f[]"), op("n", "Neg", "y", "f[]")], ["n"])
    )
    assert names(net) == ["y/sum", "n"]
    assert reads(net, "y/sum") == ("x", "x")
    assert reads(net, "n") == ("y/sum",)


def test_calls_in_calls_go_as_deep_as_they_are():
    # x ─► [[double] ─► double] ─► y
    quadruple = make_net(
        {"b": "f[]"},
        [call("one", DOUBLE, "b", "f[]"), call("two", DOUBLE, "one", "f[]")],
        ["two"],
    )
    net = inline(make_net({"x": "f[]"}, [call("y", quadruple, "x", "f[]")], ["y", "y"]))
    assert names(net) == ["y/one/sum", "y/two/sum"]
    assert reads(net, "y/two/sum") == ("y/one/sum", "y/one/sum")
    assert net.outputs == ("y/two/sum", "y/two/sum")


def test_a_result_that_is_an_argument_is_the_callers_blob():
    # swap(a, b) = (b, a)
    swap = make_net({"a": "f[]", "b": "f[]"}, [], ["b", "a"])
    net = inline(
        make_net(
            {"x": "f[]", "y": "f[]"},
            [call("s", swap, "x y", "f[] f[]"), call("t", swap, "s:0 s:1", "f[] f[]")],
            ["s:0", "t:0", "t:1"],
        )
    )
    assert net.ops == ()
    assert net.outputs == ("y", "x", "y")


def test_calls_inside_step_nets_are_inlined():
    body = make_net(
        {"i": "i[]", "h": "f[]"},
        [const("one", 1), op("n", "AddV2", "i one", "i[]"), call("c", DOUBLE, "h", "f[]")],
        ["n", "c"],
    )
    net = make_net({"x": "f[]"}, [const("z", 0), while_op("loop", "z x", body)], ["loop:1"])
    inner = inline(net).op_by_name["loop"].nets["body"]
    assert names(inner) == ["one", "n", "c/sum"]
    assert inner.outputs == ("n", "c/sum")


def test_what_waited_for_the_call_waits_for_its_effects():
    # call { print } ──control──► after;   the call as a control output
    body = make_net({"a": "f[]"}, [op("print", "PrintV2", "a")], [], control_outputs=("print",))
    net = inline(
        make_net(
            {"x": "f[]"},
            [call("c", body, "x"), op("after", "NoOp", controls=("c",))],
            [],
            control_outputs=("c",),
        )
    )
    assert waits(net) == {"after": {"c/print"}}
    assert net.control_outputs == ("c/print",)


def test_effects_of_calls_in_a_row_keep_their_order_through_an_empty_body():
    # print ─► [nothing] ─► [print] : the second print waits for the first
    printing = make_net({"a": "f[]"}, [op("p", "PrintV2", "a")], [], control_outputs=("p",))
    nothing = make_net({}, [], [])
    net = inline(
        make_net(
            {"x": "f[]"},
            [
                call("first", printing, "x"),
                call("empty", nothing, controls=("first",)),
                call("second", printing, "x", controls=("empty",)),
            ],
            [],
            control_outputs=("second",),
        )
    )
    waited, wanted = set(), ["second/p"]
    while wanted:
        found = net.op_by_name[wanted.pop()]
        before = {
            *found.controls,
            *(net.producer[b].name for b in found.inputs if b in net.producer),
        }
        waited |= before
        wanted += before
    assert "first/p" in waited


def test_what_the_call_waited_for_its_arguments_wait_for():
    # before ──control──► call: every op of the body must come after, even one without inputs
    body = make_net(
        {"a": "f[]"},
        [op("read", "ReadVariableOp", "a", "f[]"), op("alone", "RandomUniform", "", "f[]")],
        ["read", "alone"],
    )
    net = inline(
        make_net(
            {"x": "f[]"},
            [op("before", "NoOp"), call("c", body, "x", "f[] f[]", controls=("before",))],
            ["c:0", "c:1"],
        )
    )
    assert waits(net)["c/enter"] == {"before"}
    gate = net.producer[reads(net, "c/read")[0]]
    assert (gate.type, gate.inputs, gate.controls) == ("Identity", ("x",), ("c/enter",))
    assert waits(net)["c/alone"] == {"c/enter"}


def test_a_call_that_is_two_deep_keeps_the_gates_in_order():
    inner = make_net({}, [op("r", "RandomUniform", "", "f[]")], ["r"], control_outputs=("r",))
    outer = make_net({}, [call("in", inner, "", "f[]")], ["in"], control_outputs=("in",))
    net = inline(
        make_net(
            {}, [op("before", "NoOp"), call("out", outer, "", "f[]", controls=("before",))], []
        )
    )
    order = [one.name for one in topological(reversed(net.ops))]
    assert order.index("before") < order.index("out/in/r")


def test_two_calls_of_one_body_do_not_meet():
    net = inline(
        make_net(
            {"x": "f[]"},
            [call("c", DOUBLE, "x", "f[]"), call("d", DOUBLE, "c", "f[]")],
            ["d"],
        )
    )
    assert names(net) == ["c/sum", "d/sum"]


def test_a_name_that_is_taken_is_not_taken_again():
    # an op called c/sum is there already
    net = inline(
        make_net(
            {"x": "f[]"},
            [op("c/sum", "Neg", "x", "f[]"), call("c", DOUBLE, "c/sum", "f[]")],
            ["c"],
        )
    )
    assert len(set(names(net))) == len(net.ops) == 2
    assert net.producer[net.outputs[0]].type == "AddV2"
    assert net.producer[net.producer[net.outputs[0]].inputs[0]].type == "Neg"


def test_the_body_runs_where_the_call_was_placed_unless_it_says_so_itself():
    body = make_net(
        {"a": "f[]"},
        [op("free", "Neg", "a", "f[]"), op("bound", "Neg", "a", "f[]", device="/GPU:1")],
        ["free", "bound"],
    )
    net = inline(
        make_net(
            {"x": "f[]"}, [call("c", body, "x", "f[] f[]", device="/CPU:0", source="t.py:3")], []
        )
    )
    assert {op.name: op.device for op in net.ops} == {"c/free": "/CPU:0", "c/bound": "/GPU:1"}
    assert {op.source for op in net.ops} == {"t.py:3"}


def test_colocation_marks_move_with_the_op_they_name():
    body = make_net(
        {"a": "f[]"},
        [
            op("first", "Neg", "a", "f[]"),
            op("second", "Neg", "first", "f[]", attributes={"_class": (b"loc:@first", b"mine")}),
        ],
        ["second"],
    )
    net = inline(make_net({"x": "f[]"}, [call("c", body, "x", "f[]")], ["c"]))
    assert net.op_by_name["c/second"].attributes["_class"] == (b"loc:@c/first", b"mine")


@pytest.mark.parametrize("mark", ["_noinline", "_XlaMustCompile", "api_implements"])
def test_a_body_that_must_stay_a_function_stays_one(mark):
    closed = make_net(
        {"a": "f[]"},
        [op("n", "Neg", "a", "f[]")],
        ["n"],
        attributes={"attributes": {mark: True}},
    )
    net = make_net({"x": "f[]"}, [call("c", closed, "x", "f[]")], ["c"])
    assert not is_open_call(net.ops[0])
    assert inline(net) == net
    marked = make_net({"x": "f[]"}, [call("c", DOUBLE, "x", "f[]", attributes={mark: True})], ["c"])
    assert inline(marked) == marked


def test_calls_inside_a_closed_call_are_inlined_there():
    closed = make_net(
        {"a": "f[]"},
        [call("deep", DOUBLE, "a", "f[]")],
        ["deep"],
        attributes={"attributes": {"_noinline": True}},
    )
    net = inline(make_net({"x": "f[]"}, [call("c", closed, "x", "f[]")], ["c"]))
    assert names(net) == ["c"]
    assert names(net.op_by_name["c"].nets["f"]) == ["deep/sum"]


def test_a_net_without_calls_is_handed_back_as_it_is():
    net = make_net({"x": "f[]"}, [op("n", "Neg", "x", "f[]")], ["n"])
    assert inline(net) == net


def halves():
    """A function with a constant of its own, and one that calls it beside an equal one."""
    half = make_net({"a": "f[]"}, [const("c", 0.5), op("m", "Mul", "a c", "f[]")], ["m"])
    drawn = [const("c", 0.5), call("y", half, "x", "f[]"), op("z", "AddV2", "y c", "f[]")]
    return make_net({"x": "f[]"}, drawn, ["z"])


def test_constants_of_a_call_in_a_step_net_are_not_those_beside_it():
    # TensorFlow's inliner enters such a call too: an equal constant outside is another one
    body = halves()
    net = inline(make_net({"x": "f[]"}, [while_op("loop", "x", body)], ["loop"]))
    inner = net.op_by_name["loop"].nets["body"]
    assert inner.op_by_name["y/enter"].type == "NoOp"
    assert waits(inner) == {"y/c": {"y/enter"}}
    assert reads(inner, "y/m") == ("x", "y/c")


def test_outside_of_step_nets_nobody_enters_a_call_that_waits_for_nothing():
    assert waits(inline(halves())) == {}


def test_a_call_in_a_call_in_a_step_net_is_entered_after_that():
    deeper = make_net({"b": "f[]"}, [call("g", halves(), "b", "f[]")], ["g"])
    net = inline(make_net({"x": "f[]"}, [while_op("loop", "x", deeper)], ["loop"]))
    found = waits(net.op_by_name["loop"].nets["body"])
    assert found == {
        "g/c": {"g/enter"},
        "g/y/c": {"g/y/enter"},
        "g/y/enter": {"g/enter"},
    }


def test_what_the_device_chose_hides_the_shapes_of_its_results():
    chosen = {"attributes": {"api_preferred_device": b"CPU"}}
    body = make_net(
        {"a": "f[2]"},
        [op("n", "Neg", "a", "f[2]"), op("s", "Shape", "a", "i[1]"), const("e", (2,))],
        ["n", "s"],
        attributes=chosen,
    )
    called = call("c", body, "x", "f[2] i[1]")
    net = inline(make_net({"x": "f[2]"}, [called, op("y", "Sin", "c:0", "f[2]")], ["y", "c:1"]))
    assert net.producer["c:0"].type == net.producer["c_1:0"].type == "OptionalGetValue"
    assert net.producer["c:0"].attributes["output_shapes"][0].dims is None
    assert net.op_by_name["y"].inputs == ("c:0",) and net.outputs == ("y", "c_1:0")
