"""What the gradient starts from is not made beside the loss."""

from rnnmem.analysis.loops import loop_pairs
from rnnmem.ir.edges import Edge
from rnnmem.passes.schedule.after_loss import after_the_loss
from tests.handmade import const, make_net, op, rnn

F = "f[512,512]"


def trained(*, reread=False):
    """The loop pair of ``rnn``, with the mean of squares between the loops.

    loop ─► Transpose = t ─► Square ─► Mean = loss
                          └► Mul = m ─► Mul = g ─► gradient loop
                        1 ─► Tile = n ──┘
    """
    net = rnn(units=512)
    drawn = [
        const("perm", (1, 0)),
        const("axes", (0, 1)),
        const("many", (512, 512)),
        const("two", 2.0),
        op("one", "Reshape", "two axes", "f[1,1]"),
        op("t", "Transpose", "loop:1 perm", F),
        op("square", "Square", "t", F),
        op("loss", "Mean", "square axes", "f[]"),
        op("m", "Mul", "t two", F),
        op("n", "Tile", "one many", F),
        op("g", "Mul", "n m", F),
    ]
    if reread:
        drawn.append(op("twice", "Mul", "loss two", "f[]"))
    made = make_net({"loop:1": F}, drawn, ["loss"])
    between = [
        one.replace(inputs=tuple("g" if blob == "ones" else blob for blob in one.inputs))
        for one in net.ops
        if one.name != "ones"
    ]
    place = next(i for i, one in enumerate(between) if one.name == "gradient")
    between[place:place] = made.ops
    outputs = ("twice" if reread else "loss", *net.outputs)
    return net.replace(ops=tuple(between), blobs={**made.blobs, **net.blobs}, outputs=outputs)


def test_a_filler_waits_and_what_reads_the_sequence_waits_at_a_delayed_input():
    net = trained()
    scheduling_edges = after_the_loss(net, loop_pairs(net, net, {}))
    assert set(scheduling_edges) == {Edge("m", 0, "loss"), Edge("n", None, "loss")}


def test_nobody_waits_for_a_loss_that_others_read():
    # it could be fused with them
    net = trained(reread=True)
    assert after_the_loss(net, loop_pairs(net, net, {})) == ()


def test_a_product_that_a_transposition_may_go_into_does_not_wait():
    net = trained()
    product = net.op_by_name["m"].replace(type="MatMul", inputs=("t", "t"))
    net = net.replace(ops=tuple(product if one.name == "m" else one for one in net.ops))
    assert after_the_loss(net, loop_pairs(net, net, {})) == (Edge("n", None, "loss"),)
