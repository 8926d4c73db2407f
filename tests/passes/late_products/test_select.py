"""Which products by a constant wait for the gradient, in Nets drawn by hand."""

import pytest

from rnnmem.passes.late_products.decision import LateProduct
from rnnmem.passes.late_products.select import late_products
from tests.handmade import const, make_net, op

F = "f[512,512]"


def step(product="f gradients/e", others=(), kind=F, scale=8.0, late=True, name="f", inputs=None):
    """``h = (sin x) w`` and the gradient of its square, in which ``(d w sin x) / 8`` is read."""
    ops = [
        op(name, "Sin", "x", kind),
        op("h", "MatMul", f"{name} w", kind),
        const("axes", (0, 1)),
        op("loss", "Mean", "h axes", "f[]"),
        op("gradients/d", "Mul", "h h", kind),
        op("gradients/b", "MatMul", "gradients/d w", kind),
        op("gradients/e", "Neg", "gradients/b", kind),
        *others,
        op("gradients/m", "Mul", product, kind),
        const("c", scale) if scale else op("c", "Mean", "x axes", "f[]"),
        op("gradients/p", "RealDiv", "gradients/m c", kind),
        op("gradients/w", "MatMul", f"{name if late else 'x'} gradients/d", kind),
        op("gradients/v", "Mul", "gradients/b gradients/p", kind),
    ]
    outputs = ["loss", "gradients/w", "gradients/v", *(one.op.outputs[0] for one in others)]
    return make_net({"x": kind, "w": kind, **(inputs or {})}, ops, outputs)


def test_a_factor_that_the_gradient_reads_anyway_waits_for_what_several_read():
    assert late_products(step()) == (LateProduct("gradients/m", 0, "gradients/b", 2**20),)


def test_a_factor_that_nothing_makes_waits_too():
    ops = [op("a", "Sin", "x", F), op("gradients/n", "Neg", "a", F)]
    assert not late_products(step(others=ops, product="gradients/n gradients/e"))
    (one,) = late_products(step(product="gradients/e b", inputs={"b": F}))
    assert one == LateProduct("gradients/m", 1, "gradients/b", 2**20)


@pytest.mark.parametrize(
    "changed",
    [
        {"late": False},
        {"product": "gradients/e s", "name": "s"},
        {"kind": "f[64,64]"},
        {"scale": None},
        {"others": [op("q", "Neg", "gradients/m", F)]},
    ],
    ids=["held for it alone", "the gradient sorts first", "small", "no constant", "read twice"],
)
def test_other_products_stay(changed):
    assert not late_products(step(**changed))


def test_without_a_gradient_nothing_waits():
    ops = [op("s", "Sin", "x", F), op("d", "Cos", "s", F), op("m", "Mul", "d s", F)]
    net = make_net({"x": F}, [*ops, const("c", 8.0), op("p", "Mul", "m c", F)], ["p"])
    assert not late_products(net)
