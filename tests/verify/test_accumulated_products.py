"""Loops over items are believed only where they add up as the kernel does."""

import pytest

from rnnmem.errors import CheckError
from rnnmem.grappler.item_sums import lanes_of
from rnnmem.ir.graph import DType
from rnnmem.passes.accumulated_products import apply as writing
from rnnmem.passes.accumulated_products.decision import AccumulatedProduct
from rnnmem.verify import check
from tests.handmade import const, encoded, make_net, op

PRODUCT = {"T": DType("float32"), "adj_x": True, "adj_y": False}
SUM = {"T": DType("float32"), "Tidx": DType("int32"), "keep_dims": False}


def net(items=19, axis=0, factors="x y", outputs=("total",), rows=64, **product):
    """total = the sum of x'y over the items."""
    ops = [
        op(
            "p",
            "BatchMatMulV2",
            factors,
            f"f[{items},{rows},128]",
            attributes={**PRODUCT, **product},
        ),
        const("axes", (axis,)),
        op("total", "Sum", "p axes", f"f[{rows},128]", attributes=SUM),
        op("loss", "Tanh", "total", f"f[{rows},128]"),
    ]
    return make_net({"x": f"f[{items},16,{rows}]", "y": f"f[{items},16,128]"}, ops, outputs)


def rewritten(original, lanes=None, monkeypatch=None):
    items = original.blobs["x"].shape[0]
    if lanes is not None:
        monkeypatch.setattr(writing, "lanes_of", lambda _: lanes)
    return writing.apply(original, (AccumulatedProduct("p", "total", items, 0),), encoded)


@pytest.mark.parametrize("items", [2, 15, 16, 17, 19, 64])
@pytest.mark.parametrize("outputs", [("total",), ("loss",), ("loss", "total")])
def test_what_adds_up_as_the_kernel_does_is_believed(items, outputs):
    original = net(items, outputs=outputs)
    found = rewritten(original)
    assert not any(one.type == "BatchMatMulV2" for one in found.ops)
    check(original, found)


LANES = lanes_of(19)


@pytest.mark.parametrize(
    "lanes",
    [
        ((0, 19, 1),),
        LANES[:-1],
        LANES[:3] + LANES[4:],
        (LANES[1], LANES[0], *LANES[2:]),
        (*LANES[:-1], (16, 18, 1)),
        (*LANES[:-1], (15, 19, 1)),
        ((0, 15, 4), *LANES[1:]),
        ((1, 16, 4), *LANES[1:]),
    ],
    ids=["one sum", "none left", "three", "swapped", "short", "twice", "early", "late"],
)
def test_another_order_is_refused(lanes, monkeypatch):
    original = net()
    with pytest.raises(CheckError, match="items-not-understood"):
        check(original, rewritten(original, lanes, monkeypatch))


@pytest.mark.parametrize(
    "other",
    [net(axis=1), net(rows=1), net(factors="y x", rows=128), net(adj_x=False)],
    ids=["axis", "row", "factors", "adjoint"],
)
def test_another_sum_is_refused(other):
    found = rewritten(net(rows=other.blobs["x"].shape[2]))
    with pytest.raises(CheckError):
        check(other, found)


def edited_body(found, change):
    """The Net with the bodies of its loops changed."""
    ops = []
    for one in found.ops:
        if "body" in one.nets:
            body = one.nets["body"]
            changed = body.replace(ops=tuple(map(change, body.ops)))
            one = one.replace(nets={**one.nets, "body": changed})
        ops.append(one)
    return found.replace(ops=tuple(ops))


def swapped(one):
    """The product of y and x in place of x and y."""
    return one.replace(inputs=one.inputs[::-1]) if one.type == "BatchMatMulV2" else one


def subtracted(one):
    return one.replace(type="Sub") if one.name == "rnnmem/item_sum" else one


def doubled(one):
    """The product that is added to itself, and the sum forgotten."""
    return one.replace(inputs=one.inputs[1:] * 2) if one.name == "rnnmem/item_sum" else one


def other_item(one):
    """An item that does not begin at the loop's number."""
    return one.replace(inputs=one.inputs[::-1]) if one.type == "Pack" else one


@pytest.mark.parametrize("change", [swapped, subtracted, doubled, other_item])
def test_another_body_is_refused(change):
    original = net(rows=128)
    with pytest.raises(CheckError):
        check(original, edited_body(rewritten(original), change))
