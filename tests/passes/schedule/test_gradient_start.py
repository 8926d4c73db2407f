"""What a gradient loop starts from is made as late as it may be, and nothing is made for that."""

import dataclasses

import pytest

from rnnmem.analysis.loops import loop_pairs
from rnnmem.ir.edges import Edge
from rnnmem.passes.schedule.gradient_start import waits_of
from tests.handmade import const, edited, make_net, op, rnn

F, LOGITS = "f[512,512]", "f[512,4096]"


def classifier(weight_gradient="f[512,64]", limit=5):
    """The loop pair of ``rnn``, with a layer between the loops whose gradients read ``logits``.

    loop ─► MatMul = logits ─► MatMul = g ─► gradient loop
                           └─► MatMul = dw
    """
    net = rnn(units=512, limit=limit)
    made = make_net(
        {"loop:1": F, "v": LOGITS},
        [
            const("some", (1, 0)),
            op("logits", "MatMul", "loop:1 v", LOGITS),
            op("g", "MatMul", "logits v", F),
            op("dw", "MatMul", "logits logits", weight_gradient),
            op("there", "ZerosLike", "loop:1", F),
        ],
        ["dw"],
    )
    between = [one.replace(inputs=starts_from(one)) for one in net.ops if one.name != "ones"]
    place = next(i for i, one in enumerate(between) if one.name == "gradient")
    between[place:place] = made.ops
    return net.replace(
        ops=tuple(between),
        inputs=(*net.inputs, "v"),
        blobs={**made.blobs, **net.blobs},
        outputs=("dw", *net.outputs),
    )


def starts_from(one):
    """The loop's incoming gradient is ``g``; what is added up for the weights begins with zeros."""
    named = {"ones": "g"} | ({"zeros": "there"} if one.name == "gradient" else {})
    return tuple(named.get(blob, blob) for blob in one.inputs)


def waits(net):
    return set(waits_of(net, loop_pairs(net, net, {})))


def test_zeros_wait_until_the_logits_are_read():
    found = waits(classifier())
    assert Edge("there", None, "dw") in found
    assert Edge("there", None, "g") in found


def test_the_loop_waits_for_what_it_reads_but_not_for_zeros():
    found = waits(classifier())
    assert Edge("gradient", None, "g") in found
    assert not any(edge.op == "gradient" and edge.after == "there" for edge in found)


@pytest.mark.parametrize("read", [True, False])
def test_a_loop_that_may_not_run_waits_unless_it_hands_on_what_a_sum_begins_with(read):
    net = edited(classifier(limit=0), "back", type="AddN", inputs=("g", "d", "g"))
    outputs = tuple(blob for blob in net.outputs if read or blob != "gradient:1")
    found = waits(net.replace(outputs=outputs))
    assert (Edge("gradient", None, "g") in found) is not read
    assert (Edge("there", None, "g") in found) is not read


def starting_from(*ops):
    """The same, but what is added up for the weights begins with other ops; the last is "there"."""
    net = classifier()
    made = make_net({}, ops, ["there"])
    place = next(i for i, one in enumerate(net.ops) if one.name == "there")
    return net.replace(
        ops=(*net.ops[:place], *made.ops, *net.ops[place + 1 :]), blobs={**net.blobs, **made.blobs}
    )


def test_zeros_that_are_a_constant_wait_for_nothing():
    """They are never made, and two calls in one graph share them as long as they do not wait."""
    filled = op("there", "Fill", "shape zero", F)
    net = starting_from(const("shape", (512, 512)), const("zero", 0.0), filled)
    assert not any(edge.op == "there" for edge in waits(net))


def test_a_large_number_repeated_waits_though_it_is_of_constants():
    """No graph optimizer makes it before the run: it would be stored in full."""
    tiled = op("there", "Tile", "one times", F)
    net = starting_from(const("one", (1,)), const("times", (512, 512)), tiled)
    assert Edge("there", None, "g") in waits(net)


def test_nothing_waits_for_an_op_that_writes_as_much_as_it_reads():
    assert Edge("there", None, "dw") not in waits(classifier(weight_gradient=LOGITS))


@pytest.mark.parametrize("name", ["dw", "g"])
def test_a_gradient_that_nobody_may_ask_for_is_not_waited_for(name):
    net = classifier()
    renamed = tuple(
        dataclasses.replace(one, name=f"rnnmem_backward/{one.name}") if one.name == name else one
        for one in net.ops
    )
    found = waits(net.replace(ops=renamed))
    assert not any(edge.after.endswith("dw") for edge in found)
