"""What a second run would change, told from a Net alone."""

from rnnmem.analysis.second_run import described, second_run
from tests.handmade import make_net, op, while_op


def run_of(*ops, inputs=None, outputs=("y",)):
    given = {"x": "f[4]", **(inputs or {})}
    return second_run(make_net(given, [*ops, op("y", "Tanh", "x", "f[4]")], outputs))


def stateful(name, type, inputs="", kinds="", **fields):
    return op(name, type, inputs, kinds, stateful=True, **fields)


def test_a_pure_net_leaves_nothing_behind():
    found = run_of()
    assert (found.stays, found.seen, found.draws, dict(found.written)) == ((), (), False, {})


def test_what_takes_from_a_queue_cannot_be_undone():
    found = run_of(
        stateful("q", "QueueDequeueV2", "r", "f[4]", source="a.py:3"), inputs={"r": "r[]"}
    )
    assert described(found.stays) == "QueueDequeueV2 (a.py:3)"


def test_a_stateful_type_that_nobody_knows_may_leave_anything():
    assert described(run_of(stateful("a", "NobodyKnowsThis")).stays) == "NobodyKnowsThis"


def test_prints_are_seen_and_draws_are_counted():
    found = run_of(stateful("p", "PrintV2", "x"), stateful("r", "RandomUniform", "x", "f[4]"))
    assert [one.type for one in found.seen] == ["PrintV2"]
    assert found.draws and not found.stays


def test_the_writers_of_a_variable_are_found_behind_its_handle_alone():
    found = run_of(
        stateful("read", "ReadVariableOp", "w", "f[4]"),
        stateful("a", "AssignAddVariableOp", "v x"),
        inputs={"v": "r[]", "w": "r[]"},
    )
    assert [one.name for one in found.written["v"]] == ["a"]
    assert found.written["w"] == () and "x" not in found.written
    assert not found.stays


def test_a_handle_is_followed_into_a_loop_and_out_of_it():
    body = make_net(
        {"i": "i[]", "it": "r[]"},
        [op("j", "Add", "i i", "i[]"), stateful("next", "IteratorGetNext", "it", "f[4]")],
        ["j", "it"],
    )
    found = run_of(
        while_op("loop", "n h", body),
        stateful("after", "AssignVariableOp", "loop:1 x"),
        inputs={"n": "i[]", "h": "r[]"},
    )
    assert [one.name for one in found.written["h"]] == ["next", "after"]
    assert not found.stays


def test_a_writer_whose_handle_nobody_gave_cannot_be_undone():
    found = run_of(
        stateful("v", "VarHandleOp", "", "r[]"), stateful("a", "AssignVariableOp", "v x")
    )
    assert described(found.stays) == "VarHandleOp, AssignVariableOp"


def test_each_place_is_told_once_and_the_rest_is_counted():
    lines = [stateful(f"p{i}", "PrintV2", "x", source=f"a.py:{i // 2}") for i in range(12)]
    found = run_of(*lines)
    assert described(found.seen, most=2) == "PrintV2 (a.py:0), PrintV2 (a.py:1) and 4 more"
