"""Sums of a gradient that add nothing up, where only a run tells the sizes."""

import pytest

from rnnmem.analysis.shapes import known_net
from rnnmem.analysis.sums import sums_of_nothing
from rnnmem.grappler.fusion import may_be_awaited
from tests.handmade import make_net, op


def gradient_of(left, right, made="f[?,?,8]", maker="Mul"):
    """The gradient of ``left + right`` where ``right`` is made of ``left``, by both."""
    return make_net(
        {"x": left, "z": right, "d": made},
        [
            op("y", "Tanh", "x", left),
            op("s", "Shape", "y", "i[3]"),
            op("t", "Shape", "z", f"i[{right.count(',') + 1}]"),
            op("axes", "BroadcastGradientArgs", "s t", "i[?] i[?]"),
            op("part", maker, "d d", made),
            op("mine", "Sum", "part axes:0", "f[?,?,8]"),
            op("other", "Sum", "part axes:1", right),
        ],
        ["mine", "other"],
    )


def awaited(net):
    return {op.name for op in net.ops if op.type == "Sum" and may_be_awaited(net, op)}


def test_what_was_broadcast_to_one_of_one_axis_less_is_handed_on():
    net = gradient_of("f[?,?,8]", "f[8]")
    assert sums_of_nothing(known_net(net)) == {"mine"}
    assert awaited(net) == {"other"}


def test_sizes_that_may_differ_are_added_up():
    net = gradient_of("f[?,?,8]", "f[?,?,8]")
    assert sums_of_nothing(known_net(net)) == set()
    assert awaited(net) == set()  # a graph optimizer may know that they are the same


def test_an_axis_of_length_1_is_added_up():
    net = gradient_of("f[?,?,8]", "f[?,1,8]")
    assert "other" not in sums_of_nothing(known_net(net))
    assert awaited(net) == {"other"}


@pytest.mark.parametrize("maker", ["Mul", "AddN"])
def test_equal_names_are_handed_on(maker):
    net = gradient_of("f[?,?,8]", "f[?,?,8]", maker=maker)
    same = net.replace(
        ops=tuple(one.replace(inputs=("x",)) if one.name == "t" else one for one in net.ops)
    )
    assert sums_of_nothing(known_net(same)) == {"mine", "other"}
    # What AddN adds up is grouped with nothing behind it.
    assert awaited(same) == (set() if maker == "Mul" else {"mine", "other"})


@pytest.mark.parametrize(("inner", "found"), [("f[?,?,8]", set()), ("f[?,1,8]", {"later"})])
def test_a_sum_behind_one_that_may_go_stands_behind_what_that_reads(inner, found):
    net = gradient_of("f[?,?,8]", inner)
    shape = "s" if inner == "f[?,?,8]" else "t"
    behind = [
        op("shaped", "Reshape", f"other {shape}", inner),
        op("later", "Sum", "shaped axes:0", "f[?,?,8]"),
    ]
    ops = (*net.ops, *(one.op for one in behind))
    blobs = dict(net.blobs)
    blobs |= {one.name: one for drawn in behind for one in drawn.blobs}
    assert awaited(net.replace(ops=ops, blobs=blobs)) - {"mine", "other"} == found
