"""Which elementwise ops run by chunks of rows: whole chains, and only what nobody else sees."""

import pytest

from rnnmem.analysis.machine import CPU
from rnnmem.passes.elementwise_chunks.select import LEAST, chains_of
from tests.handmade import const, make_net, op

F = "f[64,128,256]"  # 8 MiB
SIZE = 64 * 128 * 256 * 4


def layer(n=0, x="x"):
    """A product, and a gate of its result that two products read."""
    return [
        op(f"z{n}", "Einsum", f"{x} w", F),
        op(f"a{n}", "Tanh", f"z{n}", F),
        op(f"b{n}", "Sigmoid", f"z{n}", F),
        op(f"y{n}", "Mul", f"a{n} b{n}", F),
    ]


def gradient(n=0):
    """The gradient of a layer, which reads what lies between."""
    return [
        op(f"d{n}", "Einsum", "g w", F),
        op(f"p{n}", "Mul", f"d{n} b{n}", F),
        op(f"q{n}", "Mul", f"d{n} a{n}", F),
        op(f"da{n}", "TanhGrad", f"a{n} p{n}", F),
        op(f"db{n}", "SigmoidGrad", f"b{n} q{n}", F),
        op(f"dz{n}", "AddN", f"da{n} db{n}", F),
        op(f"dx{n}", "Einsum", f"dz{n} w", F),
    ]


def net_of(*ops, outputs=("out",), inputs=None):
    last = [op("out", "Einsum", "y0 w", F)] if "out" in outputs else []
    return make_net({"x": F, "g": F, "w": F, **(inputs or {})}, [*ops, *last], list(outputs))


def found(net):
    return [[chain.ops for chain in family] for family in chains_of(net, CPU)]


def test_a_chain_goes_from_what_is_read_whole_to_what_others_make():
    (((chain),),) = chains_of(net_of(*layer()), CPU)
    assert chain.ops == ("a0", "b0", "y0")
    assert (chain.result, chain.source) == ("y0", "z0")
    assert (chain.rows, chain.length, chain.between) == (64, 8, 2)
    assert chain.bytes == SIZE


def test_what_two_chains_need_runs_in_both_and_they_go_together():
    net = net_of(*layer(), *gradient(), outputs=("out", "dx0"))
    assert found(net) == [[("a0", "b0", "y0"), (*"a0 b0 p0 q0 da0 db0 dz0".split(),)]]
    (family,) = chains_of(net, CPU)
    assert family[1].seconds > family[0].seconds


def test_chains_that_share_nothing_go_apart():
    net = make_net(
        {"x": F, "g": F, "w": F},
        [*layer(), *layer(1, "y0"), op("out", "Einsum", "y1 w", F)],
        ["out"],
    )
    assert found(net) == [[("a0", "b0", "y0")], [("a1", "b1", "y1")]]


@pytest.mark.parametrize(
    "ops, outputs",
    [
        # the result of the function
        (layer(), ("y0",)),
        # an op that runs once, and one whose control edge comes from elsewhere
        ([*layer()[:3], op("y0", "Mul", "a0 b0", F, controls=("z0",))], ("out",)),
    ],
)
def test_what_others_see_or_order_is_left(ops, outputs):
    assert not found(net_of(*ops, outputs=outputs))


def test_what_is_a_result_stays_whole_and_the_chain_reads_it():
    assert found(net_of(*layer(), outputs=("out", "a0"))) == [[("b0", "y0")]]


def test_an_op_that_waits_for_one_of_the_chain_leaves_it():
    waiting = op("late", "Einsum", "g w", F, controls=("b0",))
    assert not found(net_of(*layer(), waiting, outputs=("out", "late")))


def test_small_blobs_and_single_ops_are_left():
    assert 64 * 16 * 16 * 4 < LEAST
    net = make_net(
        {"x": "f[64,16,16]", "w": "f[64,16,16]"},
        [
            op("z", "Einsum", "x w", "f[64,16,16]"),
            op("a", "Tanh", "z", "f[64,16,16]"),
            op("y", "Sigmoid", "a", "f[64,16,16]"),
            op("out", "Einsum", "y w", "f[64,16,16]"),
        ],
        ["out"],
    )
    assert not found(net)
    assert not found(net_of(layer()[0], op("y0", "Tanh", "z0", F)))


def test_addends_of_three_stay_whole():
    ops = [
        *layer(),
        op("s", "AddN", "y0 g x", F),
        op("t", "Tanh", "s", F),
        op("u", "Sigmoid", "s", F),
        op("v", "Mul", "t u", F),
        op("out", "Einsum", "v w", F),
    ]
    assert found(make_net({"x": F, "g": F, "w": F}, ops, ["out"])) == [[("t", "u", "v")]]


def test_an_op_that_may_be_fused_with_its_product_stays_with_it():
    wide = "f[4096,512]"
    ops = [
        op("z0", "MatMul", "x w", wide),
        op("a0", "Tanh", "z0", wide),
        op("b0", "Sigmoid", "a0", wide),
        op("out", "MatMul", "b0 w", wide),
    ]
    assert not found(make_net({"x": wide, "w": "f[512,512]"}, ops, ["out"]))


def test_a_row_that_kernels_do_not_finish_by_itself_is_left():
    odd = "f[64,128,257]"
    ops = [
        op("z", "Einsum", "x w", odd),
        op("a", "Pow", "z c", odd),
        op("y", "Mul", "a z", odd),
        op("out", "Einsum", "y w", odd),
    ]
    net = make_net({"x": odd, "w": odd}, [const("c", 3.0), *ops], ["out"])
    assert not found(net)
