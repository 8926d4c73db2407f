"""Which branches may run again once what they read is given to them."""

import dataclasses

import pytest

from rnnmem.analysis.branches import reads_inside, reads_of
from rnnmem.ir.graph import DType, Net, Op
from rnnmem.passes.rematerialise.branches import kinds_with_values, with_values
from tests.handmade import const, make_net, op, while_op

READ = {"dtype": DType("float32")}


def reading(*more) -> Net:
    return make_net(
        {"v": "r[]", "x": "f[4]"},
        [
            op("w", "ReadVariableOp", "v", "f[4]", attributes=READ),
            op("y", "Mul", "x w", "f[4]"),
            *more,
        ],
        ["y"],
        name="reading",
        control_outputs=("w",),
        attributes={"argument_attributes": ({"_handle_dtypes": 1}, {"kept": 2})},
    )


def plain() -> Net:
    return make_net({"v": "r[]", "x": "f[4]"}, [op("y", "Tanh", "x", "f[4]")], ["y"], name="plain")


def branch(first: Net, second: Net) -> Op:
    drawn = op(
        "if",
        "If",
        "taken handle h",
        "f[4]",
        nets={"then_branch": first, "else_branch": second},
        attributes={"Tin": (DType("resource"), DType("float32")), "Tout": (DType("float32"),)},
    )
    return drawn.op


def test_the_variables_that_branches_read_are_found_by_their_handles():
    found = reads_inside(branch(reading(), plain()))
    assert list(found) == ["handle"]
    assert (found["handle"].op.name, found["handle"].blob.dtype) == ("w", "float32")


@pytest.mark.parametrize(
    "more",
    [
        op("a", "AssignVariableOp", "v x", ""),
        op("r", "RandomUniform", "x", "f[4]"),
        op("g", "ResourceGather", "v x", "f[4]", attributes={"batch_dims": 1}),
        op("n", "ResourceGatherNd", "v x", "f[4]"),
        op("p", "Print", "x", ""),
        op("i", "Identity", "v", "r[]"),
    ],
    ids=lambda drawn: drawn.op.type,
)
def test_a_branch_that_does_more_than_read_is_none(more):
    assert reads_inside(branch(reading(more), plain())) is None


ROWS = {"dtype": DType("float32"), "Tindices": DType("int32"), "batch_dims": 0}


def test_rows_of_a_variable_that_is_read_whole_are_taken_of_its_value():
    lookup = op("g", "ResourceGather", "v i", "f[2]", attributes=ROWS, stateful=True)
    given = {"v": "r[]", "x": "f[4]", "i": "i[2]"}
    rows = make_net(given, [lookup], ["g"], name="rows")
    read = [op("w", "ReadVariableOp", "v", "f[4]", attributes=READ)]
    whole = make_net(given, read, ["w"], name="whole")
    op_of = branch(whole, rows).replace(inputs=("taken", "handle", "h", "at"))
    reads = reads_inside(op_of)
    assert list(reads) == ["handle"]
    kinds = {"Tin": (DType("resource"), DType("float32"), DType("int32"))}
    made = with_values(op_of.replace(attributes={**op_of.attributes, **kinds}), reads)
    taken = made.nets["else_branch"].op_by_name["g"]
    assert (taken.type, taken.inputs, taken.stateful) == ("Gather", ("v", "i"), False)
    assert taken.attributes["Tindices"] == DType("int32")
    assert not [one for one in made.nets["then_branch"].ops if one.type == "ReadVariableOp"]
    alone = branch(rows, rows).replace(inputs=("taken", "handle", "h", "at"))
    assert reads_inside(alone) is None


def looping(handle: str = "v", following: str = "v") -> Net:
    """A branch with a loop in it, whose body reads the variable."""
    body = make_net(
        {"i": "i[]", "y": "f[4]", "v": "r[]"},
        [
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            op("w", "ReadVariableOp", "v", "f[4]", attributes=READ),
            op("wy", "Mul", "y w", "f[4]"),
        ],
        ["next", "wy", following],
    )
    ops = [const("zero", 0), while_op("loop", f"zero x {handle}", body)]
    return make_net({"v": "r[]", "x": "f[4]", "u": "r[]"}, ops, ["loop:1"], name="looping")


def around(first: Net, second: Net) -> Op:
    made = branch(first, second)
    given = {**made.attributes, "Tin": (*made.attributes["Tin"], DType("resource"))}
    return made.replace(inputs=(*made.inputs, "other"), attributes=given)


def test_a_read_in_a_loop_in_a_branch_is_found():
    other = make_net({"v": "r[]", "x": "f[4]", "u": "r[]"}, [], ["x"], name="other")
    found = reads_inside(around(looping(), other))
    assert list(found) == ["handle"]
    found = reads_inside(around(looping("u"), looping()))
    assert list(found) == ["other", "handle"]


def test_a_read_in_a_loop_is_found():
    (loop,) = (one for one in looping().ops if one.nets)
    assert list(reads_inside(loop)) == ["v"]
    after = with_values(loop, reads_inside(loop))
    assert (after.type, after.attributes["T"][2]) == ("StatelessWhile", DType("float32"))
    assert after.attributes["output_shapes"][2].dims == (4,)
    body = after.nets["body"]
    assert body.op_by_name["wy"].inputs == ("y", "v") and body.outputs[2] == "v"
    assert all(net.blobs[net.inputs[2]].dtype == "float32" for net in after.nets.values())
    kinds = kinds_with_values(loop, looping(), reads_inside(loop))
    assert [kind.dtype for kind in kinds] == ["int32", "float32", "float32"]


def test_values_go_down_to_a_loop_in_a_branch():
    before = around(looping(), looping("u"))
    after = with_values(before, reads_inside(before))
    for net, place in zip(after.nets.values(), (0, 2), strict=True):
        (loop,) = (one for one in net.ops if one.nets)
        assert loop.type == "StatelessWhile" and loop.inputs[2] == net.inputs[place]
        assert net.blobs[loop.outputs[2]].dtype == "float32"
        assert all(one.type != "ReadVariableOp" for _, inner in net.walk() for one in inner.ops)


def test_a_loop_that_takes_another_variable_each_time_is_left():
    body = make_net(
        {"i": "i[]", "y": "f[4]", "v": "r[]", "u": "r[]"},
        [
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            op("w", "ReadVariableOp", "v", "f[4]", attributes=READ),
            op("wy", "Mul", "y w", "f[4]"),
        ],
        ["next", "wy", "u", "v"],
    )
    assert reads_inside(while_op("loop", "zero x v u", body).op) is None


def test_what_is_no_branch_or_reads_nothing_is_none():
    assert reads_inside(branch(plain(), plain())) is None
    assert reads_inside(const("c", 1).op) is None


def test_a_variable_read_as_two_dtypes_is_left():
    other = op("u", "ReadVariableOp", "v", "i[4]", attributes={"dtype": DType("int32")})
    assert reads_inside(branch(reading(other), plain())) is None


def test_values_take_the_place_of_handles():
    before = branch(reading(), plain())
    after = with_values(before, reads_inside(before))
    assert (after.type, after.inputs) == ("StatelessIf", before.inputs)
    assert after.attributes["Tin"] == (DType("float32"), DType("float32"))
    for net in after.nets.values():
        assert net.blobs[net.inputs[0]].dtype == "float32"
        assert net.control_outputs == ()
        assert all(one.type != "ReadVariableOp" for one in net.ops)
    then = after.nets["then_branch"]
    assert then.ops[0].inputs == ("x", "v")
    assert then.attributes["argument_attributes"] == ({}, {"kept": 2})
    assert before == branch(reading(), plain()), "the original is left as it was"


def test_what_waited_for_a_read_waits_no_more():
    net = reading()
    ops = tuple(
        dataclasses.replace(one, controls=("w",)) if one.name == "y" else one for one in net.ops
    )
    before = branch(net.replace(ops=ops), plain())
    after = with_values(before, reads_inside(before))
    assert after.nets["then_branch"].ops[0].controls == ()


def test_what_no_way_of_a_branch_takes_is_not_read():
    ways = {
        "then_branch": make_net(
            {"a": "f[4]", "b": "f[4]", "c": "f[4]"},
            [op("y", "Tanh", "a", "f[4]"), op("dead", "Sin", "b", "f[4]")],
            ["y"],
            name="first",
        ),
        "else_branch": make_net({"a": "f[4]", "b": "f[4]", "c": "f[4]"}, [], ["c"], name="second"),
    }
    net = make_net(
        {"taken": "z[]", "x": "f[4]"},
        [
            op("p", "Tanh", "x", "f[4]"),
            op("q", "Sin", "x", "f[4]"),
            op("if", "StatelessIf", "taken p q x", "f[4]", nets=ways),
            op("unread", "Exp", "p", "f[4]"),
        ],
        ["if"],
    )
    reads = reads_of(net)
    assert (reads["p"], reads["q"], reads["x"], reads["taken"]) == (1, 0, 2, 1)
