"""What a run needs, and what it needs of a loop's body."""

import pytest

from rnnmem.analysis.liveness import needed
from tests.handmade import const, make_net, op, while_op


def loop(outputs):
    #   i ─► one more      h ─► Neg ─► h      unread ─► Neg ─► unread
    body = make_net(
        {"i": "i[]", "h": "f[8]", "unread": "f[8]"},
        [
            const("one", 1),
            op("next", "AddV2", "i one", "i[]"),
            op("turned", "Neg", "h", "f[8]"),
            op("lost", "Neg", "unread", "f[8]"),
        ],
        ["next", "turned", "lost"],
    )
    drawn = [const("zero", 0), while_op("loop", "zero h unread", body)]
    return make_net({"h": "f[8]", "unread": "f[8]"}, drawn, outputs)


def test_a_variable_that_nobody_reads_is_not_needed():
    found = needed(loop(["loop:1"]))
    assert found.variables == {"loop": {0, 1}}


def test_ops_of_the_body_are_those_of_the_variables_that_are_needed():
    found = needed(loop(["loop:1"]))
    assert [op.name for op in found.bodies["loop"].ops] == ["one", "next", "turned"]
    whole = needed(loop(["loop:1", "loop:2"]))
    assert whole.bodies["loop"].ops[-1].name == "lost"


@pytest.mark.parametrize("stateless", [False, True])
def test_an_op_that_no_table_knows_is_needed_unless_the_registry_calls_it_stateless(stateless):
    ops = [op("y", "NobodyKnowsIt", "x", "f[8]", stateless=stateless), op("z", "Neg", "x", "f[8]")]
    found = needed(make_net({"x": "f[8]"}, ops, ["z"]))
    assert [one.name for one in found.ops] == (["z"] if stateless else ["y", "z"])
