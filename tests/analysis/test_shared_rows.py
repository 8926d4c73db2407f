"""What a slice hands out may stand in the buffer that it reads, or surely does not."""

import pytest

from rnnmem.analysis.shared_rows import may_be_all, may_be_rows
from tests.handmade import const, make_net, op


def cut(type, inputs, made, read="f[?,192]", **attributes):
    drawn = op("part", type, inputs, made, attributes=attributes)
    given = {"x": read, "at": "i[2]", "size": "i[2]", "axis": "i[]"}
    numbers = [const("first", 0), const("second", 1), const("last", -1), const("rows", -2)]
    net = make_net(given, [*numbers, drawn], [drawn.op.outputs[0]])
    return net, net.op_by_name["part"]


@pytest.mark.parametrize(
    ("made", "rows", "whole"),
    [
        ("f[?,64]", False, False),
        ("f[?,192]", True, True),
        ("f[?,?]", True, True),
        ("f*", True, True),
    ],
)
def test_a_slice_of_fewer_columns_has_a_buffer_of_its_own(made, rows, whole):
    net, part = cut("Slice", "x at size", made)
    assert (may_be_rows(net, part), may_be_all(net, part)) == (rows, whole)


def test_a_slice_of_fewer_rows_is_not_all_but_may_be_in_the_same_buffer():
    net, part = cut("Slice", "x at size", "f[2,192]", read="f[8,192]")
    assert may_be_rows(net, part) and not may_be_all(net, part)


@pytest.mark.parametrize(
    ("axis", "rows"),
    [("first", True), ("rows", True), ("axis", True), ("second", False), ("last", False)],
)
def test_a_split_along_columns_copies(axis, rows):
    net, part = cut("Split", f"{axis} x", "f[?,?] f[?,?]", num_split=2)
    assert may_be_rows(net, part) is rows


def test_what_cuts_nothing_has_its_own_buffer():
    net, part = cut("Tanh", "x", "f[?,192]")
    assert not may_be_rows(net, part)
