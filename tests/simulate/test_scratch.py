"""Buffers of a kernel's own, counted by hand from TensorFlow's sources."""

import math

from rnnmem.analysis.machine import CPU, PATCHES_BYTES
from rnnmem.analysis.shapes import known_net
from rnnmem.ir.marks import OWN_KERNEL
from rnnmem.passes.schedule.serialise import edges_of
from rnnmem.planning.plan import Plan
from rnnmem.planning.scheduling_edges import time_of_edges
from rnnmem.simulate.scratch import scratch_bytes
from rnnmem.simulate.timeline import simulate
from tests.handmade import make_net, op

MARK = {OWN_KERNEL: True}
INPUTS = {"sizes": "i[4]", "x": "f[4,24,24,16]", "w": "f[3,3,16,16]", "dy": "f[4,24,24,16]"}


def gradients(**attributes):
    return make_net(
        INPUTS,
        [
            op("dx", "Conv2DBackpropInput", "sizes w dy", "f[4,24,24,16]", attributes=attributes),
            op("dw", "Conv2DBackpropFilter", "x sizes dy", "f[3,3,16,16]", attributes=attributes),
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
    assert time_of_edges(net, Plan(), CPU) == found.slowdown > 1.0


def test_edges_are_not_looked_for_twice_where_kernels_hold_little():
    assert time_of_edges(gradients(), Plan(), CPU) == 1.0
