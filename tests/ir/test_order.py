import pytest

from rnnmem.errors import NetError
from rnnmem.ir.order import (
    all_needed_by,
    all_waiting_for,
    is_constant,
    reached,
    topological,
    without_dead_ops,
    without_pruned_ops,
)
from tests.handmade import const, make_net, op, rnn, while_op


def ordered(*drawn):
    return [op.name for op in topological(one.op for one in drawn)]


def test_what_is_read_comes_first():
    # c ◄─ b ◄─ a, written backwards
    c, b, a = op("c", "Neg", "b", "f[]"), op("b", "Neg", "a", "f[]"), op("a", "Neg", "x", "f[]")
    assert ordered(c, b, a) == ["a", "b", "c"]


def test_what_is_waited_for_comes_first():
    late = op("late", "NoOp", controls=("early",))
    assert ordered(late, op("early", "NoOp")) == ["early", "late"]


def test_free_ops_keep_their_order():
    drawn = [op(name, "Neg", "x", "f[]") for name in "dacb"]
    assert ordered(*drawn) == list("dacb")


def test_a_control_edge_to_an_op_elsewhere_is_no_edge():
    assert ordered(op("a", "NoOp", controls=("elsewhere",))) == ["a"]


def test_a_cycle_names_an_op_on_it():
    # x ─► before ─► a ─► b ─► after
    #                ▲    │
    #                └────┘
    drawn = [
        op("before", "Neg", "x", "f[]"),
        op("a", "Add", "before b", "f[]"),
        op("b", "Neg", "a", "f[]"),
        op("after", "Neg", "b", "f[]"),
    ]
    with pytest.raises(NetError, match=r"cycle through op '[ab]'"):
        ordered(*drawn)


def test_a_cycle_over_a_control_edge_is_one_too():
    drawn = [op("a", "NoOp", controls=("b",)), op("b", "NoOp", controls=("a",))]
    with pytest.raises(NetError, match="cycle"):
        ordered(*drawn)


def test_a_chain_longer_than_pythons_stack_is_no_trouble():
    drawn = [op(f"{i}", "Neg", f"{i - 1}", "f[]") for i in range(5000)]
    assert ordered(*reversed(drawn))[-1] == "4999"


def alive(net):
    return [op.name for op in without_dead_ops(net).ops]


def test_pure_ops_that_nobody_needs_go_and_what_only_they_read():
    # x ─► a ─► b (output);  x ─► c ─► d (nobody)
    drawn = [
        op("a", "Neg", "x", "f[]"),
        op("b", "Neg", "a", "f[]"),
        op("c", "Neg", "x", "f[]"),
        op("d", "Neg", "c", "f[]"),
    ]
    assert alive(make_net({"x": "f[]"}, drawn, ["b"])) == ["a", "b"]


def test_what_may_have_effects_stays_with_all_it_reads_and_waits_for():
    drawn = [
        op("text", "AsString", "x", "f[]"),
        op("a", "Neg", "x", "f[]"),
        op("print", "PrintV2", "a", controls=("gate",)),
        op("gate", "NoOp"),
    ]
    # AsString is pure, but no table says so: what is not known stays.
    assert alive(make_net({"x": "f[]"}, drawn, [])) == ["text", "a", "print", "gate"]


def test_of_a_traced_function_all_goes_that_the_registry_knows_to_be_without_state():
    # x ─► loop ─► place (nobody);  a rewritten Net keeps it, and so the loop
    def drawn(stateless):
        place = op("place", "NobodyKnowsIt", "loop:1", "f[]", stateless=stateless)
        body = make_net(
            {"i": "i[]", "h": "f[]"}, [const("one", 1), op("n", "Add", "i one", "i[]")], ["n", "h"]
        )
        return make_net({"x": "f[]"}, [const("z", 0), while_op("loop", "z x", body), place], ["x"])

    assert not without_pruned_ops(drawn(stateless=True)).ops
    known, unknown = drawn(stateless=True), drawn(stateless=False)
    assert without_dead_ops(known) is known and without_pruned_ops(unknown) is unknown


def test_control_outputs_stay():
    drawn = [op("a", "Neg", "x", "f[]"), op("gate", "NoOp", controls=("a",))]
    assert alive(make_net({"x": "f[]"}, drawn, [], control_outputs=("gate",))) == ["a", "gate"]
    assert alive(make_net({"x": "f[]"}, drawn, [])) == []


def test_dead_ops_go_from_step_nets_too():
    body = make_net(
        {"i": "i[]", "h": "f[]"},
        [const("one", 1), op("n", "Add", "i one", "i[]"), op("dead", "Neg", "h", "f[]")],
        ["n", "h"],
    )
    net = make_net({"x": "f[]"}, [const("z", 0), while_op("loop", "z x", body)], ["loop:1"])
    cleaned = without_dead_ops(net).op_by_name["loop"].nets["body"]
    assert [op.name for op in cleaned.ops] == ["one", "n"]


def test_a_pure_loop_that_nobody_needs_goes_whole():
    net = rnn()
    assert alive(net.replace(outputs=("x",))) == []


def test_a_net_without_dead_ops_is_handed_back_as_it_is():
    net = rnn()
    assert without_dead_ops(net) is net


def test_what_holds_of_the_ops_is_found_once_for_all_nets_of_them():
    net = make_net({"x": "f[]"}, [op("a", "Neg", "x", "f[]")], ["a"])
    renamed = net.replace(name="other", blobs=dict(net.blobs))
    assert renamed.producer is net.producer
    assert renamed.of_ops(topological) is net.of_ops(topological)


def test_other_ops_have_other_readers():
    net = make_net({"x": "f[]"}, [op("a", "Neg", "x", "f[]"), op("b", "Neg", "a", "f[]")], ["b"])
    assert [one.name for one in net.readers["a"]] == ["b"]
    shorter = net.replace(ops=net.ops[:1], outputs=("a",))
    assert "a" not in shorter.readers
    assert shorter.fan_out("a") == 1
    assert shorter.of_ops(topological) == net.ops[:1]


FOLLOWING = {"a": "bc", "b": "d", "c": "de", "d": "a", "e": ""}


def test_what_is_reached_comes_once_and_the_nearest_first():
    assert list(reached("a", FOLLOWING.__getitem__)) == list("abcde")
    assert list(reached("ee", FOLLOWING.__getitem__)) == ["e"]
    assert list(reached("", FOLLOWING.__getitem__)) == []


def test_deep_follows_what_was_found_last():
    assert list(reached("a", FOLLOWING.__getitem__, deep=True)) == list("acedb")


def test_nothing_is_asked_of_what_lies_behind_what_was_looked_for():
    assert "b" in reached("a", {"a": "bc"}.__getitem__)


def test_needed_and_waiting_follow_data_and_control_edges():
    # x ─► a ─► b     c waits for a, d for nobody
    ops = [
        op("a", "Tanh", "x", "f[2]"),
        op("b", "Tanh", "a", "f[2]"),
        op("c", "Tanh", "x", "f[2]", controls=("a", "gone")),
        op("d", "Tanh", "x", "f[2]"),
    ]
    net = make_net({"x": "f[2]"}, ops, ["b", "c", "d"])
    assert all_needed_by(net, ["b", "c"]) == {"a", "b", "c"}
    assert all_waiting_for(net, ["a"]) == {"a", "b", "c"}
    assert all_needed_by(net, ["d"]) == all_waiting_for(net, ["d"]) == {"d"}


def test_a_constant_is_made_of_constants_alone():
    ops = [
        const("one", 1),
        op("two", "AddV2", "one one", "i[]"),
        op("three", "AddV2", "two n", "i[]"),
        op("drawn", "RandomUniform", "", "f[]"),
        op("fill", "AddV2", "drawn drawn", "f[]"),
    ]
    net = make_net({"n": "i[]"}, ops, ["three"])
    found = {one.name for one in net.ops if is_constant(net, one)}
    assert found == {"one", "two"}  # an op without inputs is none by that
