"""Gradients of filter and bias are one op where oneDNN runs: neither waits for the other."""

import pytest

from rnnmem.grappler.fusion import may_have_proxy
from rnnmem.grappler.merged_gradients import merged_gradients, waits_in_a_cycle
from rnnmem.ir.marks import OWN_KERNEL
from tests.handmade import const, make_net, op


def gradients(*, reads="x", waits=(), own=False):
    """A filter's gradient and a bias's, of one g, and what reads that of the bias."""
    attributes = {OWN_KERNEL: True} if own else {}
    ops = [
        const("size", (3, 3, 4, 8)),
        op("clone", "Relu", "x", "f[2,8,8,4]", controls=waits),
        op("same", "Identity", "g", "f[2,8,8,8]"),
        op(
            "dw",
            "Conv2DBackpropFilter",
            f"{reads} size same",
            "f[3,3,4,8]",
            attributes=attributes,
        ),
        op("db", "BiasAddGrad", "g", "f[8]"),
        op("step", "AssignSubVariableOp", "b db"),
    ]
    inputs = {"x": "f[2,8,8,4]", "g": "f[2,8,8,8]", "b": "r[]"}
    return make_net(inputs, ops, ["dw", "clone"])


def test_they_are_found_by_the_gradient_that_both_read():
    assert {name: one.name for name, one in merged_gradients(gradients()).items()} == {"db": "dw"}
    assert not merged_gradients(gradients(own=True))


def test_nobody_may_wait_for_that_of_the_bias():
    assert not may_have_proxy(gradients(), "db")
    assert may_have_proxy(gradients(own=True), "db")


@pytest.mark.parametrize("waits", ["db", "step"])
def test_what_the_filters_reads_waits_in_a_cycle_for_that_of_the_bias(waits):
    found = waits_in_a_cycle(gradients(reads="clone", waits=(waits,)))
    assert found is not None and found.name == "db"
    assert waits_in_a_cycle(gradients(reads="clone")) is None
    assert waits_in_a_cycle(gradients(waits=(waits,))) is None
    assert waits_in_a_cycle(gradients(reads="clone", waits=(waits,), own=True)) is None
