"""Buffers of a kernel's own, counted by hand from TensorFlow's sources."""

import math

import pytest

from rnnmem.analysis.machine import CPU, PATCHES_BYTES, rounded
from rnnmem.analysis.shapes import known_net, with_known_shapes
from rnnmem.ir.marks import ON_GPU, OWN_KERNEL
from rnnmem.passes.schedule.serialise import edges_of
from rnnmem.planning.plan import Plan
from rnnmem.planning.scheduling_edges import time_of_edges
from rnnmem.planning.setting import Setting
from rnnmem.simulate.interval import peak_interval
from rnnmem.simulate.scratch import scratch_bytes
from rnnmem.simulate.timeline import blobs_peak, counted_peak, simulate, worst_peak
from tests.handmade import encoded, make_net, op

MARK = {OWN_KERNEL: True}
ON = {ON_GPU: True}
INPUTS = {"sizes": "i[4]", "x": "f[4,24,24,16]", "w": "f[3,3,16,16]", "dy": "f[4,24,24,16]"}


def gradients(*ops, seen="x", **attributes):
    """Both gradients of a convolution; what it saw may be made by other ops."""
    read = f"{seen} sizes dy"
    return make_net(
        INPUTS,
        [
            op("dx", "Conv2DBackpropInput", "sizes w dy", INPUTS["x"], attributes=attributes),
            *ops,
            op("dw", "Conv2DBackpropFilter", read, INPUTS["w"], attributes=attributes),
        ],
        ["dx", "dw"],
    )


def scratch(net, name, threads=2):
    return scratch_bytes(net.op_by_name[name], net, lambda _: None, threads)


def test_a_convolutions_gradient_lays_out_what_its_filter_sees_of_as_many_images_as_fit():
    patches, results, filters = 576 * 144, 576 * 16, 144 * 16
    images = math.ceil(PATCHES_BYTES / 4 / (patches + results + filters))
    net = gradients(**MARK)
    assert images > 4  # however few there are
    assert scratch(net, "dw") == images * patches * 4
    assert scratch(net, "dx") == images * patches * 4


def test_what_blobs_take_is_told_without_it():
    net = gradients(**MARK)
    made = sum(net.blobs[name].bytes for name in ("dx", "dw"))
    assert made <= blobs_peak(net) < 2 * made < counted_peak(net)
    assert blobs_peak(net) == blobs_peak(gradients())
    assert blobs_peak(make_net({"x": "f[?]"}, [op("y", "Tanh", "x", "f[?]")], ["y"])) is None


def test_a_library_lays_out_nothing():
    assert scratch(gradients(), "dx") == scratch(gradients(), "dw") == 0


def test_images_of_much_work_are_laid_out_one_by_one_where_the_input_is_asked_for():
    inputs = {**INPUTS, "w": "f[3,3,64,64]", "dy": "f[4,24,24,64]"}
    ops = [op("dx", "Conv2DBackpropInput", "sizes w dy", "f[4,24,24,64]", attributes=MARK)]
    net = make_net(inputs, ops, ["dx"])
    assert scratch(net, "dx") == 576 * 9 * 64 * 4
    assert scratch(net, "dx", threads=64) == 20 * 576 * 9 * 64 * 4


def test_the_peak_holds_it_and_an_edge_keeps_two_apart():
    net = gradients(**MARK)
    one = scratch(net, "dw")
    assert 2 * one < simulate(net).peak_bytes < 2.1 * one
    found = edges_of(known_net(net).net, CPU, 2.0)
    (edge,) = found.edges
    assert {edge.op, edge.after} == {"dx", "dw"}
    assert found.bytes < 1.1 * one < 2 * one == found.bytes_before
    assert time_of_edges(net, Plan(), Setting(CPU, encoded)) == found.slowdown > 1.0


def test_two_that_seldom_meet_may_meet():
    chain = [op(f"t{n}", "Tanh", f"t{n - 1}" if n else "x", INPUTS["x"]) for n in range(20)]
    net = gradients(*chain, seen="t19", **MARK)
    one = scratch(net, "dw")
    assert one < counted_peak(net) < 1.6 * one  # dx is done long before
    _, high = peak_interval(net)
    assert high > 2 * one
    assert worst_peak(net) > 2 * one


def test_edges_are_not_looked_for_twice_where_kernels_hold_little():
    assert time_of_edges(gradients(), Plan(), Setting(CPU, encoded)) == 1.0


def softmaxes(dtype="f", **attributes):
    """A product, its softmax, and the product's shape, which is asked for after that."""
    return make_net(
        {"x": f"{dtype}[64,32]", "w": f"{dtype}[32,512]"},
        [
            op("m", "MatMul", "x w", f"{dtype}[?,512]"),
            op("logits", "Tanh", "m", f"{dtype}[?,512]"),
            op("y", "LogSoftmax", "logits", f"{dtype}[?,512]", attributes=attributes),
            op("again", "Shape", "logits", "i[2]"),
        ],
        ["y", "again"],
    )


ROWS = 64 * 512 * 4


def test_a_softmax_on_a_gpu_asks_for_two_buffers_of_its_results_size():
    def asked(*dtype, **attributes):
        return scratch(with_known_shapes(softmaxes(*dtype, **attributes)), "y")

    assert asked(**ON) == 2 * ROWS
    assert asked("h", **ON) == 1.5 * ROWS  # sums are single
    assert asked() == 0


def test_and_takes_the_logits_whose_shape_was_asked_for_first():
    few = 4096
    assert ROWS * 3 <= simulate(softmaxes(**ON)).peak_bytes < ROWS * 3 + few
    assert ROWS * 2 <= simulate(softmaxes()).peak_bytes < ROWS * 2 + few  # another thread has it


@pytest.mark.parametrize(
    "equation, left, right, result, moved",
    [
        ("ij,jk->ik", (8, 4), (4, 6), (8, 6), ""),
        ("ij,kj->ik", (8, 4), (6, 4), (8, 6), ""),  # a product reads either way
        ("ij,jk->ki", (8, 4), (4, 6), (6, 8), "result"),
        ("bthd,bshd->bhts", (2, 8, 3, 4), (2, 9, 3, 4), (2, 3, 8, 9), "left right"),
        ("bhts,bshd->bthd", (2, 3, 8, 9), (2, 9, 3, 4), (2, 8, 3, 4), "right result"),
        ("lkj,ijk->il", (3, 5, 4), (2, 4, 5), (2, 3), "right result"),
        ("...ij,...jk->...ik", (2, 8, 4), (2, 4, 6), (2, 8, 6), ""),
        ("i...,...j->...ij", (8, 2), (2, 6), (2, 8, 6), "left"),
        ("ijk->kj", (2, 4, 5), None, (5, 4), "left result"),
        ("ijk->ikj", (2, 4, 5), None, (2, 5, 4), ""),
    ],
)
def test_an_einsum_transposes_what_no_product_reads_or_makes(equation, left, right, result, moved):
    shapes = {"left": left, "result": result} | ({"right": right} if right else {})
    inputs = {
        name: f"f[{','.join(map(str, shape))}]"
        for name, shape in shapes.items()
        if name != "result"
    }
    made = f"f[{','.join(map(str, result))}]"
    attributes = {"equation": equation.encode()}
    net = make_net(
        inputs, [op("result", "Einsum", " ".join(inputs), made, attributes=attributes)], ["result"]
    )
    expected = sum(rounded(4 * math.prod(shapes[name])) for name in moved.split())
    assert scratch(net, "result") == expected
