"""Loops over items are believed only where they add up as the kernel does."""

import pytest

from rnnmem.errors import CheckError
from rnnmem.grappler.item_sums import lanes_of
from rnnmem.ir.graph import DType
from rnnmem.passes.accumulated_products import apply as writing
from rnnmem.passes.accumulated_products.decision import AccumulatedProduct
from rnnmem.verify import check
from tests.handmade import CONTEXT, const, encoded, make_net, op

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
    return writing.apply(original, (AccumulatedProduct("p", "total", items, 0),), CONTEXT)


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


# --- as many items as a run has


def open_net(axes=1, inner="?", factors="x y", adj_x=True):
    """The same of a product whose items, and what each is summed along, only a run tells."""
    items, over = ",".join("?" * axes), tuple(range(axes))
    ops = [
        op(
            "p",
            "BatchMatMulV2",
            factors,
            f"f[{items},64,128]",
            attributes={**PRODUCT, "adj_x": adj_x},
        ),
        const("axes", over),
        op("total", "Sum", "p axes", "f[64,128]", attributes=SUM),
        op("loss", "Tanh", "total", "f[64,128]"),
    ]
    x = f"f[{items},{inner},64]" if adj_x else f"f[{items},64,{inner}]"
    return make_net({"x": x, "y": f"f[{items},{inner},128]"}, ops, ["loss", "total"])


def counted(original, at_once=1):
    decided = AccumulatedProduct("p", "total", 64, 0, counted=True, at_once=at_once)
    return writing.apply(original, (decided,), CONTEXT)


@pytest.mark.parametrize("at_once", [1, 4])
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("inner, adj_x", [("?", True), ("?", False), (16, True)])
def test_a_run_may_count_the_items(axes, inner, adj_x, at_once):
    original = open_net(axes, inner, adj_x=adj_x)
    check(original, counted(original, at_once))


@pytest.mark.parametrize("items", [16, 19, 64])
def test_several_may_be_made_at_once(items):
    original = net(items)
    decided = AccumulatedProduct("p", "total", items, 0, at_once=4)
    found = writing.apply(original, (decided,), CONTEXT)
    assert sum(one.type == "StatelessWhile" for one in found.ops) == (2 if items % 4 else 1)
    check(original, found)


def with_numbers(found, old, new):
    """The Net in which each of these whole numbers is another."""
    return found.replace(ops=tuple(_with_number(one, old, new) for one in found.ops))


def _with_number(one, old, new):
    held = one.attributes.get("value")
    if one.type != "Const" or held.value != old or type(held.value) is not type(old):
        return one
    return one.replace(attributes={**one.attributes, "value": encoded(new, held.dtype)})


def without(type, place):
    """The Net in which the operand of ops of a type is read in their place."""

    def edited(found):
        names = {one.outputs[0]: one.inputs[place] for one in found.ops if one.type == type}
        ops = [
            one.replace(inputs=tuple(names.get(blob, blob) for blob in one.inputs))
            for one in found.ops
            if one.type != type
        ]
        return found.replace(ops=tuple(ops))

    return edited


def reads(type, change):
    """The Net in which ops of a type read something else."""

    def edited(found):
        ops = [
            one.replace(inputs=change(one.inputs)) if one.type == type else one for one in found.ops
        ]
        return found.replace(ops=tuple(ops))

    return edited


EDITS = {
    "fewer items": lambda found: with_numbers(found, 15, 14),
    "a longer axis": lambda found: with_numbers(found, 129, 130),
    "a shorter axis": lambda found: with_numbers(found, 2, 1),
    "other sums": lambda found: with_numbers(found, 4, 3),
    "from 0 on": lambda found: with_numbers(found, -0.0, 0.0),
    "from 1 on": lambda found: with_numbers(found, -0.0, 1.0),
    "unlike factors": lambda found: with_numbers(found, 1, 2),
    "no inequality": without("Minimum", 0),
    "no limit": without("Maximum", 0),
    "the other way": reads("Sub", lambda inputs: inputs[::-1]),
    "not what is left": reads("Slice", lambda inputs: (inputs[0], inputs[2], inputs[2])),
    "left of another": reads("Slice", lambda inputs: ("y", *inputs[1:])),
}


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("name", EDITS)
def test_what_counts_otherwise_is_refused(name, axes):
    original = open_net(axes)
    found = counted(original)
    edited = EDITS[name](found)
    assert edited.ops != found.ops
    with pytest.raises(CheckError):
        check(original, edited)


@pytest.mark.parametrize("old, new", [((1, 0, 0), (2, 0, 0)), ((3, 0, 0), (4, 0, 0))])
def test_other_rows_of_sums_are_refused(old, new):
    original = net(64)
    decided = AccumulatedProduct("p", "total", 64, 0, at_once=4)
    found = writing.apply(original, (decided,), CONTEXT)
    with pytest.raises(CheckError):
        check(original, with_numbers(found, old, new))
