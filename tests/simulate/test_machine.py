"""What is simulated is told which machine it runs on: threads, and how long ops take."""

import dataclasses

import pytest

from rnnmem.analysis.machine import CPU, GRANULE, rounded
from rnnmem.simulate.timeline import counted_peak, peaks, simulate
from tests.handmade import make_net, op

PRODUCT = 256 * 256 * 4


def branches(count):
    """x0 ─► MatMul ─► Tanh ─► MatMul, and as many beside it as are asked for."""
    ops = []
    for index in range(count):
        ops += [
            op(f"a{index}", "MatMul", f"x{index} x{index}", "f[256,256]"),
            op(f"b{index}", "MatMul", f"a{index} x{index}", "f[256,1]"),
        ]
    inputs = {f"x{index}": "f[256,256]" for index in range(count)}
    return make_net(inputs, ops, [f"b{index}" for index in range(count)])


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_as_many_branches_are_under_way_as_there_are_threads(threads):
    machine = dataclasses.replace(CPU, threads=threads)
    found = simulate(branches(4), machine=machine).peak_bytes
    assert found // PRODUCT == threads
    assert peaks(branches(4), machine) == (found, found)
    assert counted_peak(branches(4), machine) >= found


def test_two_threads_are_assumed_where_nothing_else_is_said():
    assert simulate(branches(4)).peak_bytes // PRODUCT == CPU.threads == 2


def test_buffers_are_rounded_up_to_what_the_allocator_hands_out():
    assert rounded(0) == 0
    assert rounded(1) == rounded(GRANULE) == GRANULE
    assert rounded(GRANULE + 1) == 2 * GRANULE
