"""Who makes little of a large blob reads it first, where one more reader changes nothing."""

from rnnmem.ir.edges import Edge
from rnnmem.passes.schedule.apply import with_edges
from rnnmem.passes.schedule.readers import readers_in_turn
from rnnmem.simulate.timeline import simulate
from rnnmem.verify import check
from tests.handmade import make_net, op

F, KERNEL = "f[64,128,256]", "f[256,256]"


def gradient(hidden=True, little=KERNEL):
    """A blob behind a barrier, of which a kernel's gradient and a layer's input's are made."""
    barrier = [
        op("held", "OptionalFromValue", "g", "v[]"),
        op("seen", "OptionalGetValue", "held", F),
    ]
    if not hidden:
        barrier = [op("seen", "Einsum", "g w", F)]
    ops = [
        *barrier,
        op("dx", "Einsum", "seen w", F),
        op("dw", "Einsum", "a seen", little),
        op("out", "Identity", "dw", little),
        op("sum", "Sum", "dx axes", "f[]"),
    ]
    return make_net({"g": F, "a": F, "w": KERNEL, "axes": "i[3]"}, ops, ["out", "sum"])


def test_a_kernels_gradient_is_made_before_the_input_s():
    net = gradient()
    edges = readers_in_turn(net)
    assert edges == (Edge("dx", 0, "dw", by_proxy=True),)
    made = with_edges(net, edges)
    check(net, made)
    delayed = made.producer[made.op_by_name["dx"].inputs[0]]
    assert delayed.type == "EnsureShape"
    (proxy,) = delayed.controls
    assert made.op_by_name[proxy].inputs == ("dw",)
    assert simulate(made).peak_bytes <= simulate(net).peak_bytes


def test_nobody_waits_for_what_waits_for_it():
    ops = [
        op("held", "OptionalFromValue", "g", "v[]"),
        op("seen", "OptionalGetValue", "held", F),
        op("dx", "Einsum", "seen w", F),
        op("dw", "Einsum", "dx seen", KERNEL),
        op("out", "Identity", "dw", KERNEL),
    ]
    assert not readers_in_turn(make_net({"g": F, "w": KERNEL}, ops, ["out"]))


def test_what_may_be_fused_is_left_and_so_is_what_makes_as_much():
    assert not readers_in_turn(gradient(hidden=False))
    assert not readers_in_turn(gradient(little=F))


def test_a_kernels_gradient_that_others_may_be_fused_with_is_not_waited_for():
    ops = [
        op("held", "OptionalFromValue", "g", "v[]"),
        op("seen", "OptionalGetValue", "held", F),
        op("dx", "Einsum", "seen w", F),
        op("dw", "Einsum", "a seen", KERNEL),
        op("out", "Mul", "dw w", KERNEL),
    ]
    assert not readers_in_turn(make_net({"g": F, "a": F, "w": KERNEL}, ops, ["out", "dx"]))
