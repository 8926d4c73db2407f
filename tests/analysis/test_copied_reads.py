"""Variables whose rows a Net accesses: each whole read of them is a copy."""

import pytest

from rnnmem.analysis.copied_reads import copied_when_read
from rnnmem.simulate.timeline import simulate
from tests.handmade import const, make_net, op, while_op

K = 1024
GIVEN = {"v": "r[]", "w": "r[]", "i": "i[2]", "x": "f[16,16]"}


def read(name, handle):
    return op(name, "ReadVariableOp", handle, "f[16,16]")


def accessing(type):
    return op("rows", type, "same i", "f[2,16]")


SAME = op("same", "Identity", "v", "r[]")


@pytest.mark.parametrize(
    "type, found",
    [
        ("ResourceGather", {"v"}),
        ("ResourceGatherNd", {"v"}),
        ("ResourceScatterAdd", {"v"}),
        ("ResourceSparseApplyAdagradV2", {"v"}),
        ("VariableShape", set()),
        ("ResourceApplyAdam", set()),
    ],
)
def test_who_accesses_rows(type, found):
    assert copied_when_read(make_net(GIVEN, [SAME, accessing(type)], ["rows"])) == found


def around(handle):
    """A loop that accesses rows of v and reads a variable whole, which is read behind it, too."""
    given = {"t": "i[]", "v": "r[]", "w": "r[]", "i": "i[2]"}
    inside = [
        const("one", 1),
        op("next", "AddV2", "t one", "i[]"),
        SAME,
        accessing("ResourceGather"),
        read("a", handle),
    ]
    body = make_net(given, inside, ["next", "v", "w", "i"], control_outputs=("a", "rows"))
    loop = while_op("loop", "zero v w i", body, limit=3)
    behind = op("whole", "ReadVariableOp", handle, "f[16,16]", controls=("loop",))
    return make_net(GIVEN, [const("zero", 0), loop, behind], ["loop:0", "whole"])


def test_rows_may_be_accessed_in_a_step_net():
    assert copied_when_read(around("w")) == {"v"}


@pytest.mark.parametrize("handle, bytes", [("v", K), ("w", 0)])
def test_reads_of_what_a_loop_accesses_by_rows_are_counted(handle, bytes):
    found = simulate(around(handle))
    assert found.peak_bytes in range(bytes, bytes + K)
    assert dict(found.events)["whole"] in range(bytes, bytes + K)
