"""Sizes of a call: where they tell what the function does not, plans are compared by them."""

import dataclasses

import pytest

from rnnmem.analysis.facts import Fact
from rnnmem.analysis.machine import CPU
from rnnmem.analysis.shapes import known_net
from rnnmem.ir.marks import OWN_KERNEL
from rnnmem.planning.call_sizes import FEW, SMALL, telling
from rnnmem.planning.search import Search
from rnnmem.planning.setting import Setting
from rnnmem.simulate.timeline import counted_peak
from tests.drawing import encoded
from tests.handmade import const, make_net, op

SIDE = 512


def layers(rows="?", count=8):
    """Layers of rows that only a call tells, and their gradient."""
    kind, kernel = f"f[{rows},{SIDE}]", f"f[{SIDE},{SIDE}]"
    ops, given = [], "x"
    for i in range(count):
        ops += [op(f"m{i}", "MatMul", f"{given} w", kind), op(f"h{i}", "Tanh", f"m{i}", kind)]
        given = f"h{i}"
    ops += [const("axes", (0, 1)), op("loss", "Mean", f"{given} axes", "f[]")]
    ops.append(op(f"gradients/d{count}", "Mul", f"{given} {given}", kind))
    for i in reversed(range(count)):
        ops.append(op(f"gradients/t{i}", "TanhGrad", f"h{i} gradients/d{i + 1}", kind))
        below = f"h{i - 1}" if i else "x"
        by = {"transpose_a": True}
        ops.append(
            op(f"gradients/w{i}", "MatMul", f"{below} gradients/t{i}", kernel, attributes=by)
        )
        ops.append(op(f"gradients/d{i}", "MatMul", f"gradients/t{i} w", kind))
    ops += [op(f"u{i}", "Sum", f"gradients/w{i} axes", "f[]") for i in range(count)]
    return make_net({"x": kind, "w": kernel}, ops, ["loss", *(f"u{i}" for i in range(count))])


def test_they_are_taken_where_the_function_does_not_tell_its_own():
    net = layers()
    sizes = telling(net, [Fact((2048, SIDE))])
    assert [one.shape for one in sizes.facts] == [(2048, SIDE), None]
    assert sizes.known(net).net.blobs["h3"].shape == (2048, SIDE)


@pytest.mark.parametrize("facts", [[], [Fact()], [Fact((None, SIDE))]])
def test_a_call_that_tells_nothing_is_none(facts):
    assert telling(layers(), facts) is None


def test_what_the_function_tells_itself_is_not_asked_of_a_call():
    assert telling(layers(2048), [Fact((2048, SIDE)), Fact((SIDE, SIDE))]) is None


def test_a_whole_number_alone_tells_nothing_of_known_shapes():
    assert telling(layers(2048), [Fact((2048, SIDE), None), Fact((), 7)]) is None


def test_a_call_that_is_too_small_says_nothing():
    rows = SMALL // SIDE // 4 // 32
    assert telling(layers(), [Fact((rows, SIDE))]) is None
    assert telling(layers(), [Fact((64 * rows, SIDE))]) is not None


def test_scratch_space_does_not_hide_what_grows():
    kind, filters = f"f[?,{SIDE}]", "f[3,3,16,16]"
    ops = [
        const("sizes", (3, 3, 16, 16)),
        op("dw", "Conv2DBackpropFilter", "y sizes y", filters, attributes={OWN_KERNEL: True}),
        op("t", "Tanh", "x", kind, controls=("dw",)),
        const("axes", (0, 1)),
        op("loss", "Sum", "t axes", "f[]"),
    ]
    net = make_net({"x": kind, "y": "f[4,24,24,16]"}, ops, ["dw", "loss"])
    sizes = telling(net, [Fact((2 * SMALL // SIDE // 4, SIDE)), Fact((4, 24, 24, 16))])
    assert counted_peak(sizes.known(net)) - counted_peak(known_net(net, None, FEW)) < SMALL
    assert telling(net, [Fact((1, SIDE)), Fact((4, 24, 24, 16))]) is None


def picking(rows=2048):
    """A product of the rows whose mask is set."""
    kind = f"f[?,{SIDE}]"
    ops = [
        op("at", "Where", "mask", "i[?,1]"),
        op("picked", "GatherNd", "x at", kind),
        op("made", "MatMul", "picked w", kind),
        const("axes", (0, 1)),
        op("sum", "Sum", "made axes", "f[]"),
    ]
    given = {"x": f"f[{rows},{SIDE}]", "mask": f"z[{rows}]", "w": f"f[{SIDE},{SIDE}]"}
    return make_net(given, ops, ["sum"])


def test_what_values_decide_is_the_most_that_it_may_be():
    net = picking()
    facts = [Fact((2048, SIDE)), Fact((2048,)), Fact((SIDE, SIDE))]
    assert counted_peak(net) is None
    sizes = telling(net, facts)
    assert sizes.known(net).net.blobs["made"].shape == (2048, SIDE)
    assert counted_peak(sizes.known(net)) >= 2 * 2048 * SIDE * 4
    assert telling(net, []) is None


def padded():
    """As many rows as the largest of some lengths says."""
    ops = [
        const("axis", (0,)),
        op("longest", "Max", "lengths axis", "i[]"),
        const("width", SIDE),
        op("size", "Pack", "longest width", "i[2]"),
        const("zero", 0.0),
        op("rows", "Fill", "size zero", f"f[?,{SIDE}]"),
        op("made", "MatMul", "rows w", f"f[?,{SIDE}]"),
        const("axes", (0, 1)),
        op("sum", "Sum", "made axes", "f[]"),
    ]
    return make_net({"lengths": "i[3]", "w": f"f[{SIDE},{SIDE}]"}, ops, ["sum"])


def test_values_of_a_vector_tell_sizes_where_the_call_is_large():
    net = padded()
    sizes = telling(net, [Fact((3,), (7, 8192, 12)), Fact((SIDE, SIDE))])
    assert sizes.known(net).net.blobs["made"].shape == (8192, SIDE)
    assert telling(net, [Fact((3,), (7, 8, 12)), Fact((SIDE, SIDE))]) is None
    assert telling(net, [Fact((3,)), Fact((SIDE, SIDE))]) is None


@pytest.mark.parametrize("machine", [CPU, dataclasses.replace(CPU, costs=None)])
def test_times_are_those_of_the_call(machine):
    def seconds(net, sizes):
        return Search(net, Setting(machine, encoded, sizes=sizes)).seconds

    net = layers()
    sizes = telling(net, [Fact((2048, SIDE))])
    assert seconds(net, sizes) == pytest.approx(seconds(layers(2048), None), rel=0.01)
    assert seconds(net, None) < 0.5 * seconds(net, sizes)
