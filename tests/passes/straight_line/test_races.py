"""Sums of three with an addend that a product reads too, which waits for clones."""

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.grappler.fusion import may_have_proxy
from rnnmem.ir.edges import Edge
from rnnmem.passes.straight_line.decision import Region
from rnnmem.passes.straight_line.races import Races
from rnnmem.passes.straight_line.segments import Line
from tests.handmade import const, make_net, op

F = "f[256,256]"
CHAIN = 8


def drawn(weight="Sum", adds="AddN", far=CHAIN, behind=False, late=False, asks=False):
    """``d`` is added up ``far`` products later; ``dw`` needs it and what runs again, ``s``."""
    forward = [
        const("axes", (0, 1)),
        op("m", "MatMul", "x w", F),
        op("s", "Sin", "m", F),
        op("p", "MatMul", "s w", F),
        op("loss", "Mean", "p axes", "f[]"),
    ]
    gradient = [
        op("gradients/d", "Cos", "p", F),
        op("gradients/dw", "MatMul", "s gradients/d", F),
        op("gradients/u", weight, "gradients/dw axes", "f[]"),
        op("gradients/c0", "MatMul", "gradients/d w", F),
        op("gradients/m", "Mul", "gradients/c0 s", F),
        *(
            op(f"gradients/c{i + 1}", "MatMul", f"gradients/{f'c{i}' if i else 'm'} w", F)
            for i in range(far)
        ),
    ]
    last = f"gradients/c{far}"
    if adds == "AddN":
        sums = [op("gradients/dx", "AddN", f"gradients/d {last} x", F)]
    else:
        sums = [
            op("gradients/half", "AddV2", f"gradients/d {last}", F),
            op("gradients/dx", "AddV2", "gradients/half x", F),
        ]
    if behind:  # as the gradient of a sum of unknown sizes, which hands its input on
        handed_on = [
            op("gradients/one", "Reshape", "gradients/d sizes", F),
            op("gradients/other", "Reshape", "gradients/d sizes", F),
        ]
        sums = [const("sizes", (256, 256)), *handed_on, *sums]
        sums[-1] = op("gradients/dx", "AddN", f"gradients/one {last} x", F)
        gradient[1] = op("gradients/dw", "MatMul", "s gradients/other", F)
        gradient[3] = op("gradients/c0", "MatMul", "gradients/other w", F)
    last_sum = op("gradients/v", "Sum", "gradients/dx axes", "f[]")
    if late:  # the sum stands before what waits for the reader
        sums.append(gradient.pop(2))
    if asks:  # the reader reads the shape of what the forward part made
        read = "s gradients/shape gradients/d"
        filters = op("gradients/dw", "Conv2DBackpropFilter", read, F)
        gradient[1:2] = [op("gradients/shape", "Shape", "m", "i[2]"), filters]
    outputs = ["loss", "gradients/u", "gradients/v"]
    return make_net({"x": F, "w": F}, [*forward, *gradient, *sums, last_sum], outputs)


def region(*readers):
    names = tuple(f"gradients/{name}" for name in readers)
    return Region(("s",), names, ("gradients/d",), 1, 0.0)


def settled(net, *readers):
    return Races(Line(net), CPU.seconds).settled(region(*readers))


def test_the_sum_waits_for_the_reader_that_comes_first():
    # the product itself may be fused with its reader, which the edge starts at then
    edges = settled(drawn(), "dw", "m").edges
    assert edges == (Edge("gradients/dx", None, "gradients/u"),)


def test_a_reader_that_waits_for_no_clone_needs_no_edge():
    assert settled(drawn(), "m").edges == ()


@pytest.mark.parametrize("net", [drawn(adds="AddV2"), drawn(far=1)], ids=["a tree", "too near"])
def test_the_region_stays_where_no_edge_may_be(net):
    assert settled(net, "dw", "m") is None


def test_a_sum_that_no_clone_holds_up_waits_for_a_reader_that_one_does():
    edges = settled(drawn(), "dw").edges
    assert edges == (Edge("gradients/dx", None, "gradients/u"),)


def test_a_sum_does_not_wait_for_what_stands_behind_it():
    assert settled(drawn(late=True), "dw") is None
    assert settled(drawn(late=True), "dw", "m").edges == settled(drawn(), "dw", "m").edges


def test_shapes_of_the_forward_part_are_there_before_the_gradient():
    assert settled(drawn(asks=True), "dw", "m").edges == settled(drawn(), "dw", "m").edges


def test_the_race_begins_where_the_buffer_is_made_that_both_read():
    edges = settled(drawn(behind=True), "dw", "m").edges
    assert edges == (Edge("gradients/dx", None, "gradients/u"),)


def test_what_takes_the_place_of_a_reader_is_awaited_by_the_sums_that_it_came_before():
    def awaiting(net):
        return Races(Line(net), CPU.seconds).awaiting("gradients/dw")

    assert awaiting(drawn()) == ("gradients/dx",)
    assert awaiting(drawn(far=1)) is None  # either may come first
    assert awaiting(drawn(late=True)) is None
    assert Races(Line(drawn()), CPU.seconds).awaiting("gradients/u") == ()


@pytest.mark.parametrize("type", ["MatMul", "Einsum", "BiasAddGrad"])
def test_gradients_of_weights_that_two_passes_share_are_waited_for_by_another_reader(type):
    reads = "d" if type == "BiasAddGrad" else "x d"
    ops = [
        op("dw", type, reads, F),
        op("both", "AddN", "dw other", F),
        op("tanh", "Tanh", "x", F),
        op("sum", "AddN", "tanh other", F),
    ]
    net = make_net({"x": F, "d": F, "other": F}, ops, ["both", "sum"])
    assert may_have_proxy(net, "dw")
    assert not may_have_proxy(net, "tanh")


@pytest.mark.parametrize("read", [False, True])
def test_what_is_returned_may_have_a_proxy_unless_it_is_read_instead(read):
    ops = [
        op("dw", "MatMul", "x x", "f[8,8]"),
        op("handed_on", "Identity", "dw", "f[8,8]"),
        op("other", "Tanh", "handed_on" if read else "x", "f[8,8]"),
    ]
    net = make_net({"x": "f[8,8]"}, ops, ["other"] if read else ["handed_on", "other"])
    assert may_have_proxy(net, "dw") is not read
