"""Which branches may run again once what they read is given to them."""

import dataclasses

import pytest

from rnnmem.analysis.branches import branch_reads, reads_of
from rnnmem.ir.graph import DType, Net, Op
from rnnmem.passes.rematerialise.branches import with_values
from tests.handmade import const, make_net, op

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
    found = branch_reads(branch(reading(), plain()))
    assert list(found) == ["handle"]
    assert (found["handle"].op.name, found["handle"].blob.dtype) == ("w", "float32")


@pytest.mark.parametrize(
    "more",
    [
        op("a", "AssignVariableOp", "v x", ""),
        op("r", "RandomUniform", "x", "f[4]"),
        op("g", "ResourceGather", "v x", "f[4]"),
        op("p", "Print", "x", ""),
        op("i", "Identity", "v", "r[]"),
    ],
    ids=lambda drawn: drawn.op.type,
)
def test_a_branch_that_does_more_than_read_is_none(more):
    assert branch_reads(branch(reading(more), plain())) is None


def test_what_is_no_branch_or_reads_nothing_is_none():
    assert branch_reads(branch(plain(), plain())) is None
    assert branch_reads(const("c", 1).op) is None


def test_a_variable_read_as_two_dtypes_is_left():
    other = op("u", "ReadVariableOp", "v", "i[4]", attributes={"dtype": DType("int32")})
    assert branch_reads(branch(reading(other), plain())) is None


def test_values_take_the_place_of_handles():
    before = branch(reading(), plain())
    after = with_values(before, branch_reads(before))
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
    after = with_values(before, branch_reads(before))
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
