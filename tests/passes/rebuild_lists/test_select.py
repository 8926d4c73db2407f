"""Lists that hold nothing but an argument are made again where a gradient loop needs them."""

import pytest

from rnnmem.analysis.loops import loop_pairs
from rnnmem.analysis.machine import CPU
from rnnmem.analysis.variable_effects import Writers
from rnnmem.passes.rebuild_lists.select import rebuilt_lists
from tests.handmade import blob, const, make_net, op, rnn

SEQUENCE = "f[64,32,64]"


def reading(*between, argument="sequence"):
    """``rnn`` whose loop also carries a list: argument ─► ... ─► list ─► loop."""
    net = rnn()
    drawn = [
        const("perm", (1, 0, 2)),
        const("shape", (32, 64)),
        *between,
        op("turned", "Transpose", f"{between[-1].op.name if between else argument} perm", SEQUENCE),
        op("list", "TensorListFromTensor", "turned shape", "v[]"),
    ]
    made = make_net({argument: SEQUENCE}, drawn, ["list"])
    ops = [_with_list(one) if one.name == "loop" else one for one in net.ops]
    return net.replace(
        inputs=(*net.inputs, argument),
        ops=(*made.ops, *ops),
        blobs={**made.blobs, **net.blobs, "loop:6": made.blobs["list"]},
    )


def _with_list(loop):
    nets = {}
    for key, inner in loop.nets.items():
        carried = {"seq": inner.blobs[inner.inputs[-1]]}
        outputs = (*inner.outputs, "seq") if key == "body" else inner.outputs
        nets[key] = inner.replace(
            inputs=(*inner.inputs, "seq"), outputs=outputs, blobs={**inner.blobs, **carried}
        )
    return loop.replace(inputs=(*loop.inputs, "list"), outputs=(*loop.outputs, "loop:6"), nets=nets)


def lists(net, writers=None):
    return rebuilt_lists(net, loop_pairs(net, net, {}), CPU.seconds, writers)


def test_a_list_of_a_turned_argument_is_rebuilt():
    (made,) = lists(reading())
    assert made.ops == ("turned", "list")
    assert made.gradients == ("gradient",)
    assert made.bytes == 64 * 32 * 64 * 4
    assert 0 < made.seconds < 1e-3


@pytest.mark.parametrize("type", ["Tanh", "RandomShuffle"])
def test_a_list_that_was_computed_is_kept(type):
    assert lists(reading(op("made", type, "sequence", SEQUENCE))) == ()


def embedded(*more):
    """``reading`` of rows that are looked up in a variable."""
    net = reading(op("rows", "ResourceGather", "table sequence", SEQUENCE), *more)
    blobs = {**net.blobs, "table": blob("table", "r[]"), "sequence": blob("sequence", "i[64,32]")}
    return net.replace(inputs=(*net.inputs, "table"), blobs=blobs)


def test_rows_are_looked_up_again_where_variables_may_be_read():
    net = embedded()
    assert lists(net) == ()
    (made,) = lists(net, Writers(net))
    assert made.ops == ("rows", "turned", "list")


@pytest.mark.parametrize(("after", "count"), [("loop", 0), ("gradient", 1)])
def test_rows_are_looked_up_before_the_variable_is_written(after, count):
    net = embedded()
    write = op("write", "AssignVariableOp", "table x", controls=(after,)).op
    net = net.replace(
        ops=(*net.ops, write.replace(inputs=("table", net.inputs[0]))), control_outputs=("write",)
    )
    assert len(lists(net, Writers(net))) == count


def test_what_somebody_else_reads_is_held_anyway():
    net = embedded()
    more = op("more", "Tanh", "rows", SEQUENCE)
    net = net.replace(
        ops=(*net.ops, more.op),
        outputs=(*net.outputs, "more"),
        blobs={**net.blobs, "more": more.blobs[0]},
    )
    assert lists(net, Writers(net)) == ()


def test_zeros_are_made_like_the_new_list():
    net = reading()
    zeros = op("zeros", "ZerosLike", "loop:6", "v[]")
    (gradient,) = (one for one in net.ops if one.name == "gradient")
    given = net.replace(
        ops=(
            *(one for one in net.ops if one is not gradient),
            zeros.op,
            gradient.replace(inputs=(*gradient.inputs, "zeros")),
        ),
        blobs={**net.blobs, "zeros": zeros.blobs[0]},
    )
    (made,) = lists(given)
    assert made.zeros == ("zeros",)


def test_a_list_that_the_caller_gets_is_kept():
    net = reading()
    assert lists(net.replace(outputs=(*net.outputs, "loop:6"))) == ()
